"""Comparisons of a column with a number, which statistics of stored data can decide.

A condition is necessary: where statistics say that no row of a chunk can meet it, no row of the
chunk passes the filter it was taken from. What a filter asks beyond that stays in the filter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from silva.plan import expr

_MIRRORED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal", "equal": "equal",
}  # fmt: skip
_EXACT = 1 << 53
"""Beyond this number, an integer and its float may differ."""


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a number."""

    column: str
    op: str
    value: int | float

    def may_hold(self, least: object, most: object) -> bool:
        """Whether a number from `least` to `most` can meet it; True if that is unknown.

        >>> Condition("x", "greater", 5).may_hold(1, 5)
        False
        >>> Condition("x", "equal", 5).may_hold(1, 5)
        True
        """
        if not (_is_plain(least) and _is_plain(most) and _is_plain(self.value)):
            return True
        # for a column of float32, numpy rounds the number first
        with np.errstate(over="ignore"):
            rounded = float(np.float32(self.value))
        return any(self._holds(value, least, most) for value in (self.value, rounded))

    def _holds(self, value: float, least: float, most: float) -> bool:
        match self.op:
            case "less":
                return least < value
            case "less_equal":
                return least <= value
            case "greater":
                return most > value
            case "greater_equal":
                return most >= value
        return least <= value <= most


def conditions(term: expr.Term) -> tuple[Condition, ...]:
    """The conditions that a row must meet for `term` to be true.

    >>> conditions(((expr.col("x") > 3) & (expr.col("y") != 1) & (9 >= expr.col("z"))).term)
    ... # doctest: +NORMALIZE_WHITESPACE
    (Condition(column='x', op='greater', value=3),
     Condition(column='z', op='less_equal', value=9))
    """
    if not isinstance(term, expr.Call):
        return ()
    if term.op == "and":
        return tuple(found for arg in term.args for found in conditions(arg))
    if term.op not in _MIRRORED:
        return ()
    left, right = term.args
    if isinstance(left, expr.Col) and isinstance(right, expr.Literal):
        return _one(left.name, term.op, right.value)
    if isinstance(left, expr.Literal) and isinstance(right, expr.Col):
        return _one(right.name, _MIRRORED[term.op], left.value)
    return ()


def _one(column: str, op: str, value: object) -> tuple[Condition, ...]:
    return (Condition(column, op, value),) if _is_plain(value) else ()


def _is_plain(value: object) -> TypeGuard[int | float]:
    """A number that Python and numpy compare in the same way, whatever the column's type."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value == value and (isinstance(value, float) or abs(value) <= _EXACT)
