"""`evaluate`: a metric over rows with known answers, with an interval."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan import node as logical
from silva.serve.engine.engine import Engine
from silva.serve.engine.interrupted import passing_on
from silva.serve.requests import source_of
from silva.serve.search.intervals import Interval, score_interval
from silva.serve.search.metrics import metric_of
from silva.serve.search.rows import check_answers_once, request_of

_AT_ONCE = 512
"""Rows in flight: enough for the largest batches."""
_DEADLINE = 3600.0
"""Seconds that one row may take."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of a pipeline on rows."""

    metric: str
    scores: np.ndarray
    """One for each row; a row without an answer counts as 0."""
    unanswered: int
    """Rows that failed, or that a filter dropped."""
    answers: tuple[Mapping[str, Any] | None, ...]

    @property
    def mean(self) -> Interval:
        return score_interval(self.scores)

    def __str__(self) -> str:
        left = f", {self.unanswered} without an answer" if self.unanswered else ""
        return f"{self.metric}: {self.mean} on {len(self.scores)} rows{left}"

    __repr__ = __str__


def evaluate(plan: logical.Node, dev: Rows, metric: Any) -> Evaluation:
    """Answers the rows and scores each. A row holds the columns of a request, and those that the
    metric compares with."""
    chosen = metric_of(metric)
    rows = list(dev)
    if not rows:
        raise PlanError("evaluate needs at least one row with a known answer")
    answers = answer_all(plan, rows)
    scores = chosen.scores(rows, answers)
    return Evaluation(chosen.name, scores, sum(one is None for one in answers), tuple(answers))


def answer_all(plan: logical.Node, rows: Rows) -> list[dict[str, Any] | None]:
    """The answer to each row; None for one that failed or was dropped."""
    names = source_of(plan).names
    check_answers_once(plan)
    asked = [request_of(names, row, number) for number, row in enumerate(rows)]
    with passing_on():
        return asyncio.run(_answer_all(plan, asked))


async def _answer_all(
    plan: logical.Node, asked: list[dict[str, Any]]
) -> list[dict[str, Any] | None]:
    engine = Engine(plan)
    places = asyncio.Semaphore(_AT_ONCE)

    async def answer(row: dict[str, Any]) -> dict[str, Any] | None:
        async with places:
            outcome = await engine.answer(row, deadline=_DEADLINE)
        return outcome.rows[0] if outcome.rows and not outcome.failures else None

    try:
        return await asyncio.gather(*map(answer, asked))
    finally:
        engine.close()
