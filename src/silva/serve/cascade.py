"""A cascade: a small model answers what it is sure of, a large one the rest, within a bound.

    answer = sv.cascade(small, large, accept=margin)

`accept` says how sure the small answer is; rows where that is at least the threshold keep it. The
threshold is calibrated on rows with known answers (`search/calibration.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Column, concat
from silva.errors import PlanError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.arguments import number
from silva.plan.class_tags import tagged
from silva.plan.expr import Call, Expr, Later, Term
from silva.plan.open import chooses
from silva.plan.operator import RowErrors

OP = "cascade.choose"


@chooses
def cascade(small: Expr, large: Expr, *, accept: Expr, threshold: float | None = None) -> Expr:
    """The answer of `small` where `accept` is at least the threshold, else that of `large`.

    Without a threshold the large model answers every row: `calibrate` finds one.

    >>> import silva as sv
    >>> from silva.serve.cascade import cascade
    >>> rows = sv.from_columns({"x": [1, 5]})
    >>> both = cascade(sv.col("x") * 10, sv.col("x") * 100, accept=sv.col("x"), threshold=3)
    >>> [row["y"] for row in rows.derive(y=both)]
    [100, 50]
    """
    for name, given in (("small", small), ("large", large), ("accept", accept)):
        if not isinstance(given, Expr):
            raise PlanError(
                f"cascade({name}=…) is an expression, not {given!r}: what a model or a function "
                f"makes is one, derive({name}=…) and then sv.col({name!r})"
            )
    chosen = None if threshold is None else number("cascade(threshold=…)", threshold)
    return make(small.term, accept.term, large.term, Threshold(chosen))


def make(small: Term, accept: Term, large: Term, threshold: Threshold) -> Expr:
    """A cascade as an expression."""
    return Expr(Call(OP, (small, accept, Later("large", large)), (("threshold", threshold),)))


@column_operator(OP, by_row=True)
def choose(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    (small, sure), threshold = columns, params["threshold"].value
    values = np.array([sureness(value) for value in sure.rows()])
    keeps = np.zeros(len(values), bool) if threshold is None else values >= threshold
    kept, rest = np.flatnonzero(keeps), np.flatnonzero(~keeps)
    if not len(rest):
        return small
    try:
        large, errors = params["large"](rest), {}
    except RowErrors as found:
        large, errors = found.made, {int(rest[row]): one for row, one in found.errors.items()}
    joined = concat([small.take(kept), large]) if len(kept) else large
    made = joined.take(np.argsort(np.concatenate([kept, rest])))
    if errors:
        raise RowErrors(errors, made)
    return made


def sureness(value: Any) -> float:
    """How sure the small model is; not a number where it does not say."""
    is_number = isinstance(value, int | float | np.integer | np.floating | np.bool_)
    try:
        return float(value) if is_number else np.nan
    except OverflowError:
        return np.nan


@dataclass(frozen=True)
class Calibration:
    """A threshold, and what it promises."""

    threshold: float | None
    """None if no threshold can be promised: the large model answers every row."""
    avoided: float
    """The share of the calibration rows that the small model answers."""
    loss: float
    """The mean loss on the calibration rows."""
    epsilon: float
    delta: float
    rows: int
    test: str
    """How the promise was checked."""

    @property
    def promise(self) -> str:
        """What `explain()` says of it."""
        claim = f"loses at most {self.epsilon:g} with a confidence of {1 - self.delta:.0%}"
        if self.threshold is None:
            return f"no threshold {claim} on {self.rows} rows: the large model answers every row"
        return (
            f"accept ≥ {self.threshold:.4g} {claim}: on {self.rows} rows it avoids "
            f"{self.avoided:.0%} of the large model's calls and lost {self.loss:.3f} "
            f"(ε = {self.epsilon:g}, δ = {self.delta:g}, {self.test})"
        )

    def __str__(self) -> str:
        return self.promise


@tagged("Threshold", "value -")
@dataclass(frozen=True)
class Threshold:
    """The threshold of a cascade; None lets the large model answer every row."""

    value: float | None
    calibration: Calibration | None = None
    """Where it comes from; None if it was given."""

    def __repr__(self) -> str:
        return f"threshold={self.value!r}"

    @property
    def promise(self) -> str | None:
        return None if self.calibration is None else self.calibration.promise
