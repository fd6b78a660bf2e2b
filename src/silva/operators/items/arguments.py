"""The arguments of the operators, checked as they are written; the same for numbers and lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from silva.errors import PlanError
from silva.operators.arguments import flag, integer, is_array

Number = int | float
Side = Literal["left", "right"]
Params = dict[str, Any]

_MOST_BUCKETS = 1 << 32
_MOST_INT = (1 << 63) - 1
_MOST_FLOAT = 1.7976931348623157e308


def hash_params(buckets: int, seed: int) -> Params:
    buckets = integer("buckets", buckets, 1)
    if buckets > _MOST_BUCKETS:
        raise PlanError(f"buckets is at most 2**32, not {buckets}")
    return {"buckets": buckets, "seed": integer("seed", seed, 0)}


def modulo_params(n: int) -> Params:
    n = integer("n", n, 1)
    if n > _MOST_INT:
        raise PlanError(f"n is at most 2**63 - 1, not {n}")
    return {"n": n}


def clip_params(low: Number | None, high: Number | None) -> Params:
    low = None if low is None else number("low", low)
    high = None if high is None else number("high", high)
    if low is None and high is None:
        raise PlanError("clip needs a lower bound, an upper bound, or both")
    if low is not None and high is not None and low > high:
        raise PlanError(f"clip keeps numbers from low to high, but {low} is above {high}")
    return {"low": low, "high": high}


def bucketize_params(boundaries: Sequence[Number], right: bool) -> Params:
    flag("right", right)
    several = hasattr(boundaries, "__len__") and getattr(boundaries, "ndim", 1) != 0
    if isinstance(boundaries, str) or not several or not len(boundaries):
        raise PlanError(f"boundaries is a sequence of numbers, not {boundaries!r}")
    edges = tuple(number("a boundary", x) for x in boundaries)
    for a, b in pairwise(edges):
        if a >= b:
            raise PlanError(f"boundaries must increase, but {b} comes after {a}")
    return {"boundaries": edges, "right": right}


def fill_null_params(value: Any, nan: bool) -> Params:
    flag("nan", nan)
    if value is None or not isinstance(scalar(value), bool | int | float | str):
        raise PlanError(f"fill_null puts a number or a text in place of nulls, not {value!r}")
    return {"value": scalar(value), "nan": nan}


def number(name: str, value: Any) -> Number:
    """A finite number; whole ones stay whole, so that they do not turn a column into floats."""
    found = scalar(value)
    wrong = isinstance(found, bool) or not isinstance(found, int | float)
    if wrong or not -math.inf < found < math.inf or abs(found) > _MOST_FLOAT:
        raise PlanError(f"{name} is a finite number, not {value!r}")
    return found  # type: ignore[no-any-return]


def side(value: Any) -> Side:
    if is_array(value) or value not in ("left", "right"):
        raise PlanError(f"side is 'left' or 'right', not {value!r}")
    chosen: Side = value
    return chosen


def scalar(value: Any) -> Any:
    """A numpy number as Python's; anything else as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
