"""`calibrate`: the threshold of a cascade that rows with known answers support.

The rows are answered twice, by the small model alone and by the large model alone. What a row loses
is how much less the metric gives for the small answer; where it gives more, nothing is lost. The
chance that a threshold loses more than `epsilon` on average is at most `delta`.

Why the promise holds although the threshold is chosen by the same rows: let R(t) be the mean loss
of the threshold t, which falls as t grows, and t* the largest threshold with R(t*) ≥ ε. A threshold
t that breaks the promise lies at t* or below, so it keeps all the small answers that t* keeps, and
its total loss on the rows is no less. It is chosen only if that total is so small that the test
rejects "the mean is ε or more"; the test then rejects it for t* too. But t* does not depend on the
rows, so this happens with a probability of at most δ. No correction for many thresholds is needed,
and any number of them may be tried: testing from strict to loose, the first that fails is the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.arguments import explains
from silva.plan.choice import resolve
from silva.plan.expr import Call, Later, Term, rebuild, walk
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.node import walk as nodes
from silva.serve.cascade import OP, Calibration, Threshold, make, sureness
from silva.serve.search.bounds import check_risk, most_claims
from silva.serve.search.evaluation import answer_all
from silva.serve.search.metrics import Metric, metric_of

Rows = Sequence[Mapping[str, Any]]
_SURE = "cascade accept"
"""The column of how sure the small model is, which no name of a user's collides with."""


@explains
def calibrate(
    sure: Sequence[float] | np.ndarray,
    losses: Sequence[float] | np.ndarray,
    *,
    epsilon: float,
    delta: float,
) -> Calibration:
    """The loosest threshold whose loss is shown to be below `epsilon`.

    `sure`: how sure the small model is of each row; where it is not a number, its answer is never
    kept. `losses`: what is lost there if its answer is kept, between 0 and 1. Refuses where so few
    rows could not show it whatever they held.

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
    count = len(sure)
    check_risk(epsilon, delta, count)
    # if other losses are possible and did not occur, the binomial test counts rows with any loss
    binary = bool(np.isin(losses, (0.0, 1.0)).all())
    order = np.argsort(-sure, kind="stable")
    order = order[sure[order] > -np.inf]
    strict_first = sure[order]
    totals = np.cumsum(losses[order].astype(int) if binary else losses[order])
    thresholds = np.isfinite(strict_first)
    thresholds[:-1] &= strict_first[1:] != strict_first[:-1]  # equal rows are kept together
    ends = np.flatnonzero(thresholds)
    held = most_claims(totals[ends], count, epsilon, delta)
    test = "exact binomial test" if binary else "Hoeffding–Bentkus bound"
    if not held:
        return Calibration(None, 0.0, 0.0, epsilon, delta, count, test)
    last = int(ends[held - 1])
    threshold, lost = float(strict_first[last]), float(totals[last])
    kept = (last + 1) / count
    return Calibration(threshold, kept, lost / count, epsilon, delta, count, test)


def calibrated(
    plan: Node, dev: Rows, metric: Any, *, epsilon: float, delta: float, column: str | None
) -> Node:
    """The plan with a threshold in its cascade; `column` says which one, if there are several."""
    plan, chosen = resolve(plan), metric_of(metric)
    step, call = _cascade_of(plan, column)
    small, accept, later = call.args
    assert isinstance(later, Later)
    only_small = _scores(_with(plan, call, small), dev, chosen)
    only_large = _scores(_with(plan, call, later.term), dev, chosen)
    if ((only_small < 0) | (only_small > 1) | (only_large < 0) | (only_large > 1)).any():
        raise PlanError(f"calibrate takes a metric between 0 and 1, which {chosen.name} is not")
    lost = np.maximum(only_large - only_small, 0.0)
    found = calibrate(_sure(step, accept, dev), lost, epsilon=epsilon, delta=delta)
    threshold = Threshold(found.threshold, found)
    return _with(plan, call, make(small, accept, later.term, threshold).term)


def calibrations(plan: Node) -> list[Calibration]:
    """What the cascades of a plan promise, in the order written."""
    found = [dict(call.params)["threshold"].calibration for _, call in _cascades(plan)]
    return [one for one in found if one is not None]


def _cascades(plan: Node) -> list[tuple[Derive | Filter, Call]]:
    steps = [node for node in nodes(plan) if isinstance(node, Derive | Filter)]
    return [
        (node, part)
        for node in steps
        if isinstance(node.step, Call)
        for part in walk(node.step)
        if isinstance(part, Call) and part.op == OP
    ]


def _cascade_of(plan: Node, column: str | None) -> tuple[Derive | Filter, Call]:
    """The cascade to calibrate, and its step."""
    every = _cascades(plan)
    if not every:
        raise PlanError("calibrate needs a pipeline with sv.cascade(small, large, accept=…)")
    found = [one for one in every if column is None or column in one[0].writes]
    if len(found) == 1:
        return found[0]
    names = ", ".join(name for step, _ in every for name in step.writes)
    if column is None:
        raise PlanError(
            f"this pipeline has {len(every)} cascades ({names}): calibrate them one by one, "
            "calibrate(…, column='…')"
        )
    raise PlanError(
        f"calibrate(column={column!r}): {'several cascades' if found else 'no cascade'} in that "
        f"step; there are cascades in {names}"
    )


def _with(plan: Node, call: Call, term: Term) -> Node:
    """The plan with another term in place of a cascade."""

    def settled(node: Node) -> Node:
        if isinstance(node, Derive | Filter) and isinstance(node.step, Call):
            return replace(node, step=rebuild(node.step, lambda p: term if p is call else p))
        return node

    return transform(plan, settled)


def _scores(plan: Node, dev: Rows, metric: Metric) -> np.ndarray:
    """The metric of each row; 0 for a row without an answer."""
    return metric.scores(dev, answer_all(plan, dev))


def _sure(step: Derive | Filter, accept: Term, dev: Rows) -> np.ndarray:
    """How sure the small model is of each row; not a number for a row that does not get there."""
    answers = answer_all(Derive(step.input, accept, (_SURE,), _SURE), dev)
    return np.array([np.nan if answer is None else sureness(answer[_SURE]) for answer in answers])
