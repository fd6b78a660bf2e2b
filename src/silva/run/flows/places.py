"""The rows of an indexed source: a shard's places in the order, which workers read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.errors import StateError
from silva.order.shards import shard_range
from silva.physical import plan as physical
from silva.physical.places import Places
from silva.run.flows.trail import Mark, State
from silva.run.session import Session


@dataclass(frozen=True, eq=False, slots=True)
class PlacesTrail:
    """The trail of a run of places in an order."""

    start: int
    run_stop: int
    """Where the run ends."""
    rest: tuple[tuple[int, int], ...]
    """What remains after this range, where the shard owns several."""
    stop: int
    """Where the range that the run is of ends."""
    plain: bool
    """The shard owns one range and began at its start or at a plain state."""

    def after(self, row: int) -> State:
        at = self.start + row + 1
        if self.plain:
            return {"at": at}
        runs = [(at, self.stop), *self.rest]
        return {"ranges": [list(run) for run in runs if run[1] > run[0]]}

    def mark(self, row: int) -> Mark:
        return self.start + row


class PlacesInput:
    """The input of a segment over an indexed source: runs of places, as long as it asks for."""

    slack = 1

    def __init__(self, feed: physical.IndexedFeed, session: Session, state: State) -> None:
        self.feed = feed
        start, stop = shard_range(feed.size, session.shards, session.shard)
        self._plain = True
        if state is None:
            self._ranges = [(start, stop)]
        elif "ranges" in state:
            self._plain = False
            self._ranges = [(int(a), int(b)) for a, b in state["ranges"]]
        else:
            at = int(state["at"])
            if not start <= at <= stop:
                raise StateError(
                    f"the state stands at row {at}, but this shard has rows {start} to {stop}: it "
                    "was saved for other data or another number of shards"
                )
            self._ranges = [(at, stop)]

    def next(self, rows: int) -> tuple[Places, PlacesTrail] | None:
        """The next run of at most `rows` places, or None at the end."""
        while self._ranges and self._ranges[0][0] >= self._ranges[0][1]:
            self._ranges.pop(0)
        if not self._ranges:
            return None
        start, end = self._ranges[0]
        stop = min(start + rows, end)
        self._ranges[0] = (stop, end)
        trail = PlacesTrail(start, stop, tuple(self._ranges[1:]), end, self._plain)
        return Places(start, stop), trail

    def left(self) -> int:
        """Places still to come."""
        return sum(max(stop - start, 0) for start, stop in self._ranges)

    def overtaking(self, trail: PlacesTrail, rows: int, pending: list[PlacesTrail]) -> PlacesTrail:
        """The trail of a run that was handed out before `pending` ones: those remain, too."""
        self._plain = False
        others = [(t.start, t.run_stop) for t in pending]
        rest = sorted([*others, *(run for run in self._ranges if run[1] > run[0])])
        return PlacesTrail(trail.start, trail.start + rows, tuple(rest), trail.start + rows, False)

    def fetch(self, marks: list[Mark]) -> Places:
        return Places(0, 0, np.array(marks, dtype=np.int64))
