"""The configurations of a pipeline in a race: what they answer, what that costs, and which
constraints they keep."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.serve.search.bounds import tail
from silva.serve.search.intervals import AMOUNT, mean_interval
from silva.serve.search.metrics import Metric
from silva.serve.search.tuning.constraints import Amount, Budget, Constraint
from silva.serve.search.tuning.paired import log_evidence
from silva.serve.search.tuning.racing import FIRST, GAIN
from silva.serve.search.tuning.sharing import Shared

_TAIL = 0.05
"""The share of requests that may take more than a constraint on the 95th percentile."""
_SURE = 0.025
"""The chance of calling a cost no higher that is."""


@dataclass(eq=False)
class Spending:
    """What the requests of one configuration have cost."""

    latency: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Seconds of each row that was run alone, and NaN for the others."""
    money: np.ndarray = field(default_factory=lambda: np.empty(0))
    tokens: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def known_latency(self) -> np.ndarray:
        known: np.ndarray = self.latency[~np.isnan(self.latency)]
        return known

    def of(self, amount: Amount) -> np.ndarray:
        """What requests have taken, as far as that is known."""
        if amount == "latency":
            return self.known_latency
        return self.money if amount == "cost" else self.tokens


@dataclass(eq=False)
class Configurations:
    """A contest of the configurations of one pipeline."""

    shared: Shared
    metrics: Sequence[Metric]
    every: Sequence[Mapping[str, Any]]
    constraints: Sequence[Constraint] = ()
    delta: float = 0.05
    """The chance that any claim about a constraint is wrong."""
    budget: Budget | None = None
    spending: list[Spending] = field(init=False)

    def __post_init__(self) -> None:
        self.spending = [Spending() for _ in self.every]
        self._began = time.monotonic()
        # the latencies of all rows where a constraint is to be shown, else those of the first ones
        is_timed = any(one.quantity.amount == "latency" for one in self.constraints)
        self.shared.alone = len(self.shared.rows) if is_timed else FIRST

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        made = self.shared.run(self.every[candidate], rows)
        mine = self.spending[candidate]
        mine.latency = np.concatenate([mine.latency, made.latency])
        mine.money = np.concatenate([mine.money, made.money])
        mine.tokens = np.concatenate([mine.tokens, made.tokens])
        asked = [self.shared.rows[n] for n in rows]
        return np.stack([self._scores(one, asked, made.answers) for one in self.metrics], axis=1)

    def _scores(
        self, metric: Metric, rows: Sequence[Mapping[str, Any]], answers: Sequence[Any]
    ) -> np.ndarray:
        scores = metric.scores(rows, answers)
        outside = scores[(scores < 0) | (scores > 1)]
        if len(outside):
            raise PlanError(
                f"tune takes a metric between 0 and 1, and {metric.name} gave {outside[0]:g}: "
                "divide by the largest possible score"
            )
        return scores

    def costs(self, candidate: int) -> np.ndarray:
        """The seconds that half of the requests take at most, and the mean money."""
        mine = self.spending[candidate]
        known = mine.known_latency
        seconds = float(np.median(known)) if len(known) else math.nan
        return np.array([seconds, mine.money.mean()])

    def costs_no_more(self, candidate: int, other: int) -> bool:
        """Whether it is shown to take no longer in half of the requests, and no more money."""
        one, two = self.spending[candidate], self.spending[other]
        count = min(len(one.latency), len(two.latency))
        slower = one.latency[:count] > GAIN * two.latency[:count]
        known = int((~np.isnan(one.latency[:count] + two.latency[:count])).sum())
        if not known or tail(int(slower.sum()), known, 0.5, binary=True) > _SURE:
            return False
        return bool(one.money.mean() <= GAIN * two.money.mean())

    def meets(self, candidate: int) -> bool:
        return all(self._keeps(candidate, one) for one in self.constraints)

    def misses(self, candidate: int) -> str | None:
        broken = (one for one in self.constraints if self._excess(candidate, one) >= self._needed)
        return next((one.above() for one in broken), None)

    def seems_to_miss(self, candidate: int) -> str | None:
        for one in self.constraints:
            found = self.spending[candidate].of(one.quantity.amount)
            if not len(found):
                return "not timed"
            is_mean = one.quantity.statistic == "mean"
            if found.mean() > one.most if is_mean else (found > one.most).mean() > _TAIL:
                return f"{one.above()} in these rows"
        return None

    def spent(self) -> float:
        if self.budget is None:
            return 0.0
        return self.budget.spent(time.monotonic() - self._began, self.shared.ran.total())

    @property
    def _needed(self) -> float:
        """The evidence for a claim about any constraint of any configuration."""
        return math.log(len(self.every) * max(len(self.constraints), 1) / self.delta)

    def _keeps(self, candidate: int, constraint: Constraint) -> bool:
        """Whether a constraint is shown to be kept. Of a mean, whose largest value nobody knows, no
        evidence is enough at every look: it is measured."""
        found = self.spending[candidate].of(constraint.quantity.amount)
        if constraint.quantity.statistic == "mean":
            return mean_interval(found, AMOUNT).high <= constraint.most
        return self._evidence((_TAIL - (found > constraint.most)) / (1 - _TAIL)) >= self._needed

    def _excess(self, candidate: int, constraint: Constraint) -> float:
        """The evidence that a constraint is broken."""
        found = self.spending[candidate].of(constraint.quantity.amount)
        if constraint.quantity.statistic == "mean":
            return self._evidence(found / constraint.most - 1)
        return self._evidence((found > constraint.most) / _TAIL - 1)

    @staticmethod
    def _evidence(won: np.ndarray) -> float:
        return float(log_evidence(won)) if len(won) else -math.inf
