"""`tune`: the configurations of a pipeline that are worth having, found by racing.

All configurations answer a first slice of the rows. What is clearly worse than another one in every
respect that counts is left out, by the paired differences of the rows both have answered; the rest
answers twice as many rows, until the rows or the budget are used up. What is left is the front: for
each of its configurations, nothing is both better and cheaper. Differences that the rows cannot
tell are said to be so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.plan.choice import configurations, resolve
from silva.plan.node import Node
from silva.serve.search.evaluation import Interval, bootstrap
from silva.serve.search.metrics import Metric, metric_of
from silva.serve.search.sharing import Row, Shared

_FIRST = 16
"""Rows of the first slice: a difference that is seen on fewer is seldom one."""
_GAIN = 1.1
"""How many times as fast a configuration must be to be worth a lower score: less is noise."""
_QUANTILE = 1.645
"""Standard errors by which a mean difference must lie above 0: in 5 % of comparisons, chance alone
takes it there."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One configuration with what was measured of it."""

    configuration: Mapping[str, Any]
    scores: np.ndarray
    seconds: np.ndarray
    why_not: str | None = None
    """Why it is not on the front; None if it is."""

    @property
    def score(self) -> Interval:
        return bootstrap(self.scores)

    @property
    def latency(self) -> Interval:
        """The 95th percentile of the seconds that a row takes."""
        return bootstrap(self.seconds, lambda drawn: np.quantile(drawn, 0.95, axis=-1))

    @property
    def cost(self) -> Interval:
        return bootstrap(self.seconds)


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of a search."""

    plan: Node
    metric: str
    candidates: tuple[Candidate, ...]
    """All configurations, the front first, the best score first."""
    executions: int
    """Rows that steps were run on."""
    exhaustive: int
    """Rows that they would have been run on without sharing and racing."""

    @property
    def front(self) -> tuple[Candidate, ...]:
        return tuple(one for one in self.candidates if one.why_not is None)

    @property
    def best(self) -> Any:
        """The pipeline of the best configuration; an ordinary pipeline without choices."""
        from silva.pipeline import Pipeline

        if not self.front:
            raise PlanError(
                "no configuration meets subject_to=: see candidates for how far each is"
            )
        return Pipeline(resolve(self.plan, self.front[0].configuration))

    @property
    def tied(self) -> tuple[Candidate, ...]:
        """Configurations of the front whose scores these rows cannot tell from the best one's."""
        front = self.front
        return tuple(one for one in front[1:] if not _clearly_less(one.scores, front[0].scores))

    def __str__(self) -> str:
        lines = [f"{self.metric}: {len(self.front)} of {len(self.candidates)} configurations"]
        for one in self.front:
            words = ", ".join(f"{name}={value!r}" for name, value in one.configuration.items())
            lines.append(f"  {one.score}  p95 {1e3 * one.latency.value:.3g} ms  {words}")
        if self.tied:
            lines.append(f"  these rows cannot tell the first from {len(self.tied)} others")
        share = self.executions / max(self.exhaustive, 1)
        lines.append(
            f"  steps ran on {self.executions:,} rows, {share:.0%} of an exhaustive search"
        )
        return "\n".join(lines)

    __repr__ = __str__


def tune(
    plan: Node,
    dev: Sequence[Row],
    maximize: Any,
    *,
    p95: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Tuned:
    """Searches all configurations. `p95` bounds the latency, `seconds` the search."""
    metric, rows, every = metric_of(maximize), list(dev), configurations(plan)
    if len(every) < 2:
        raise PlanError("tune needs a pipeline with choices: k=sv.choice(1, 3, 5)")
    order = np.random.default_rng(seed).permutation(len(rows))
    shared = Shared(plan, rows)
    scores: dict[int, np.ndarray] = {i: np.empty(0) for i in range(len(every))}
    spent: dict[int, np.ndarray] = {i: np.empty(0) for i in range(len(every))}
    racing, lost, done, slice_ = list(scores), dict[int, str](), 0, min(_FIRST, len(rows))
    until = None if seconds is None else time.monotonic() + seconds
    while done < len(rows) and (until is None or time.monotonic() < until):
        numbers = order[done : done + slice_].tolist()
        for i in racing:
            made = shared.run(every[i], numbers)
            fresh = [_score(metric, rows[n], a) for n, a in zip(numbers, made.answers, strict=True)]
            scores[i] = np.concatenate([scores[i], fresh])
            spent[i] = np.concatenate([spent[i], made.seconds])
        done += len(numbers)
        slice_ = min(done, len(rows) - done)
        lost.update(_dominated(racing, scores, spent, every))
        racing = [i for i in racing if i not in lost]
    steps = sum(shared.asked.values()) / max(sum(map(len, scores.values())), 1)
    found = [
        Candidate(every[i], scores[i], spent[i], lost.get(i) or _misses(spent[i], p95))
        for i in scores
    ]
    found = _front(found)
    return Tuned(
        plan,
        metric.name,
        tuple(found),
        sum(shared.ran.values()),
        round(steps * len(rows) * len(every)),
    )


def _dominated(
    racing: list[int],
    scores: Mapping[int, np.ndarray],
    spent: Mapping[int, np.ndarray],
    every: Sequence[Mapping[str, Any]],
) -> dict[int, str]:
    """Configurations that another one clearly beats in score, without taking longer."""
    found = {}
    for i in racing:
        for j in racing:
            if j in found or i == j or np.median(spent[j]) > np.median(spent[i]):
                continue
            if _clearly_less(scores[i], scores[j]):
                better = ", ".join(f"{n}={v!r}" for n, v in every[j].items() if every[i][n] != v)
                found[i] = f"{better} scores more and takes no longer"
                break
    return found


def _clearly_less(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether one scores less than another on the rows that both have answered, by the paired
    differences: their mean, and how far it would lie off by chance."""
    count = min(len(low), len(high))
    difference = high[:count] - low[:count]
    error = difference.std(ddof=1) / np.sqrt(count) if count > 1 else np.inf
    return bool(difference.mean() > _QUANTILE * error and difference.mean() > 0)


def _front(found: list[Candidate]) -> list[Candidate]:
    """The candidates with those first that no other one beats in score and time, by their means."""
    ordered = sorted(found, key=lambda one: (-one.scores.mean(), one.seconds.mean()))
    least, made = np.inf, []
    for one in ordered:
        if one.why_not is None and _GAIN * one.seconds.mean() >= least:
            made.append(
                Candidate(one.configuration, one.scores, one.seconds, "no better, and slower")
            )
            continue
        if one.why_not is None:
            least = one.seconds.mean()
        made.append(one)
    return sorted(made, key=lambda one: one.why_not is not None)


def _misses(seconds: np.ndarray, p95: float | None) -> str | None:
    found = float(np.quantile(seconds, 0.95)) if len(seconds) else 0.0
    return f"p95 is {found:.3g} s" if p95 is not None and found > p95 else None


def _score(metric: Metric, row: Row, answer: Row | None) -> float:
    return 0.0 if answer is None else metric({**row, **answer})
