"""Small words in which laws of operators are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from silva.plan.expr import Call, Term
from silva.plan.operator import has_fact


def inner(call: Call, *names: str) -> Call | None:
    """The argument of a call, if it is itself a call of one of these operators."""
    first = call.args[0] if call.args else None
    return first if isinstance(first, Call) and first.op in names else None


def inner_that(call: Call, fact: str) -> Call | None:
    """The argument of a call, if it is itself a call of an operator that declares this fact."""
    first = call.args[0] if call.args else None
    return first if isinstance(first, Call) and has_fact(first.op, fact) else None


def on(call: Call, first: Term) -> Call:
    """The same call, with the same draws, applied to another argument."""
    return replace(call, args=(first, *call.args[1:]))


def swapped(outer: Call, within: Call) -> Call:
    """`outer(within(x))` as `within(outer(x))`."""
    return on(within, on(outer, within.args[0]))


def param(call: Call, name: str) -> Any:
    """The value of a parameter; None where the call does not have it."""
    return dict(call.params).get(name)


def with_params(call: Call, **values: Any) -> Call:
    """The call with some parameters replaced or added."""
    params = dict(call.params) | values
    return replace(call, params=tuple(params.items()))
