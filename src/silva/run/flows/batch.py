"""Rows into batches of a fixed number, and batches on their way to the consumer.

A flow of batches is opened for a rank, not for a shard, and yields the batches of one block
at a time. They are cut from it only when they are handed out, so that trails and the check of
failures cost something per block and nothing per batch. Most kinds of batches come one by one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from silva.columns import Array, Block
from silva.errors import PlanError, SilvaError
from silva.physical import plan as physical
from silva.physical.stage.batch_value import BatchValue, batch_value, batches_of, rows_together
from silva.plan.schema import MASK
from silva.run.flows.flow import Position, Positions, RankSession, Reader, Trail, TrailedBlock

Made = BatchValue | Block
"""A batch as its flow makes it: a block where a function collates it, or where blocks are wanted.
"""


class BlockItems(Protocol):
    """Batches (or rows) that lie in one block."""

    def shown(self) -> Iterable[Any]:
        """Each batch as the consumer gets it: columns by name, or a block where blocks are
        wanted."""

    def positions(self, given: int) -> Positions:
        """The positions of the shards after the first `given` batches."""


class BlockBatches(BlockItems, Protocol):
    @property
    def count(self) -> int:
        """How many batches there are."""

    def made(self) -> Iterable[Made]:
        """Each batch as the input of a stage."""

    def first(self, count: int) -> BlockBatches:
        """The first batches, at most `count`."""


class BatchFlow(Protocol):
    """A physical node that makes batches, opened for one rank and epoch."""

    def batches(self) -> Iterator[BlockBatches]: ...


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
    make_all: Callable[[Block], Iterator[dict[str, Any]]] | None = None
    """Makes the columns of all batches at once, where that costs less than one by one."""

    def made(self) -> Iterator[Made]:
        first = self.begin.row + 1
        if self.make_all is not None:
            block = self._whole()
            ids = block.ids[:: self.size].tolist()
            places = (
                itertools.repeat(None)
                if block.places is None
                else block.places[:: self.size].tolist()
            )
            for values, row, place in zip(self.make_all(block), ids, places, strict=False):
                yield BatchValue(values, self.size, row, place)
            return
        for at in range(first, first + self.count * self.size, self.size):
            yield self.make(self.block.slice(at, at + self.size))

    def _whole(self) -> Block:
        """The rows of all batches."""
        first = self.begin.row + 1
        return self.block.slice(first, first + self.count * self.size)

    def shown(self) -> Iterator[Any]:
        if self.make_all is not None:
            return self.make_all(self._whole())
        arrays = fast_arrays(self.block) if self.sliceable else None
        if arrays is None:
            return map(_shown, self.made())
        size, first = self.size, self.begin.row + 1
        parts = {n: _batches_of(data, first, size, self.count) for n, data in arrays.items()}
        return batches_of(parts)

    def positions(self, given: int) -> Positions:
        return replace(self.begin, row=self.begin.row + given * self.size)()

    def first(self, count: int) -> SlicedBatches:
        return replace(self, count=min(self.count, count))


def _batches_of(array: np.ndarray, first: int, size: int, count: int) -> Iterable[np.ndarray]:
    """Consecutive slices of `size` rows; numpy gives the rows of a reshaped array fastest."""
    stop = first + count * size
    if array.flags.c_contiguous:
        return rows_together(array[first:stop], size, count)
    return (array[at : at + size] for at in range(first, stop, size))


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
    """The rows of a block, one by one."""

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


def single_rows(node: physical.PhysicalNode, session: RankSession) -> Iterator[BlockItems]:
    """The rows of a flow that nothing batches."""
    rank = session.rank
    if len(rank.mine) > 1 or rank.world > 1:
        raise SilvaError("several shards need batch(n): a row alone belongs to one shard")
    shard = rank.mine[0]
    start = session.start_of(shard)
    for trailed in session.of_shard(shard).open(node, start.cursor).blocks():
        yield SingleRows(ShardEnd(shard, start, trailed.trail, -1), trailed.block)


class _WaitingRows:
    """Rows that wait for the rest of their batch."""

    def __init__(self) -> None:
        self.count = 0
        self.nbytes = 0
        """Bytes of the blocks that they lie in, all rows of which stay in memory."""
        self._blocks: list[Block] = []

    def add(self, block: Block, start: int, stop: int) -> None:
        self._blocks.append(block.slice(start, stop))
        self.count += stop - start
        self.nbytes += block.nbytes

    def join(self) -> Block:
        """One block of them all; none wait any more."""
        joined = Block.concat(self._blocks)
        self.count, self.nbytes, self._blocks = 0, 0, []
        return joined


class FixedBatchFlow:
    """Batches of a fixed number of rows, the same number from each shard of the rank."""

    def __init__(self, node: physical.Batch, session: RankSession, as_blocks: bool = False) -> None:
        """`as_blocks`: batches stay the blocks that they are made of."""
        self._node, self._session, self._spec = node, session, node.spec
        self._blocks = as_blocks or node.spec.collate is not None

    def batches(self) -> Iterator[BlockBatches]:
        rank, waiting = self._session.rank, _WaitingRows()
        with self._session.executor.memory.holding(lambda: waiting.nbytes):
            if len(rank.mine) == 1 and not rank.pads:
                yield from self._batches_of_one_shard(rank.mine[0], waiting)
            else:
                yield from self._batches_of_all_shards(waiting)

    def _batches_of_one_shard(self, shard: int, waiting: _WaitingRows) -> Iterator[BlockBatches]:
        """Slices of the blocks of the flow below; a batch that spans blocks is joined."""
        size = self._share()
        sliceable, make_all = not self._blocks and not self._spec.grouped, None
        if self._spec.grouped and not self._blocks:
            from silva.physical.stage.grouped_batches import grouped_batches

            pad, grouped = self._spec.pad, self._spec.grouped
            make_all = functools.partial(grouped_batches, size=size, pad=pad, grouped=grouped)
        start = self._session.start_of(shard)
        for trailed in _open_shard(self._node, self._session, shard, size):
            block, at = trailed.block, 0
            if waiting.count:
                at = min(size - waiting.count, len(block))
                waiting.add(block, 0, at)
                end = ShardEnd(shard, start, trailed.trail, at - 1)
                if waiting.count < size:
                    continue
                yield OneBatch(self._make(waiting.join()), end)
            whole = (len(block) - at) // size
            if whole:
                begin = ShardEnd(shard, start, trailed.trail, at - 1)
                yield SlicedBatches(begin, block, size, whole, self._make, sliceable, make_all)
            at += whole * size
            if at < len(block):
                waiting.add(block, at, len(block))
                end = ShardEnd(shard, start, trailed.trail, len(block) - 1)
        if waiting.count and not self._spec.drop_last:
            yield OneBatch(self._make(waiting.join()), end)

    def _batches_of_all_shards(self, waiting: _WaitingRows) -> Iterator[BlockBatches]:
        share = self._share()
        mine = self._session.rank.mine
        readers = [ShardReader(self._node, self._session, shard, share) for shard in mine]
        while True:
            short = False
            for reader in readers:
                given = reader.gather(share)
                short |= sum(map(len, given)) < share
                for block in given:
                    waiting.add(block, 0, len(block))
            if not waiting.count or (short and self._spec.drop_last):
                return
            batch = waiting.join()
            padded = batch if self._blocks else self._padded(batch)
            yield OneBatch(self._make(padded), positions_of(readers))

    def _make(self, block: Block) -> Made:
        return block if self._blocks else batch_value(block, self._spec.pad, self._spec.grouped)

    def _padded(self, block: Block) -> Block:
        """The batch padded with copies of its last row, and a mask of the real rows."""
        rank, spec = self._session.rank, self._spec
        if not rank.pads or spec.size is None:
            return block
        places = np.arange(spec.size // rank.world)
        picked = block.take(np.minimum(places, len(block) - 1))
        return picked.with_columns({**picked.columns, MASK: Array(places < len(block))})

    def _share(self) -> int:
        """The rows of a batch that each shard gives."""
        rank, spec = self._session.rank, self._spec
        if spec.per_rank is not None:
            return -(-spec.per_rank // len(rank.mine))
        assert spec.size is not None
        if spec.size % rank.shards:
            raise PlanError(
                f"a global batch of {spec.size} rows cannot be shared equally by "
                f"{rank.shards} shards: choose a multiple, or batch(per_rank=…)"
            )
        return spec.size // rank.shards


class ShardReader:
    """The rows of one shard, and the position after the last one that went into a batch."""

    def __init__(self, node: physical.Batch, session: RankSession, shard: int, share: int) -> None:
        self.shard = shard
        self.start = session.start_of(shard)
        self._reader = Reader(_open_shard(node, session, shard, share))
        self.available = self._reader.available
        self.end: ShardEnd | None = None

    def gather(self, count: int) -> list[Block]:
        """The next `count` rows, or as many as there are; all of them go into the batch."""
        blocks, runs = self._reader.gather(count)
        if runs:
            trail, start, size = runs[-1]
            self.end = ShardEnd(self.shard, self.start, trail, start + size - 1)
        return blocks

    def take(self, count: int) -> Block:
        """At most `count` rows; `end_at` says up to which of them a batch goes."""
        block, self._trail, self._first = self._reader.take(count)
        return block

    def end_at(self, row: int) -> None:
        """The batch ends with this row of the rows taken last."""
        self.end = ShardEnd(self.shard, self.start, self._trail, self._first + row)


def _open_shard(
    node: physical.Batch, session: RankSession, shard: int, share: int
) -> Iterator[TrailedBlock]:
    """Opens the rows of a shard, after telling the stage below how many rows a batch takes."""
    below = node.input
    if isinstance(below, physical.Segment):
        session.executor.lane(below).blocks.expect(share, aligned=below.stage.one_to_one)
    return session.of_shard(shard).open(below, session.start_of(shard).cursor).blocks()


def positions_of(readers: list[ShardReader]) -> Callable[[], Positions]:
    """Finds the positions of shards as they are now; called only when the state is asked for."""
    ends = [(reader.shard, reader.start, reader.end) for reader in readers]

    def positions() -> Positions:
        found: Positions = {}
        for shard, start, end in ends:
            found |= {str(shard): start} if end is None else end()
        return found

    return positions
