"""The rows of a chunked source, unit after unit: read by workers, or by threads beside the
consumer.

A worker reads a unit whole: cutting one would mean to read its beginning once for every part. So
it is given units of up to a few blocks; those much larger come in blocks from a `UnitReader`, as do
the rows of text and tar files, which nobody has counted.
"""

from __future__ import annotations

from collections import deque
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
from silva.physical.context import UNIT_SHIFT
from silva.physical.units import UnitRows
from silva.run.flows.inputs import BlocksInput
from silva.run.flows.trail import Joined, Mark, Piece, State, Trail
from silva.run.reading import Run
from silva.run.session import Session


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
    """The rows of a chunked source, as blocks.

    With known row counts a shard owns a contiguous run of rows; with unknown ones, a run of units;
    and where there are fewer units than shards, every S-th row.
    """

    def __init__(self, feed: physical.ChunkedFeed, session: Session, state: State) -> None:
        self._feed = feed
        self._session = session
        self._source = feed.read.source
        units = self._source.units()
        self._units = units
        self._rows = self._source.unit_rows()
        shards, shard = session.shards, session.shard
        self._stride, self._phase = 1, 0
        self._stop: tuple[int, int] = (units, 0)
        first = (0, 0)
        if shards > 1 and self._rows is not None:
            ordered = np.cumsum(self._rows[self._order(np.arange(units))])
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

    def runs(self) -> list[Run]:
        """What there is to read, without the units that cannot hold a row that is wanted."""
        unit_at, row = self._first
        runs: list[Run] = []
        last, last_row = self._stop
        while (unit_at, row) < self._stop:
            unit = int(self._order(np.array([unit_at]))[0])
            if may_hold(self._source, unit, self._feed.conditions):
                end = None if self._rows is None else int(self._rows[unit])
                runs.append((unit_at, unit, row, last_row if unit_at == last else end))
            unit_at, row = unit_at + 1, 0
        return runs

    def pieces(self) -> Iterator[Piece]:
        return self.read(self.runs())

    def read(self, runs: list[Run]) -> Iterator[Piece]:
        """The rows of these runs, read ahead by threads."""
        for (at, unit, start, stop), blocks in self._session.read_units(self._feed, runs):
            yield from self._unit(at, unit, start, stop, blocks)

    def trail(self, at: int, unit: int, start: int) -> UnitTrail:
        return UnitTrail(at, unit, start, self._stride, self._resharded)

    def _unit(
        self, at: int, unit: int, start: int, stop: int | None, runs: Iterator[Any]
    ) -> Iterator[Piece]:
        for block in self._feed.read.cut(runs, unit, start, stop):
            begin = start
            start += len(block)
            if self._stride > 1:
                offset = (self._phase - begin) % self._stride
                picked = np.arange(offset, len(block), self._stride)
                if not len(picked):
                    continue
                block, begin = block.take(picked), begin + offset
            yield Piece(block, self.trail(at, unit, begin))

    def fetch(self, marks: list[Mark]) -> Block:
        blocks = []
        for mark in marks:
            unit, row = mark >> UNIT_SHIFT, mark & ((1 << UNIT_SHIFT) - 1)
            runs = self._source.open(unit, row, self._feed.read.columns)
            piece = next(self._unit(0, unit, row, row + 1, runs))
            blocks.append(piece.block)
        return Block.concat(blocks)


class UnitsInput:
    """The input of a segment over a source whose units have known numbers of rows."""

    slack = 4

    def __init__(self, flow: UnitsFlow) -> None:
        self._flow = flow
        self._runs = deque(
            (at, unit, start, stop)
            for at, unit, start, stop in flow.runs()
            if stop is not None and start < stop
        )
        self._blocks: BlocksInput | None = None
        """The rows of units that are too large to be read whole."""
        self._together = 1
        """How many of these are read as one flow: few at first, while blocks find their size."""

    def next(self, rows: int) -> tuple[UnitRows | Block, Trail] | None:
        found = None if self._blocks is None else self._blocks.next(rows)
        if found is not None:
            return found
        self._blocks = None
        if not self._runs:
            return None
        whole = self._whole(rows)
        if whole:
            runs = tuple((unit, start, stop) for _, unit, start, stop in whole)
            trails = [(self._flow.trail(*run[:3]), 0, run[3] - run[2]) for run in whole]
            return UnitRows(runs, rows), trails[0][0] if len(trails) == 1 else Joined(list(trails))
        count = min(self._together, len(self._runs))
        self._together *= 2
        large: list[Run] = [self._runs.popleft() for _ in range(count)]
        self._blocks = BlocksInput(self._flow.read(large), self._flow.fetch)
        return self._blocks.next(rows)

    def _whole(self, rows: int) -> list[tuple[int, int, int, int]]:
        """The next units that a worker can read: one, or as many as fit into a block."""
        taken: list[tuple[int, int, int, int]] = []
        room = self.slack * rows
        while self._runs and self._runs[0][3] - self._runs[0][2] <= room:
            taken.append(self._runs.popleft())
            rows -= taken[-1][3] - taken[-1][2]
            room = rows
        return taken

    def left(self) -> int:
        """Rows of units that nobody has begun to read."""
        return sum(stop - start for _, _, start, stop in self._runs)

    def fetch(self, marks: list[Mark]) -> Block:
        return self._flow.fetch(marks)


def _locate(cumulative: np.ndarray, row: int) -> tuple[int, int]:
    """(unit, row in it) of a row, given the running sum of the units' rows."""
    unit = int(np.searchsorted(cumulative, row, side="right"))
    before = int(cumulative[unit - 1]) if unit else 0
    return unit, row - before
