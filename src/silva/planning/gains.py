"""What a cache was expected to save, beside what it saved: the work of whole epochs, compared.

The first epoch with a cache fills it. So what is judged are the epochs after one that ran whole
with the same plan: their work, and what keeping rows took, beside what the steps take where nothing
is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from silva.plan.node import Node
from silva.planning.choose import Choice
from silva.run.lane import Lane


@dataclass(frozen=True)
class CacheGain:
    """Times as fast as without the cache, for an epoch that is served from it."""

    predicted: float
    measured: float


class Epochs:
    """The work of each epoch, and of which plan it was."""

    def __init__(self, lanes: Mapping[str, Lane], workers: int) -> None:
        self._lanes, self._width = lanes, max(workers, 1)
        self._mark: float | None = None
        self._whole = False
        self._begun: Node | None = None
        self._before: Node | None = None
        """The plan of the epoch before, if that ran whole with one."""
        self._promise: tuple[Node, Choice] | None = None
        """The plan with a cache, and what was said of it when it was chosen."""
        self._spent: list[float] = []
        """Seconds of each whole epoch that was served from it."""

    def work(self) -> float:
        """Seconds so far, as the search counts them: of the steps, shared by the workers, and of
        keeping rows, on the consumer's thread."""
        stats = [lane.stats for lane in self._lanes.values()]
        return sum(s.busy for s in stats) / self._width + sum(s.keeping for s in stats)

    def begin(self, plan: Node, whole: bool) -> None:
        """An epoch begins; `whole`: at its start."""
        self._begun, self._whole = plan, whole
        if self._mark is None:
            self._mark = self.work()

    def end(self, plan: Node, complete: bool) -> None:
        """It ends; what the next one has begun already is the next one's."""
        now = self.work()
        spent, self._mark = now - (self._mark or 0.0), now
        same = complete and self._whole and plan == self._begun
        if same and plan == self._before and self._promise and plan == self._promise[0]:
            self._spent.append(spent)
        self._before = plan if same else None

    def promise(self, plan: Node, choices: Iterable[Choice]) -> None:
        """Takes note of what is expected of a plan, when it is chosen."""
        caches = [choice for choice in choices if choice.epoch is not None]
        if len(caches) != 1:
            self._promise = None
        elif self._promise is None or self._promise[0] != plan:
            self._promise, self._spent = (plan, caches[0]), []

    def gain(self, choices: Iterable[Choice]) -> CacheGain | None:
        """What was predicted and measured; None where there was no epoch to tell by. `choices` are
        those of now: they know best what the steps take."""
        known = [choice.epoch for choice in choices if choice.epoch is not None]
        if self._promise is None or not self._spent or len(known) != 1 or known[0] is None:
            return None
        said, now = self._promise[1].epoch, known[0]
        assert said is not None
        spent = sum(self._spent) / len(self._spent)
        return CacheGain(said.without / said.within, now.rows * now.without / max(spent, 1e-9))
