"""Laws of operators on numbers, and of those on the items of lists that mean the same."""

from __future__ import annotations

import math

from silva.operators.laws import inner, param, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import law

_MOST = 1 << 62
"""Bounds up to this fit into int64, also after a column of bools became one of whole numbers."""
_LEAST = 2.0**-24
"""The least float16 above 0: what is nearer to 0 may become it."""


@law(
    "clip_twice",
    "clip(a, b)(clip(c, d)(x)) = clip(max(a, c), min(b, d))(x)",
    "exact",
    fails=(
        "intervals that do not overlap: clip(0, 100) of clip(300, 400) fails on uint8, which "
        "clip(100, 100) does not; a side that only one has: numpy turns -0.0 into 0.0 where it "
        "clips one side, and keeps it where it clips both"
    ),
)
def clip_twice(call: Call) -> Term | None:
    first = inner(call, call.op)
    if call.op not in ("num.clip", "list.clip") or first is None:
        return None
    lows, highs = (tuple(param(c, name) for c in (first, call)) for name in ("low", "high"))
    bounds = [x for x in lows + highs if x is not None]
    if len({type(x) for x in bounds}) > 1 or not all(map(_is_safe, bounds)):
        return None
    if any(pair.count(None) == 1 for pair in (lows, highs)):
        return None
    low, high = (None if None in pair else best(pair) for best, pair in ((max, lows), (min, highs)))
    if low is not None and high is not None and low > high:
        return None
    return with_params(first, low=low, high=high)


def _is_safe(bound: float) -> bool:
    """Whether a bound fits into every type on the way, and rounds to -0.0 in no float type."""
    return abs(bound) <= _MOST and not (abs(bound) < _LEAST and math.copysign(1, bound) < 0)


@law(
    "modulo_twice",
    "modulo(n)(modulo(m)(x)) = modulo(n)(x), where n divides m",
    "exact",
    fails="n = 4, m = 6: 6 modulo 6 is 0, but 6 modulo 4 is 2",
)
def modulo_twice(call: Call) -> Term | None:
    first = inner(call, call.op)
    if call.op not in ("num.modulo", "list.modulo") or first is None:
        return None
    divides = param(first, "n") % param(call, "n") == 0
    return with_params(first, n=param(call, "n")) if divides else None


@law(
    "fill_null_twice",
    "fill_null(v)(fill_null(v)(x)) = fill_null(v)(x)",
    "exact",
    fails="another second value: fill_null(0.5) of fill_null(0) makes floats of whole numbers",
)
def fill_null_twice(call: Call) -> Term | None:
    first = inner(call, call.op)
    if call.op not in ("num.fill_null", "list.fill_null") or first is None:
        return None
    same = first.params == call.params and type(param(first, "value")) is type(param(call, "value"))
    return first if same else None
