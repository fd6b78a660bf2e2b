"""The rows of a chunked source, unit by unit: read by workers, or prefetched by threads.

A worker reads a whole unit, since a part of it would need its beginning to be read again. So
workers get units of up to a few blocks. Much larger units come in blocks from a `UnitReader`, and
so do text and tar files, whose rows are not counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from silva.columns import Block, Column
from silva.errors import DeadlineError, LoaderError, SourceError, StateError
from silva.io.source import Chunked, may_hold
from silva.lifetime import Thread, join_all
from silva.order.permutation import permute
from silva.order.shards import unit_bounds
from silva.physical import plan as physical
from silva.physical.stage.read import UnitRows
from silva.run.flows.flow import (
    Cursor,
    Fetched,
    Joined,
    Mark,
    Position,
    Session,
    Trail,
    TrailedBlock,
)
from silva.run.flows.inputs import BlocksInput, Input
from silva.run.pools.threads import PAUSE, thread_stacks

_AHEAD = 4
"""Blocks (of a few MiB each) of one unit that may wait."""
_AHEAD_BYTES = 2 << 20
"""Bytes of small units that may wait."""

Columns = dict[str, Column]
UnitRun = tuple[int, int, int, int | None]
"""(position of the unit in the order, unit, first row, end or None)."""


class UnitReader:
    """Reads the next units by a few threads while the consumer is busy with this one; the rows of
    each unit stay in order.

    Units may be a few KiB or many MiB. A reader goes on to further units while few bytes are
    waiting. Readers and consumer wake each other only if the other waits: a wake-up per small unit
    would cost more than reading it.
    """

    def __init__(
        self,
        source: Chunked,
        columns: tuple[str, ...],
        runs: list[UnitRun],
        width: int,
        deadline: float = 600.0,
    ) -> None:
        self._source, self._columns = source, columns
        self._runs = runs
        self._deadline = deadline
        lock = threading.Lock()
        self._filled, self._room = threading.Condition(lock), threading.Condition(lock)
        """Wake the consumer, and the readers."""
        self._waits_for = -1
        """The run that the consumer waits for; -1 while it does not wait."""
        self._waiting = 0
        """Bytes that were read and not taken."""
        self._buffers: dict[int, deque[tuple[Columns | BaseException, int]]] = {}
        self._ended: set[int] = set()
        self._next = 0
        self._current = 0
        self._width = max(width, 1)
        self._closed = False
        self._threads = [
            Thread(self._work, f"reader-{i}") for i in range(min(self._width, len(runs)))
        ]

    def __iter__(self) -> Iterator[tuple[UnitRun, Iterator[Columns]]]:
        for thread in self._threads:
            thread.start()
        try:
            for i, run in enumerate(self._runs):
                yield run, self._take(i)
                with self._room:
                    self._ended.discard(i)
                    left = self._buffers.pop(i, ())
                    self._waiting -= sum(size for _, size in left)
                    self._current = i + 1
                    if left or self._is_near():
                        self._room.notify_all()
        finally:
            self.close()

    def _take(self, i: int) -> Iterator[Columns]:
        while True:
            with self._filled:
                self._await(i)
                buffer = self._buffers.get(i)
                if not buffer:
                    return
                item, size = buffer.popleft()
                before, self._waiting = self._waiting, self._waiting - size
                half = _AHEAD_BYTES // 2
                if before >= half > self._waiting or len(buffer) == _AHEAD - 1:
                    self._room.notify_all()
            if isinstance(item, BaseException):
                raise item
            yield item

    def _await(self, i: int) -> None:
        """Waits until a reader has rows of run `i`, or has reached its end."""
        began = time.monotonic()
        while not self._buffers.get(i) and i not in self._ended:
            if self._closed:
                raise LoaderError("the loader was closed while it was being read")
            self._waits_for = i
            self._filled.wait(PAUSE)
            self._waits_for = -1
            waited = time.monotonic() - began
            if waited > self._deadline:
                raise DeadlineError(
                    f"nothing came from {self._source.describe()} (unit {self._runs[i][1]}) for "
                    f"{waited:.0f} s (deadline={self._deadline:g}).\n{thread_stacks(self._threads)}"
                )

    def _is_near(self) -> bool:
        """Whether the next unit is read regardless of the bytes that wait."""
        return self._next < self._current + self._width + 1

    def _may_start(self) -> bool:
        """Whether a reader may begin the next unit."""
        return self._is_near() or self._waiting < _AHEAD_BYTES

    def _work(self) -> None:
        while True:
            with self._room:
                while not self._closed and self._next < len(self._runs) and not self._may_start():
                    self._room.wait()
                if self._closed or self._next >= len(self._runs):
                    return
                i = self._next
                self._next += 1
                self._buffers[i] = deque()
            self._read(i)

    def _read(self, i: int) -> None:
        _, unit, start, _ = self._runs[i]
        try:
            for item in self._source.open(unit, start, self._columns):
                if not self._put(i, item, sum(column.nbytes for column in item.values())):
                    return
        except BaseException as error:  # noqa: BLE001  raised again on the consumer's thread
            self._put(i, error, _AHEAD_BYTES)  # what is beyond it can wait
        with self._filled:
            self._ended.add(i)
            self._tell(i)

    def _put(self, i: int, item: Columns | BaseException, size: int) -> bool:
        with self._room:
            while i in self._buffers and len(self._buffers[i]) >= _AHEAD and not self._closed:
                self._room.wait()
            if self._closed or i not in self._buffers:
                return False
            self._buffers[i].append((item, size))
            self._waiting += size
            self._tell(i)
            return True

    def _tell(self, i: int) -> None:
        if self._waits_for == i:
            self._filled.notify()

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._room.notify_all()
            self._filled.notify_all()
        join_all(self._threads)


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
        self._declared = self._source.length() if self._rows is None else None
        """The rows that the source says it has, where it does not say so for each unit."""

    def _order(self, positions: np.ndarray) -> np.ndarray:
        seed = self._feed.seed
        if seed is None:
            return positions
        context = self._session.context
        return permute(positions, self._units, "units", seed, context.seed, context.epoch)

    def runs(self) -> list[UnitRun]:
        """The runs to read, without the units that cannot hold a wanted row."""
        unit_at, row = self._first
        runs: list[UnitRun] = []
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

    def blocks(self) -> Iterator[TrailedBlock]:
        return self.read(self.runs())

    def read(self, runs: list[UnitRun]) -> Iterator[TrailedBlock]:
        """The rows of these runs, prefetched by threads where there are workers."""
        executor, source, columns = self._session.executor, self._source, self._feed.read.columns
        found: Iterable[tuple[UnitRun, Iterator[Columns]]]
        if executor.may_prefetch:
            width = min(executor.workers, 2)
            found = reader = UnitReader(source, columns, runs, width, executor.deadline)
            executor.close_too(reader)
        else:
            found = ((run, source.open(run[1], run[2], columns)) for run in runs)
        for (at, unit, start, stop), blocks in found:
            yield from self._unit(at, unit, start, stop, blocks)
        begins = self._first == (0, 0) and len(runs) == self._units
        if begins and self._stride == 1 and self._stop == (self._units, 0):
            self._check_declared(self._given, at_end=True)

    def _check_declared(self, count: int, at_end: bool = False) -> None:
        """Raises if a source has not as many rows as it says: its `length` decided how many batches
        were announced."""
        if self._declared is None or count == self._declared:
            return
        if at_end or count > self._declared:
            own = type(self._source)
            raise SourceError(
                f"{own.__module__}.{own.__qualname__}.open must return the {self._declared} rows "
                f"that length() says there are, not {count}{'' if at_end else ' or more'}"
            )

    def trail(self, at: int, start: int, rows: int) -> UnitTrail:
        """The trail of the next `rows` rows, which begin at row `start` of the unit at `at`."""
        before = self._given + self._left_out[at]
        self._given += rows
        return UnitTrail(at, start, self._stride, before)

    def _unit(
        self, at: int, unit: int, start: int, stop: int | None, runs: Iterator[Columns]
    ) -> Iterator[TrailedBlock]:
        for block in self._feed.read.cut(runs, unit, start, stop):
            begin = start
            start += len(block)
            self._check_declared(start)
            if self._stride > 1:
                offset = (self._phase - begin) % self._stride
                picked = np.arange(offset, len(block), self._stride)
                if not len(picked):
                    continue
                block, begin = block.take(picked), begin + offset
            trail = self.trail(at, begin, len(block))
            self._check_declared(self._given)
            yield TrailedBlock(block, trail)
        if self._units == 1:
            self._check_declared(start, at_end=True)

    def fetch(self, marks: list[Mark]) -> Fetched:
        read, blocks = self._feed.read, []
        for unit_at, row in marks:
            unit = int(self._order(np.array([unit_at]))[0])
            runs = self._source.open(unit, row, read.columns)
            found = next(read.cut(runs, unit, row, row + 1), None)
            if found is None:
                raise StateError(f"the state names row {row} of unit {unit}, which is shorter")
            blocks.append(found)
        return Fetched(Block.concat(blocks), list(range(len(marks))))


class UnitsInput(Input):
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
        large: list[UnitRun] = [self._runs.popleft() for _ in range(count)]
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
