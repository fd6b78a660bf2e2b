"""The inputs of segments: rows that a worker reads itself, or the blocks of another flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from silva.columns import Block
from silva.order.shards import shard_range
from silva.physical import plan as physical
from silva.physical.stage.read import Places
from silva.run.executor import TaskSource
from silva.run.failures import DeferredFailures
from silva.run.flows.flow import (
    Cursor,
    Fetched,
    Joined,
    Mark,
    Position,
    Reader,
    Session,
    Trail,
    TrailedBlock,
    TrailRun,
    trail_from,
)
from silva.run.pools.task import RowsPayload

_SMALL_BYTES = 1 << 18
"""Smaller blocks are copied to join several into one block."""


class Input(TaskSource[Trail], Protocol):
    """The input of a segment."""

    slack: int = 1
    """The factor by which it may exceed the rows asked for, if cutting would cost more."""
    deferred: DeferredFailures | None = None
    """Rows that failed in flows below while they were read ahead; None without such flows."""

    def next(self, rows: int) -> tuple[RowsPayload, Trail] | None: ...

    def fetch(self, marks: list[Mark]) -> Fetched:
        """The input for the rows with these marks, in this order."""


class BlocksInput(Input):
    """The blocks of another flow, cut to the size that is asked for, or joined if they are much
    smaller."""

    def __init__(
        self,
        blocks: Iterator[TrailedBlock],
        fetch: Callable[[list[Mark]], Fetched],
        whole: bool = False,
        deferred: DeferredFailures | None = None,
    ) -> None:
        self._fetch, self.deferred = fetch, deferred
        self._whole = whole
        self._reader = Reader(blocks if deferred is None else _counted(blocks, deferred))
        self._error: Exception | None = None
        """An error from reading on, which is raised after the rows before it."""

    def next(self, rows: int) -> tuple[Block, Trail] | None:
        if self._error is not None:
            raise self._error
        ready = self._reader.available()
        if not ready:
            return None
        if not self._whole and ready < rows // 2 and self._reader.bytes_at_hand < _SMALL_BYTES:
            return self._joined(rows)
        block, trail, start = self._reader.take(ready if self._whole else rows)
        return block, trail_from(trail, start)

    def _joined(self, rows: int) -> tuple[Block, Trail]:
        blocks: list[Block] = []
        runs: list[TrailRun] = []
        try:
            while rows and self._reader.available():
                block, trail, start = self._reader.take(rows)
                blocks.append(block)
                runs.append((trail, start, len(block)))
                rows -= len(block)
        except Exception as error:  # noqa: BLE001  raised when it is its turn
            self._error = error
        return Block.concat(blocks), Joined(runs)

    def fetch(self, marks: list[Mark]) -> Fetched:
        return self._fetch(marks)


def _counted(blocks: Iterator[TrailedBlock], deferred: DeferredFailures) -> Iterator[TrailedBlock]:
    for trailed in blocks:
        deferred.rows += len(trailed.block)
        yield trailed


@dataclass(frozen=True, eq=False, slots=True)
class PlacesTrail:
    """The trail of a run of places in an order."""

    start: int
    run_stop: int
    """The end of the run."""
    rest: tuple[tuple[int, int], ...]
    """The ranges that remain after this one, if the shard owns several."""
    stop: int
    """The end of the range that the run belongs to."""
    plain: bool
    """The shard owns one range and began at its start or at a plain state."""
    before: int
    """Rows that were read before this run."""

    def after(self, row: int) -> Position:
        at, seen = self.start + row + 1, self.before + row + 1
        if self.plain:
            return Position({"at": at}, 0, seen)
        runs = sorted([(at, self.stop), *self.rest])
        return Position({"ranges": [list(run) for run in runs if run[1] > run[0]]}, 0, seen)

    def mark(self, row: int) -> Mark:
        return self.start + row


class PlacesInput(Input):
    """Runs of places of an indexed source, of the length that is asked for."""

    def __init__(self, feed: physical.IndexedFeed, session: Session, cursor: Cursor) -> None:
        self._given = 0
        start, stop = shard_range(feed.size, session.shards, session.shard)
        self._plain = cursor is None or "at" in cursor
        if cursor is None:
            self._ranges = [(start, stop)]
        elif self._plain:
            self._ranges = [(cursor["at"], stop)]
        else:
            self._ranges = [(first, end) for first, end in cursor["ranges"]]

    def next(self, rows: int) -> tuple[Places, PlacesTrail] | None:
        """The next run of at most `rows` places, or None at the end."""
        while self._ranges and self._ranges[0][0] >= self._ranges[0][1]:
            self._ranges.pop(0)
        if not self._ranges:
            return None
        start, end = self._ranges[0]
        stop = min(start + rows, end)
        self._ranges[0] = (stop, end)
        rest = tuple(self._ranges[1:])
        trail = PlacesTrail(start, stop, rest, end, self._plain, self._given)
        self._given += stop - start
        return Places(start, stop), trail

    def left(self) -> int:
        """The number of places still to come."""
        return sum(max(stop - start, 0) for start, stop in self._ranges)

    @property
    def overtaking(self) -> Callable[[Trail, int, list[Trail]], Trail]:
        return self._overtake

    def _overtake(self, trail: Trail, rows: int, pending: list[Trail]) -> Trail:
        """The trail of a run that is handed out before the `pending` ones, which remain to be
        read."""
        self._plain = False
        assert isinstance(trail, PlacesTrail)
        others = [(t.start, t.run_stop) for t in pending if isinstance(t, PlacesTrail)]
        rest = sorted([*others, *(run for run in self._ranges if run[1] > run[0])])
        stop = trail.start + rows
        return PlacesTrail(trail.start, stop, tuple(rest), stop, False, trail.before)

    def fetch(self, marks: list[Mark]) -> Fetched:
        return Fetched(Places(0, 0, np.array(marks, dtype=np.int64)), list(range(len(marks))))
