"""A cascade: a small model answers what it is sure of, a large one the rest, within a bound.

    answer = sv.cascade(small, large, accept="margin")

`accept` says how sure the small answer is; rows where that is at least the threshold keep it. The
threshold is calibrated on rows with known answers, so that the chance of losing more than `epsilon`
of the quality is at most `delta`. Thresholds are tested from strict to loose, and each only if all
before it held, so trying many costs no confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Column, concat
from silva.errors import PlanError
from silva.operators.declare import column_operator
from silva.order.draws import Draw
from silva.plan.arguments import number
from silva.plan.choice import chooses
from silva.plan.expr import Call, Expr, Later
from silva.plan.operator import RowErrors
from silva.serve.search.bounds import check_risk, p_value, strictest_first

OP = "cascade.choose"
_THRESHOLDS = 100
"""Thresholds that are tested at most: quantiles of how sure the small model is."""


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
            raise PlanError(f"cascade({name}=…) is an expression, not {given!r}")
    chosen = None if threshold is None else number("cascade(threshold=…)", threshold)
    args = (small.term, accept.term, Later("large", large.term))
    return Expr(Call(OP, args, (("threshold", chosen),)))


@column_operator(OP, by_row=True)
def choose(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    (small, sure), threshold = columns, params["threshold"]
    values = np.array([np.nan if v is None else float(v) for v in sure.rows()])
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

    def __str__(self) -> str:
        claim = f"loses at most {self.epsilon:g} with a confidence of {1 - self.delta:.0%}"
        if self.threshold is None:
            return f"no threshold {claim} on {self.rows} rows: the large model answers every row"
        return (
            f"accept ≥ {self.threshold:.4g}: {claim}; avoids {self.avoided:.0%} of the large "
            f"model's calls, and lost {self.loss:.3f} on {self.rows} rows"
        )


def calibrate(
    sure: Sequence[float] | np.ndarray,
    losses: Sequence[float] | np.ndarray,
    *,
    epsilon: float,
    delta: float,
) -> Calibration:
    """The loosest threshold whose loss is shown to be below `epsilon`.

    `sure`: how sure the small model is of each row; `losses`: what is lost there if its answer is
    kept, between 0 and 1. Refuses where so few rows could not show it whatever they held.

    >>> rng = np.random.default_rng(0)
    >>> sure = rng.random(400)
    >>> wrong = (rng.random(400) > sure).astype(float)  # less sure, more often wrong
    >>> found = calibrate(sure, wrong, epsilon=0.1, delta=0.1)
    >>> 0.3 < found.avoided < 0.6
    True
    """
    sure, losses = np.asarray(sure, float), np.asarray(losses, float)
    if sure.shape != losses.shape or sure.ndim != 1:
        raise PlanError("calibrate takes one number of each kind per row")
    if len(losses) and not ((losses >= 0) & (losses <= 1)).all():
        raise PlanError("losses are between 0 and 1: divide by the largest possible one")
    check_risk(epsilon, delta, len(sure))
    shares = np.linspace(0, 1, _THRESHOLDS + 1)[1:]
    thresholds = np.unique(np.quantile(sure, 1 - shares))[::-1]  # strict to loose
    lost = [np.where(sure >= one, losses, 0.0) for one in thresholds]
    last = strictest_first([p_value(one, epsilon) for one in lost], delta)
    if last is None:
        return Calibration(None, 0.0, 0.0, epsilon, delta, len(sure))
    threshold = float(thresholds[last])
    avoided = float((sure >= threshold).mean())
    return Calibration(threshold, avoided, float(lost[last].mean()), epsilon, delta, len(sure))
