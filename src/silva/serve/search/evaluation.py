"""`evaluate`: a metric over rows with known answers, with an interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan import node as logical
from silva.serve.engine import Engine
from silva.serve.requests import ID, source_of
from silva.serve.search.metrics import Metric, metric_of

_DRAWS = 2000
"""Samples of a bootstrap: the ends of a 95 % interval then move by less than a tenth of its
width."""
_AT_ONCE = 512
"""Rows in flight: enough for the largest batches."""
_DEADLINE = 3600.0
"""Seconds that one row may take."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Interval:
    """An estimate between two ends that hold the true value in 95 % of samples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


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
        return bootstrap(self.scores)

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
    scores = np.array(
        [_score(chosen, row, answer) for row, answer in zip(rows, answers, strict=True)]
    )
    return Evaluation(chosen.name, scores, sum(one is None for one in answers), tuple(answers))


def answer_all(plan: logical.Node, rows: Rows) -> list[dict[str, Any] | None]:
    """The answer to each row; None for one that failed or was dropped."""
    names = source_of(plan).names
    asked = [_request(names, row, number) for number, row in enumerate(rows)]
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


def _request(names: Sequence[str], row: Mapping[str, Any], number: int) -> dict[str, Any]:
    if ID in names and ID not in row:
        row = {**row, ID: number}
    missing = [name for name in names if name not in row]
    if missing:
        raise PlanError(f"row {number} has no {missing[0]!r}, which a request has")
    return {name: row[name] for name in names}


def _score(metric: Metric, row: Mapping[str, Any], answer: Mapping[str, Any] | None) -> float:
    return 0.0 if answer is None else metric({**row, **answer})


def bootstrap(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray] | None = None
) -> Interval:
    """The mean of a sample with the 95 % interval of a bootstrap, which draws the same way every
    time.

    >>> bootstrap(np.array([0.0, 1.0] * 50)).value
    0.5
    """
    rng = np.random.default_rng(0)
    of = (lambda drawn: drawn.mean(axis=-1)) if statistic is None else statistic
    picked = values[rng.integers(0, len(values), (_DRAWS, len(values)))]
    low, high = np.quantile(of(picked), (0.025, 0.975))
    return Interval(float(of(values[None])[0]), float(low), float(high))
