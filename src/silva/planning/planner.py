"""The plan of one loader: what the rules made of it, what measurements suggest, and when to change.

A plan may change at the border of any batch, since a state is tied to the pipeline as written: the
new plan is opened at the state after the batch that was handed out last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from silva.optimize.runner import optimize
from silva.optimize.runs import Run, runs
from silva.physical.lower import Lowering, WeightsOf
from silva.physical.twins import with_written
from silva.plan.node import Filter, Node, option
from silva.planning.choose import Choice, Room, choose
from silva.planning.measured import Measured, from_book, from_lanes, write_down
from silva.profile.book import Book
from silva.run.lane import Lane

_LOOKS = (0.3, 1.5, 8.0, 40.0)
"""Seconds of work after which the plan is looked at again: soon, and when more is known."""
_WORTH_KEEPING = 0.1
"""Seconds of work: what takes less is measured again soon enough."""
_FAILING = 0.2
"""Of the blocks, done again in the order written: moving steps does not pay."""


class Planner:
    def __init__(
        self,
        written: Node,
        *,
        weights_of: WeightsOf,
        lanes: Mapping[str, Lane],
        epochs: int | None,
        workers: int,
        rooms: Callable[[], tuple[Room, ...]],
    ) -> None:
        self._written = written
        self._weights_of = weights_of
        self._lanes = lanes
        self._epochs = epochs
        self._workers = workers
        self._rooms = rooms
        self._optimizes = bool(option(written, "optimize", True))
        self._disabled = frozenset(option(written, "disable", ()))
        self._ruled, self.outcomes = optimize(written)
        self.plan, self._twin = self._ruled, self._ruled
        self.choices: tuple[Choice, ...] = ()
        self.rejected: list[str] = []
        self._book = Book()
        self._runs = list(runs(self._ruled))
        self._known = [Measured() for _ in self._runs]
        self._started = False
        self._physical: Any = None
        self._looks = list(_LOOKS) if self._optimizes and self._may_choose() else []

    # The plan.

    def physical(self) -> Any:
        """The plan as it runs."""
        if self._physical is None:
            self._physical = self._lower(self.plan)
            if self._twin != self.plan:
                self._physical = with_written(self._physical, self._lower(self._twin))
        return self._physical

    def _lower(self, plan: Node) -> Any:
        return Lowering(self._weights_of, frugal=self._optimizes).lower(plan)

    def forget(self) -> None:
        """The plan must be lowered again."""
        self._physical = None

    # Choosing.

    @property
    def settled(self) -> bool:
        """Nothing more will change."""
        return not self._looks

    def _may_choose(self) -> bool:
        """Whether there is anything to choose."""
        many = self._epochs is not None and self._epochs > 1
        caches = many and any(run.at_source for run in self._runs)
        return caches or any(_has_orders(run) for run in self._runs)

    def start(self, epoch: int) -> None:
        """A loop begins: what earlier runs measured may be all that is needed."""
        if self._started or not self._looks:
            return
        self._started = True
        for number, run in enumerate(self._runs):
            if run.source is not None:
                self._known[number] = from_book(self._book, run.source, run.steps)
        self._choose(epoch)

    def due(self) -> bool:
        """Whether it is time to look at the plan again."""
        return bool(self._looks) and self._busy() >= self._looks[0]

    def _busy(self) -> float:
        return sum(lane.stats.busy for lane in self._lanes.values())

    def look(self, epoch: int) -> bool:
        """Takes in what was measured; whether the plan is another now."""
        spent = self._busy()
        self._looks = [at for at in self._looks if at > spent]
        self._collect()
        return self._choose(epoch)

    def _collect(self) -> None:
        lanes = list(self._lanes.values())
        for number, run in enumerate(self._runs):
            seen = from_lanes(lanes, run.steps)
            self._known[number] = self._known[number].updated(seen)

    def _choose(self, epoch: int) -> bool:
        left = 1 if self._epochs is None else max(self._epochs - epoch, 1)
        chosen = choose(
            self._ruled,
            self._known,
            epochs=left,
            workers=self._workers,
            rooms=() if "cache" in self._disabled else self._rooms(),
            reorders="order" not in self._disabled and not self._fails(),
        )
        self.choices = chosen.choices
        if chosen.plan == self.plan:
            return False
        self.plan, self._twin, self._physical = chosen.plan, chosen.twin, None
        return True

    def _fails(self) -> bool:
        """Whether steps that were moved fail on rows that a filter would have dropped."""
        for lane in self._lanes.values():
            stats = lane.stats
            if stats.again >= 3 and stats.again > _FAILING * stats.blocks:
                note = "order: steps fail on rows that a filter before them would have dropped"
                if note not in self.rejected:
                    self.rejected.append(note)
        return bool(self.rejected)

    # Remembering.

    def write_down(self) -> None:
        """Keeps what was measured for later runs, where it took long enough to matter."""
        if not self._optimizes or self._busy() < _WORTH_KEEPING or sys.is_finalizing():
            return
        self._collect()
        for run, known in zip(self._runs, self._known, strict=True):
            if run.source is not None:
                write_down(self._book, run.source, run.steps, known)
        self._book.tidy()


def _has_orders(run: Run) -> bool:
    """Whether a filter could come before a step that it now comes after, or the other way round."""
    before = run.before()
    return len(run.steps) > 1 and any(
        isinstance(step, Filter) and before[i] != (1 << i) - 1 for i, step in enumerate(run.steps)
    )
