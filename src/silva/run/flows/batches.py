"""Batches on their way to the consumer: runs of batches, each with the positions after it.

A flow of batches is opened for a rank, not for a shard, and gives *runs*: batches that lie in one
block and are cut from it only when they are handed out, so that trails and the check of failures
cost something per block and nothing per batch. Most kinds of batches come in runs of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from silva.columns import Array, Block
from silva.errors import SilvaError
from silva.physical import plan as physical
from silva.physical.stage.batch_value import BatchValue
from silva.run.flows.trail import OpenFlow, Position, Trail
from silva.run.session import Positions, RankSession

Made = BatchValue | Block
"""A batch as its flow makes it: a block where a function collates it, or where blocks are wanted.
"""


class Run(Protocol):
    """Batches (or rows) that lie in one block."""

    def shown(self) -> Iterable[Any]:
        """Each batch as the consumer gets it: columns by name, or a block where blocks are
        wanted."""

    def positions(self, given: int) -> Positions:
        """The positions of the shards after the first `given` batches of the run."""


class BatchRun(Run, Protocol):
    @property
    def count(self) -> int:
        """How many batches there are."""

    def made(self) -> Iterable[Made]:
        """Each batch as the input of a stage."""

    def first(self, count: int) -> BatchRun:
        """The first batches of the run, at most `count`."""


class BatchFlow(Protocol):
    """A physical node that makes batches, opened for one rank and epoch."""

    def runs(self) -> Iterator[BatchRun]: ...


OpenBatches = Callable[[physical.PhysicalNode, RankSession], BatchFlow]


@dataclass(frozen=True, eq=False, slots=True)
class OneBatch:
    """One batch by itself, with the positions after it."""

    batch: Made
    after: Callable[[], Positions]
    """Finds the positions after the batch; called only when the state is asked for."""

    @property
    def count(self) -> int:
        return 1

    def made(self) -> Iterable[Made]:
        return (self.batch,)

    def shown(self) -> Iterable[Any]:
        return (_shown(self.batch),)

    def positions(self, given: int) -> Positions:
        return self.after()

    def first(self, count: int) -> OneBatch:
        return self


def _shown(batch: Made) -> Any:
    return batch.values if isinstance(batch, BatchValue) else batch


@dataclass(frozen=True, eq=False, slots=True)
class ShardEnd:
    """The position after a row of a shard, counted on from where the shard began."""

    shard: int
    start: Position
    trail: Trail
    row: int

    def __call__(self) -> Positions:
        after = self.trail.after(self.row).plus(self.start.failed, self.start.seen)
        return {str(self.shard): after}


@dataclass(frozen=True, eq=False, slots=True)
class SlicedBatches:
    """Batches of one size that are slices of one block."""

    begin: ShardEnd
    """The row before the first batch."""
    block: Block
    size: int
    count: int
    make: Callable[[Block], Made]
    sliceable: bool
    """Columns that are plain arrays may be sliced as they are, without `make`."""

    def made(self) -> Iterator[Made]:
        first = self.begin.row + 1
        for at in range(first, first + self.count * self.size, self.size):
            yield self.make(self.block.slice(at, at + self.size))

    def shown(self) -> Iterator[Any]:
        arrays = fast_arrays(self.block) if self.sliceable else None
        if arrays is None:
            yield from map(_shown, self.made())
            return
        size, first = self.size, self.begin.row + 1
        starts = range(first, first + self.count * size, size)
        if len(arrays) == 1:
            ((name, array),) = arrays.items()
            for at in starts:
                yield {name: array[at : at + size]}
        else:
            for at in starts:
                yield {name: array[at : at + size] for name, array in arrays.items()}

    def positions(self, given: int) -> Positions:
        return replace(self.begin, row=self.begin.row + given * self.size)()

    def first(self, count: int) -> SlicedBatches:
        return replace(self, count=min(self.count, count))


def fast_arrays(block: Block) -> dict[str, np.ndarray] | None:
    """The columns as writable arrays that can simply be sliced; None where rows decide."""
    out: dict[str, np.ndarray] = {}
    for name, column in block.columns.items():
        if not isinstance(column, Array) or column.valid is not None:
            return None
        data = column.data
        out[name] = data if data.flags.writeable else data.copy()
    return out


@dataclass(frozen=True, eq=False, slots=True)
class SingleRows:
    """The rows of a piece, one by one."""

    begin: ShardEnd
    """The row before the first."""
    block: Block

    def shown(self) -> Iterator[dict[str, Any]]:
        columns = self.block.columns
        names = list(columns)
        values = zip(*(c.rows() for c in columns.values()), strict=True)
        for row in values if columns else [()] * len(self.block):
            yield dict(zip(names, row, strict=True))

    def positions(self, given: int) -> Positions:
        return replace(self.begin, row=given - 1)()


class RowsFlow:
    """A flow of rows that nothing batches, as the consumer gets them."""

    def __init__(
        self, node: physical.PhysicalNode, session: RankSession, open_flow: OpenFlow
    ) -> None:
        self._node, self._session, self._open = node, session, open_flow

    def runs(self) -> Iterator[Run]:
        session, rank = self._session, self._session.rank
        if len(rank.mine) > 1 or rank.world > 1:
            raise SilvaError("several shards need batch(n): a row alone belongs to one shard")
        shard = rank.mine[0]
        start = session.start_of(shard)
        flow = self._open(self._node, session.of_shard(shard), start.cursor)
        for piece in flow.pieces():
            yield SingleRows(ShardEnd(shard, start, piece.trail, -1), piece.block)
