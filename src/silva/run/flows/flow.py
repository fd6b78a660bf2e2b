"""What all flows share: the session they are opened in, blocks with their trails, and a reader.

A trail leads from a row back to the position that continues after it. It is asked after the fact,
so a state costs nothing until somebody wants it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from silva.columns import Block
from silva.order.cursor_checks import pass_epoch
from silva.order.cursors import Cursor, Mark, Position
from silva.physical.plan import PhysicalNode
from silva.physical.stage.context import Context, Failure
from silva.run.failures import DeferredFailures, Failures, Skip, Tally

if TYPE_CHECKING:
    from silva.run.executor import Executor

__all__ = ["Cursor", "Mark", "Position"]

Positions = dict[str, Position]
"""The position of each shard, by its number as text; shards that have not started are left out."""
TrailRun = tuple["Trail", int, int]
"""A trail, the first of its rows, and the number of rows."""


class Trail(Protocol):
    def after(self, row: int) -> Position:
        """The position from which the rows after row `row` of the block follow; -1: before its
        first row. Failures are counted from where the flow was opened."""

    def mark(self, row: int) -> Mark:
        """What `Flow.fetch` needs to read this row again."""


@dataclass(frozen=True, eq=False, slots=True)
class TrailedBlock:
    """A block with its trail."""

    block: Block
    trail: Trail


@dataclass(frozen=True, eq=False, slots=True)
class Fetched:
    """Rows that were read again by their marks."""

    rows: Any
    """A block, or what a stage reads them by."""
    which: list[int]
    """The numbers of the marks that the rows belong to, ascending; rows that failed are missing."""

    @staticmethod
    def joined(parts: list[tuple[list[int], Fetched]]) -> Fetched:
        """Joins rows that were fetched by different marks, in the order of all marks."""
        which = [marks[i] for marks, part in parts for i in part.which]
        order = np.argsort(np.array(which, dtype=np.int64), kind="stable")
        block = Block.concat([part.rows for _, part in parts])
        ascends = all(a < b for a, b in pairwise(which))
        return Fetched(block if ascends else block.take(order), sorted(which))


class Flow(Protocol):
    """A physical node opened at a cursor, for one shard and epoch."""

    def blocks(self) -> Iterator[TrailedBlock]:
        """Blocks in logical order, until the epoch ends."""

    def fetch(self, marks: list[Mark]) -> Fetched:
        """The rows with these marks, in this order."""


@runtime_checkable
class CountsRows(Protocol):
    """A flow that drops rows, and knows how many it read."""

    @property
    def rows_read(self) -> int:
        """The rows that were read in all, also those that were dropped; asked at the end."""


OpenFlow = Callable[[PhysicalNode, "Session", Cursor], Flow]
"""Opens a physical node of rows for one shard, at a cursor."""


@dataclass(frozen=True, eq=False)
class Session:
    """One shard of one epoch."""

    executor: Executor
    open_flow: OpenFlow
    context: Context
    shards: int
    """The number of shards that the epoch is divided into."""
    shard: int
    failures: Failures | DeferredFailures
    tally: Tally
    """Counts the rows that failed in the flows of this session."""

    def open(self, node: PhysicalNode, cursor: Cursor) -> Flow:
        """Opens a node of rows, continuing from `cursor` (None: the start)."""
        return self.open_flow(node, self, cursor)

    def for_branch(self, passes: int = 0) -> Self:
        """A session for one pipeline of a mix or concat: it counts its failures by itself. Each
        pass of a pipeline that repeats is an epoch of its own."""
        context = replace(self.context, epoch=pass_epoch(self.context.epoch, passes))
        return replace(self, context=context, tally=Tally(self.tally))

    def for_reading_again(self) -> Self:
        """A session for rows that were read before: their failures are not counted again."""
        context = self.context.computing_every_row()
        return replace(self, context=context, failures=Failures(Skip(), None), tally=Tally())

    def for_reading_ahead(self, deferred: DeferredFailures) -> Self:
        """A session for rows that are read before they are asked for."""
        return replace(self, failures=deferred, tally=Tally())

    def handle(self, failure: Failure) -> None:
        """Counts a failure that has been reached in stream order; raises if the policy says so."""
        self.tally.add()
        self.failures.handle(failure)


@dataclass(frozen=True)
class RankShards:
    """The shards of an epoch that one rank reads."""

    shards: int
    """The number of shards of all ranks."""
    mine: range
    world: int = 1
    """The number of ranks."""
    pads: bool = False
    """Evaluation: short batches are padded, and a mask column marks the real rows."""


@dataclass(frozen=True, eq=False)
class RankSession:
    """One epoch of one rank, which may read several shards."""

    executor: Executor
    open_flow: OpenFlow
    context: Context
    rank: RankShards
    failures: Failures | DeferredFailures
    start: Positions
    """Where the shards begin."""
    done: int = 0
    """Batches of the epoch that were handed out before `start`."""

    def start_of(self, shard: int) -> Position:
        return self.start.get(str(shard), Position(None))

    def of_shard(self, shard: int) -> Session:
        """The session of one shard, with a count of failures of its own."""
        shards, failures = self.rank.shards, self.failures
        return Session(
            self.executor, self.open_flow, self.context, shards, shard, failures, Tally()
        )


@dataclass(frozen=True, eq=False, slots=True)
class Offset:
    """The trail of a slice of a block."""

    trail: Trail
    start: int

    def after(self, row: int) -> Position:
        return self.trail.after(self.start + row)

    def mark(self, row: int) -> Mark:
        return self.trail.mark(self.start + row)


def trail_from(trail: Trail, start: int) -> Trail:
    """The trail of the rows from `start` on."""
    return Offset(trail, start) if start else trail


class Joined:
    """The trail of several consecutive runs of rows."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: list[TrailRun]) -> None:
        self._runs = runs
        self._ends = list(accumulate(count for _, _, count in runs))

    def _find(self, row: int) -> tuple[Trail, int]:
        run = bisect_right(self._ends, row)
        trail, start, count = self._runs[run]
        return trail, start + row - (self._ends[run] - count)

    def after(self, row: int) -> Position:
        trail, at = self._find(row)
        return trail.after(at)

    def mark(self, row: int) -> Mark:
        trail, at = self._find(row)
        return trail.mark(at)


class Reader:
    """Reads any number of rows at a time from the blocks of a flow."""

    def __init__(self, blocks: Iterator[TrailedBlock]) -> None:
        self._blocks = blocks
        self._now: TrailedBlock | None = None
        self._at = 0

    def available(self) -> int:
        """The number of rows left of the present block; reads the next one if there are none. 0
        only at the end."""
        while not self.rows_at_hand:
            self._now, self._at = next(self._blocks, None), 0
            if self._now is None:
                return 0
        return self.rows_at_hand

    @property
    def rows_at_hand(self) -> int:
        """The number of rows left of the present block; reads nothing."""
        return 0 if self._now is None else len(self._now.block) - self._at

    @property
    def bytes_at_hand(self) -> int:
        """Bytes of the present block."""
        return self._now.block.nbytes if self._now is not None else 0

    def take(self, count: int) -> tuple[Block, Trail, int]:
        """At most `count` rows of the present block, with its trail and their first row in it."""
        assert self._now is not None
        start = self._at
        self._at = stop = min(start + count, len(self._now.block))
        return self._now.block.slice(start, stop), self._now.trail, start

    def gather(self, count: int) -> tuple[list[Block], list[TrailRun]]:
        """The next `count` rows, or as many as are left."""
        blocks: list[Block] = []
        runs: list[TrailRun] = []
        while count and self.available():
            block, trail, start = self.take(count)
            blocks.append(block)
            runs.append((trail, start, len(block)))
            count -= len(block)
        return blocks, runs
