"""Where a shard's rows come from: places in an order, or the units of a chunked source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block
from silva.errors import StateError
from silva.io.source import may_hold
from silva.order.permutation import permute
from silva.order.shards import shard_range
from silva.physical import plan as physical
from silva.physical.stage import TAG_SHIFT, Places
from silva.run.flows.trail import Mark, Piece, State
from silva.run.session import Session

UNIT_SHIFT = 32
"""A row of a chunked source is known as (unit << 32 | row in it)."""


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


@dataclass(frozen=True, eq=False, slots=True)
class UnitTrail:
    """The trail of rows of one unit: (position of the unit in the order, row in the unit)."""

    unit_at: int
    unit: int
    start: int
    stride: int
    stop: list[int] | None
    """Where this shard ends, after resharding."""

    def after(self, row: int) -> State:
        state: dict[str, Any] = {"unit": self.unit_at, "row": self.start + (row + 1) * self.stride}
        if self.stop is not None:
            state["stop"] = self.stop
        return state

    def mark(self, row: int) -> Mark:
        return (self.unit << UNIT_SHIFT) | (self.start + row * self.stride)


class UnitsFlow:
    """The rows of a chunked source, unit after unit.

    With known row counts a shard owns a contiguous run of rows; with unknown ones, a run of units;
    and where there are fewer units than shards, every S-th row.
    """

    def __init__(self, feed: physical.ChunkedFeed, session: Session, state: State) -> None:
        self._feed = feed
        self._session = session
        units = feed.source.units()
        self._units = units
        rows = feed.source.unit_rows()
        shards, shard = session.shards, session.shard
        self._stride, self._phase = 1, 0
        self._stop: tuple[int, int] = (units, 0)
        first = (0, 0)
        if shards > 1 and rows is not None:
            ordered = np.cumsum(rows[self._order(np.arange(units))])
            start, stop = shard_range(int(ordered[-1]) if units else 0, shards, shard)
            first, self._stop = _locate(ordered, start), _locate(ordered, stop)
        elif shards > 1 and units >= shards:
            start, stop = shard_range(units, shards, shard)
            first, self._stop = (start, 0), (stop, 0)
        elif shards > 1:
            self._stride, self._phase = shards, shard
        self._resharded: list[int] | None = None
        if state is not None:
            first = (int(state["unit"]), int(state["row"]))
            if "stop" in state:
                self._resharded = [int(x) for x in state["stop"]]
                self._stop = (self._resharded[0], self._resharded[1])
            if first > (units, 0):
                raise StateError(f"the state stands at unit {first[0]} of {units}")
        self._first = first

    def _order(self, positions: np.ndarray) -> np.ndarray:
        seed = self._feed.seed
        if seed is None:
            return positions
        context = self._session.context
        return permute(positions, self._units, "units", seed, context.seed, context.epoch)

    def pieces(self) -> Iterator[Piece]:
        unit_at, row = self._first
        runs: list[tuple[int, int, int, int | None]] = []
        last, last_row = self._stop
        while (unit_at, row) < self._stop:
            unit = int(self._order(np.array([unit_at]))[0])
            if may_hold(self._feed.source, unit, self._feed.conditions):
                runs.append((unit_at, unit, row, last_row if unit_at == last else None))
            unit_at, row = unit_at + 1, 0
        for (at, unit, start, stop), blocks in self._session.read_units(self._feed, runs):
            yield from self._unit(at, unit, start, stop, blocks)

    def _unit(
        self, at: int, unit: int, start: int, stop: int | None, runs: Iterator[Any]
    ) -> Iterator[Piece]:
        row = start
        tag = (self._feed.tag << int(TAG_SHIFT)) | (unit << UNIT_SHIFT)
        for columns in runs:
            count = len(next(iter(columns.values())))
            if stop is not None and row + count > stop:
                count = max(stop - row, 0)
                columns = {n: c.slice(0, count) for n, c in columns.items()}
            if not count:
                break
            ids = np.arange(row, row + count, dtype=np.uint64) + np.uint64(tag)
            block = Block({n: c for n, c in columns.items() if n}, ids)
            begin = row
            row += count
            if self._stride > 1:
                offset = (self._phase - begin) % self._stride
                picked = np.arange(offset, count, self._stride)
                if not len(picked):
                    continue
                block, begin = block.take(picked), begin + offset
            yield Piece(block, UnitTrail(at, unit, begin, self._stride, self._resharded))

    def fetch(self, marks: list[Mark]) -> Block:
        blocks = []
        for mark in marks:
            unit, row = mark >> UNIT_SHIFT, mark & ((1 << UNIT_SHIFT) - 1)
            runs = self._feed.source.open(unit, row, self._feed.columns)
            piece = next(self._unit(0, unit, row, row + 1, runs))
            blocks.append(piece.block)
        return Block.concat(blocks)


def _locate(cumulative: np.ndarray, row: int) -> tuple[int, int]:
    """(unit, row in it) of a row, given the running sum of the units' rows."""
    unit = int(np.searchsorted(cumulative, row, side="right"))
    before = int(cumulative[unit - 1]) if unit else 0
    return unit, row - before
