"""`calibrate`: a pipeline with a cascade gets the threshold that rows with known answers support.

The rows are answered twice, by the small model alone and by the large model alone. What a row loses
is how much less the metric gives for the small answer; where it gives more, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.choice import resolve
from silva.plan.expr import Call, Later, Term, rebuild, walk
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.node import walk as nodes
from silva.serve.cascade import OP, Calibration, Threshold, calibrate, make
from silva.serve.search.evaluation import answer_all
from silva.serve.search.metrics import Metric, metric_of

Rows = Sequence[Mapping[str, Any]]
_SURE = "cascade accept"
"""The column of how sure the small model is, which no name of a user's collides with."""


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
    answers = answer_all(plan, dev)
    pairs = zip(dev, answers, strict=True)
    return np.array([0.0 if a is None else metric({**row, **a}) for row, a in pairs])


def _sure(step: Derive | Filter, accept: Term, dev: Rows) -> np.ndarray:
    """How sure the small model is of each row; not a number for a row that does not get there."""
    answers = answer_all(Derive(step.input, accept, (_SURE,), _SURE), dev)
    values = [None if answer is None else answer[_SURE] for answer in answers]
    return np.array([np.nan if value is None else float(value) for value in values])
