"""What a cache was predicted to save, beside what it saved.

Only whole epochs that ran with the same plan as the epoch before are measured, and only while that
plan has a cache: the epoch that fills the cache proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from silva.cost.experiment import Experiment, Progress
from silva.plan.decision import Decision
from silva.plan.node import Node
from silva.run.placement.lane import Lane


class Epochs:
    """Adds up the work of epochs, for the plan that they ran with."""

    def __init__(self, lanes: Mapping[str, Lane], workers: int) -> None:
        self._lanes, self._width = lanes, max(workers, 1)
        self._mark: float | None = None
        self._whole = False
        self._begun: Node | None = None
        self._before: Node | None = None
        """The plan of the previous epoch, if all of it ran with one plan."""
        self._cached: Node | None = None
        """The plan with a cache."""
        self._rows = 0
        self._done = Progress()
        """The rows and the seconds of work of all whole epochs that read the full cache."""
        self.experiment: Experiment[str] | None = None
        """Compares the plan with a cache with the one without it; None without a cache."""

    def work(self) -> float:
        """Seconds so far, as the search counts them: those of the steps, divided by the workers,
        and those of the cache, on the consumer's thread."""
        stats = [lane.stats for lane in self._lanes.values()]
        return sum(s.worked for s in stats) / self._width + sum(s.keeping for s in stats)

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
        if same and self.experiment is not None and plan == self._before == self._cached:
            rows, seconds = self._done.rows + self._rows, self._done.seconds + spent
            self._done = Progress(rows, seconds, waited=seconds)
            self.experiment.measure(self._done)
        self._before = plan if same else None

    def promise(self, plan: Node, choices: Iterable[Decision], rows: int) -> None:
        """Records the prediction for a plan of so many rows when it is chosen, and later what an
        epoch without the cache would cost by the latest measurements."""
        caches = [choice for choice in choices if choice.what == "cache"]
        if len(caches) != 1 or caches[0].predicted is None or caches[0].default is None:
            self.experiment = self._cached = None
            return
        cached, steps = caches[0].predicted.value, caches[0].default.value
        if self.experiment is None or self._cached != plan:
            self._cached, self._rows, self._done = plan, rows, Progress()
            self.experiment = Experiment("steps", steps, {"cache": cached}, "cache", Progress())
        self.experiment.seen["steps"] = steps
