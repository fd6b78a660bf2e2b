"""Whether two expressions have the same value. Comparing their terms is not enough: 1, 1.0 and True
are equal in Python, but not beside a column of bytes; and a column may have been written in
between."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from silva.plan import expr

Versions = dict[str, int]
"""The number of times that each column was written before the expression."""


def same_value(term: expr.Term, versions: Versions) -> Any:
    """A key that is equal for expressions that have the same value.

    >>> x = expr.col("x")
    >>> same_value((x + 1).term, {}) == same_value((x + 1).term, {})
    True
    >>> same_value((x + 1).term, {}) == same_value((x + 1.0).term, {})
    False
    """
    match term:
        case expr.Col():
            return ("column", term.name, versions.get(term.name, 0))
        case expr.Literal():
            return ("literal", _exactly(term.value))
        case expr.RowId():
            return ("row id",)
        case expr.Call():
            args = tuple(same_value(arg, versions) for arg in term.args)
            return (term.op, args, _exactly(term.params), term.draw)


def _exactly(value: Any) -> Any:
    """A key that is equal for equal values of one type; other objects equal only themselves."""
    if isinstance(value, tuple):
        return ("tuple", tuple(_exactly(item) for item in value))
    if is_dataclass(value) and not isinstance(value, type):  # a vocabulary, a tokenizer, a table
        parts = tuple(_exactly(getattr(value, field.name)) for field in fields(value))
        return (type(value), parts)
    if isinstance(value, bool | int | float | str | bytes | type(None)):
        return (type(value).__name__, repr(value))
    return ("object", id(value))


def looks_ahead(call: expr.Call) -> bool:
    """Whether a call does less work if it knows what follows, so that it cannot be shared."""
    given = dict(call.params)
    return call.op == "image.decode" and bool(given.get("shrink") or given.get("partial"))
