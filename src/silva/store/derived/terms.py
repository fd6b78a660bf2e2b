"""Expressions as JSON: data that names operators, and nothing that could be run.

A term becomes a list of its parts, arguments first, each referring to earlier ones by number, so
that a shared part stays one. An expression that JSON cannot hold exactly (with a tokenizer, or an
object of the user's) is not stored, like a function.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from silva.columns.padding import bytes_of
from silva.errors import TableError
from silva.plan.expr import Call, Col, Literal, RowId, Term, walk
from silva.plan.operator import is_built_in, operator

Json = Any
_LARGEST = 1 << 63
_MOST_PARTS = 1 << 14
"""The most parts of a term, counting shared ones each time: a few dozen shared parts could take
forever to walk."""


class NotDataError(Exception):
    """The expression holds something that is not data."""


def encode_term(term: Term) -> list[Json] | None:
    """The term as JSON; None where JSON cannot hold it.

    >>> from silva.plan.expr import col
    >>> encode_term((col("x") > 30).term)
    [['col', 'x'], ['literal', 30], ['call', 'greater', [0, 1], []]]
    """
    numbers: dict[int, int] = {}
    parts: list[Json] = []
    try:
        for part in walk(term):
            if id(part) not in numbers:
                numbers[id(part)] = len(parts)
                parts.append(_encode(part, numbers))
    except NotDataError:
        return None
    return parts


def _encode(part: Term, numbers: dict[int, int]) -> Json:
    match part:
        case Col():
            return ["col", part.name]
        case Literal():
            return ["literal", encode_value(part.value)]
        case RowId():
            return ["row"]
        case Call():
            if not is_built_in(operator(part.op)):
                raise NotDataError(part.op)
            params = [[name, encode_value(value)] for name, value in part.params]
            return ["call", part.op, [numbers[id(arg)] for arg in part.args], params]
    raise NotDataError(part)


def encode_value(value: Any) -> Json:
    """Strings, numbers, booleans and null as they are; anything else with its type."""
    if value is None or isinstance(value, bool) or type(value) is str:
        return value
    if type(value) is int and -_LARGEST <= value < _LARGEST:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if type(value) in (tuple, list):
        return {type(value).__name__: [encode_value(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[encode_value(k), encode_value(v)] for k, v in value.items()]}
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in "biuf":
        data = base64.b64encode(bytes_of(np.ascontiguousarray(value))).decode()
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [value.dtype.str, list(value.shape), data]}
    raise NotDataError(type(value).__name__)


def decode_term(parts: Json) -> Term:
    """The term that was encoded; raises TableError for anything that `encode_term` cannot return.

    >>> decode_term([["col", "x"], ["literal", 30], ["call", "greater", [0, 1], []]])
    Call(op='greater', args=(Col(name='x'), Literal(value=30)), params=())
    """
    made: list[Term] = []
    sizes: list[int] = []
    try:
        for part in parts:
            sizes.append(_size(part, sizes))
            made.append(_decode(part, made))
        return made[-1]
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise TableError(f"this is not an expression of silva: {error!r}") from error


def _decode(part: Json, made: list[Term]) -> Term:
    match part:
        case ["col", str(name)]:
            return Col(name)
        case ["literal", value]:
            return Literal(decode_value(value))
        case ["row"]:
            return RowId()
        case ["call", str(op), list(args), list(params)]:
            if not is_built_in(operator(op)):
                raise ValueError(f"{op!r} is not an operator of silva")
            terms = tuple(made[_index(arg, len(made))] for arg in args)
            return Call(op, terms, tuple((str(n), decode_value(v)) for n, v in params))
    raise ValueError(f"{part!r:.80}")


def _size(part: Json, sizes: list[int]) -> int:
    below = part[2] if part[0] == "call" else ()
    size = 1 + sum(sizes[_index(number, len(sizes))] for number in below)
    if size > _MOST_PARTS:
        raise ValueError(f"it has over {_MOST_PARTS} parts")
    return size


def _index(number: Json, below: int) -> int:
    if type(number) is not int or not 0 <= number < below:
        raise ValueError(f"there is no part {number!r}")
    return number


def decode_value(value: Json) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case {"float": ("inf" | "-inf" | "nan") as text, **rest} if not rest:
            return float(text)
        case {"bytes": str(text), **rest} if not rest:
            return base64.b64decode(text, validate=True)
        case {"tuple": list(items), **rest} if not rest:
            return tuple(decode_value(item) for item in items)
        case {"list": list(items), **rest} if not rest:
            return [decode_value(item) for item in items]
        case {"dict": list(items), **rest} if not rest:
            return {decode_value(k): decode_value(v) for k, v in items}
        case {"scalar": [str(kind), [], str(text)], **rest} if not rest:
            return _array(kind, [], text)[()]
        case {"array": [str(kind), list(shape), str(text)], **rest} if not rest:
            return _array(kind, shape, text)
    raise ValueError(f"{value!r:.80}")


def _array(kind: str, shape: list[int], text: str) -> np.ndarray:
    dtype = np.dtype(kind)
    if dtype.kind not in "biuf":
        raise ValueError(f"{kind!r} is not a type of numbers")
    return np.frombuffer(base64.b64decode(text, validate=True), dtype).reshape(shape).copy()
