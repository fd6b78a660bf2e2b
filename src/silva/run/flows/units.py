"""The rows of a chunked source, unit by unit: read by workers, or prefetched by threads.

A worker reads a whole unit, since a part of it would need its beginning to be read again. So
workers get units of up to a few blocks. Much larger units come in blocks from a `UnitReader`, and
so do text and tar files, whose rows are not counted.
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
from silva.order.shards import unit_bounds
from silva.physical import plan as physical
from silva.physical.stage.read import UnitRows
from silva.run.failures import DeferredFailures
from silva.run.flows.inputs import BlocksInput
from silva.run.flows.trail import Cursor, Fetched, Joined, Mark, Piece, Position, Trail
from silva.run.reading import Run
from silva.run.session import Session


@dataclass(frozen=True, eq=False, slots=True)
class UnitTrail:
    """The trail of rows of one unit: (position of the unit in the order, row in the unit)."""

    unit_at: int
    start: int
    stride: int
    before: int
    """The rows that were read before these, or skipped with their unit."""

    def after(self, row: int) -> Position:
        cursor = {"unit": self.unit_at, "row": self.start + (row + 1) * self.stride}
        return Position(cursor, 0, self.before + row + 1)

    def mark(self, row: int) -> Mark:
        return [self.unit_at, self.start + row * self.stride]


class UnitsFlow:
    """The blocks of one shard of a chunked source (`order.shards.unit_bounds`)."""

    def __init__(self, feed: physical.ChunkedFeed, session: Session, cursor: Cursor) -> None:
        self._feed = feed
        self._session = session
        self._source = feed.read.source
        units = self._source.units()
        self._units = units
        self._rows = self._source.unit_rows()
        rows = None if self._rows is None else self._rows[self._order(np.arange(units))]
        bounds = unit_bounds(units, rows, session.shards, session.shard)
        self._first, self._stop, self._stride = bounds
        self._phase = session.shard if self._stride > 1 else 0
        self._given = 0
        self._left_out: dict[int, int] = {}
        """The rows of skipped units before each unit that is read."""
        if cursor is not None:
            self._first = (cursor["unit"], cursor["row"])

    def _order(self, positions: np.ndarray) -> np.ndarray:
        seed = self._feed.seed
        if seed is None:
            return positions
        context = self._session.context
        return permute(positions, self._units, "units", seed, context.seed, context.epoch)

    def runs(self) -> list[Run]:
        """The runs to read, without the units that cannot hold a wanted row."""
        unit_at, row = self._first
        runs: list[Run] = []
        last, last_row = self._stop
        left_out = 0
        while (unit_at, row) < self._stop:
            unit = int(self._order(np.array([unit_at]))[0])
            end = None if self._rows is None else int(self._rows[unit])
            end = last_row if unit_at == last else end
            if may_hold(self._source, unit, self._feed.conditions):
                runs.append((unit_at, unit, row, end))
                self._left_out[unit_at] = left_out
            elif end is not None:
                left_out += end - row
            unit_at, row = unit_at + 1, 0
        return runs

    def pieces(self) -> Iterator[Piece]:
        return self.read(self.runs())

    def read(self, runs: list[Run]) -> Iterator[Piece]:
        """The rows of these runs, prefetched by threads."""
        for (at, unit, start, stop), blocks in self._session.executor.read_units(self._feed, runs):
            yield from self._unit(at, unit, start, stop, blocks)

    def trail(self, at: int, start: int, rows: int) -> UnitTrail:
        """The trail of the next `rows` rows, which begin at row `start` of the unit at `at`."""
        before = self._given + self._left_out[at]
        self._given += rows
        return UnitTrail(at, start, self._stride, before)

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
            yield Piece(block, self.trail(at, begin, len(block)))

    def fetch(self, marks: list[Mark]) -> Fetched:
        read, blocks = self._feed.read, []
        for unit_at, row in marks:
            unit = int(self._order(np.array([unit_at]))[0])
            runs = self._source.open(unit, row, read.columns)
            found = next(read.cut(runs, unit, row, row + 1), None)
            if found is None:
                raise StateError(f"the state names row {row} of chunk {unit}, which is shorter")
            blocks.append(found)
        return Fetched(Block.concat(blocks), list(range(len(marks))))


class UnitsInput:
    """The input of a segment over a source whose units have known numbers of rows."""

    slack = 4
    overtaking: None = None
    deferred: DeferredFailures | None = None

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
        """How many of these are read as one flow: few at first, until the block size has
        settled."""

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
            sizes = [stop - start for _, _, start, stop in whole]
            trails = [
                (self._flow.trail(run[0], run[2], size), 0, size)
                for run, size in zip(whole, sizes, strict=True)
            ]
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
        """The rows of units that no worker has begun to read."""
        return sum(stop - start for _, _, start, stop in self._runs)

    def fetch(self, marks: list[Mark]) -> Fetched:
        return self._flow.fetch(marks)
