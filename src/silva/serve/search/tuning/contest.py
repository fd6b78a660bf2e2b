"""The configurations of a pipeline in a race: what they answer, what that costs, and which bounds
they keep."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.serve.search.bounds import tail
from silva.serve.search.intervals import bootstrap
from silva.serve.search.metrics import Metric
from silva.serve.search.tuning.paired import log_evidence
from silva.serve.search.tuning.racing import FIRST, GAIN
from silva.serve.search.tuning.sharing import Shared

_TAIL = 0.05
"""The share of requests that may take longer than a bound on the 95th percentile."""
_SURE = 0.025
"""The chance of calling a cost no higher that is."""


@dataclass(frozen=True)
class Bounds:
    """What a request may take. None is no bound."""

    p95: float | None = None
    """Seconds, in 95 % of requests."""
    cost: float | None = None
    """Money, on average."""
    delta: float = 0.05
    """The chance that any claim about the latency of any configuration is wrong."""


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


@dataclass(eq=False)
class Configurations:
    """A contest of the configurations of one pipeline."""

    shared: Shared
    metric: Metric
    every: Sequence[Mapping[str, Any]]
    bounds: Bounds
    by_time: bool
    """Whether the budget counts seconds, and not executions."""
    spending: list[Spending] = field(init=False)

    def __post_init__(self) -> None:
        self.spending = [Spending() for _ in self.every]
        self._began = time.monotonic()
        # the latencies of all rows where a bound is to be shown, else those of the first ones
        self.shared.alone = len(self.shared.rows) if self.bounds.p95 is not None else FIRST

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        made = self.shared.run(self.every[candidate], rows)
        mine = self.spending[candidate]
        mine.latency = np.concatenate([mine.latency, made.latency])
        mine.money = np.concatenate([mine.money, made.money])
        mine.tokens = np.concatenate([mine.tokens, made.tokens])
        scores = self.metric.scores([self.shared.rows[n] for n in rows], made.answers)
        if ((scores < 0) | (scores > 1)).any():
            raise PlanError(
                f"tune takes a metric between 0 and 1, and {self.metric.name} gave "
                f"{scores[(scores < 0) | (scores > 1)][0]:g}: divide by the largest possible score"
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
        if self.bounds.p95 is not None and self._evidence(candidate, -1) < self._needed:
            return False
        cost = self.bounds.cost
        return cost is None or bootstrap(self.spending[candidate].money).high <= cost

    def misses(self, candidate: int) -> str | None:
        bounds, mine = self.bounds, self.spending[candidate]
        if bounds.p95 is not None and self._evidence(candidate, 1) >= self._needed:
            return f"p95 is above {bounds.p95:g} s"
        if bounds.cost is not None and bootstrap(mine.money).low > bounds.cost:
            return f"a request costs {mine.money.mean():.3g}, which is above {bounds.cost:g}"
        return None

    def seems_to_miss(self, candidate: int) -> str | None:
        bounds, mine = self.bounds, self.spending[candidate]
        late = self._late(candidate)
        if bounds.p95 is not None and (not len(late) or late.mean() > _TAIL):
            return f"p95 is above {bounds.p95:g} s in these rows" if len(late) else "not timed"
        if bounds.cost is not None and mine.money.mean() > bounds.cost:
            return f"a request costs {mine.money.mean():.3g} in these rows"
        return None

    def spent(self) -> float:
        return time.monotonic() - self._began if self.by_time else self.shared.ran.total()

    @property
    def _needed(self) -> float:
        """The evidence for a claim about the latency of any configuration."""
        return math.log(len(self.every) / self.bounds.delta)

    def _late(self, candidate: int) -> np.ndarray:
        return self.spending[candidate].known_latency > (self.bounds.p95 or math.inf)

    def _evidence(self, candidate: int, side: int) -> float:
        """That more (1) or less (-1) than 5 % of the requests take longer than the bound."""
        late = self._late(candidate)
        return float(log_evidence(side * (late - _TAIL) / (1 - _TAIL))) if len(late) else -math.inf
