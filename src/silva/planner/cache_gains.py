"""The predicted and the measured gain of a cache, from the work of whole epochs.

The first epoch with a cache fills it. So only epochs are judged that follow a whole epoch with the
same plan: their work, including that of the cache itself, against the work of the steps without a
cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from silva.plan.node import Node
from silva.run.placement.lane import Lane

if TYPE_CHECKING:
    from silva.planner.choose import Choice


@dataclass(frozen=True)
class CacheGain:
    """How many times as fast an epoch is with the cache as without it."""

    predicted: float
    measured: float


class Epochs:
    """Adds up the work of epochs, for the plan that they ran with."""

    def __init__(self, lanes: Mapping[str, Lane], workers: int) -> None:
        self._lanes, self._width = lanes, max(workers, 1)
        self._mark: float | None = None
        self._whole = False
        self._begun: Node | None = None
        self._before: Node | None = None
        """The plan of the previous epoch, if all of it ran with one plan."""
        self._promise: tuple[Node, Choice] | None = None
        """The plan with a cache, and the prediction when it was chosen."""
        self._spent: list[float] = []
        """Seconds of work of each whole epoch that read the full cache."""

    def work(self) -> float:
        """Seconds so far, as the search counts them: those of the steps, divided by the workers,
        and those of the cache, on the consumer's thread."""
        stats = [lane.stats for lane in self._lanes.values()]
        return sum(s.busy for s in stats) / self._width + sum(s.keeping for s in stats)

    def begin(self, plan: Node, whole: bool) -> None:
        """Called when a loop begins; `whole` if at the start of an epoch."""
        self._begun, self._whole = plan, whole
        if self._mark is None:
            self._mark = self.work()

    def end(self, plan: Node, complete: bool) -> None:
        """Called when a loop ends. Work that the next epoch has begun counts for the next epoch."""
        now = self.work()
        spent, self._mark = now - (self._mark or 0.0), now
        same = complete and self._whole and plan == self._begun
        if same and plan == self._before and self._promise and plan == self._promise[0]:
            self._spent.append(spent)
        self._before = plan if same else None

    def promise(self, plan: Node, choices: Iterable[Choice]) -> None:
        """Records the prediction for a plan when it is chosen."""
        caches = [choice for choice in choices if choice.epoch is not None]
        if len(caches) != 1:
            self._promise = None
        elif self._promise is None or self._promise[0] != plan:
            self._promise, self._spent = (plan, caches[0]), []

    def gain(self, choices: Iterable[Choice]) -> CacheGain | None:
        """The predicted and measured gain; None if no epoch can be judged. `choices` are the
        current ones, with the latest measured cost of the steps."""
        known = [choice.epoch for choice in choices if choice.epoch is not None]
        if self._promise is None or not self._spent or len(known) != 1 or known[0] is None:
            return None
        predicted, now = self._promise[1].epoch, known[0]
        assert predicted is not None
        spent = sum(self._spent) / len(self._spent)
        return CacheGain(
            predicted.without / predicted.within, now.rows * now.without / max(spent, 1e-9)
        )
