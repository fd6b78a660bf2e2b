"""Rows into batches: a fixed number from each shard, or as many as a token budget allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from silva.columns import Array, Block
from silva.errors import PlanError
from silva.physical import plan as physical
from silva.physical.stage.batch_value import batch_value
from silva.plan.schema import MASK
from silva.run.flows.batches import BatchRun, Made, OneBatch, ShardEnd, SlicedBatches
from silva.run.flows.lengths import item_lengths
from silva.run.flows.trail import OpenFlow, Piece, Reader
from silva.run.session import Positions, RankSession

_TOKEN_ROWS = 64
"""Rows that a batch of a token budget is expected to take; blocks are sized by it."""
_READ_ROWS = 256
"""Rows whose lengths are looked at together."""


class FixedBatchFlow:
    """Batches of a fixed number of rows, the same number from each shard of the rank."""

    def __init__(
        self,
        node: physical.Batch,
        session: RankSession,
        open_flow: OpenFlow,
        as_blocks: bool = False,
    ) -> None:
        """`as_blocks`: batches stay the blocks that they are made of."""
        self._node, self._session, self._open = node, session, open_flow
        self._spec = node.spec
        self._blocks = as_blocks or node.spec.collate is not None

    def runs(self) -> Iterator[BatchRun]:
        rank = self._session.rank
        if len(rank.mine) == 1 and not rank.pads:
            return self._runs_of_one_shard(rank.mine[0])
        return self._batches_of_all_shards()

    def _runs_of_one_shard(self, shard: int) -> Iterator[BatchRun]:
        """Slices of the blocks of the flow below; a batch that spans blocks is joined."""
        size = self._share()
        sliceable = not self._blocks and not self._spec.grouped
        start = self._session.start_of(shard)
        rest: list[Block] = []
        count = 0
        for piece in _open_shard(self._node, self._session, self._open, shard, size):
            block, at = piece.block, 0
            if count:
                at = min(size - count, len(block))
                rest.append(block.slice(0, at))
                count += at
                end = ShardEnd(shard, start, piece.trail, at - 1)
                if count < size:
                    continue
                yield OneBatch(self._make(Block.concat(rest)), end)
                rest, count = [], 0
            whole = (len(block) - at) // size
            if whole:
                begin = ShardEnd(shard, start, piece.trail, at - 1)
                yield SlicedBatches(begin, block, size, whole, self._make, sliceable)
            at += whole * size
            if at < len(block):
                rest, count = [block.slice(at, len(block))], len(block) - at
                end = ShardEnd(shard, start, piece.trail, len(block) - 1)
        if count and not self._spec.drop_last:
            yield OneBatch(self._make(Block.concat(rest)), end)

    def _batches_of_all_shards(self) -> Iterator[BatchRun]:
        share = self._share()
        readers = [
            ShardReader(self._node, self._session, self._open, shard, share)
            for shard in self._session.rank.mine
        ]
        while True:
            given = [reader.gather(share) for reader in readers]
            blocks = [block for several in given for block in several]
            short = any(sum(map(len, several)) < share for several in given)
            if not blocks or (short and self._spec.drop_last):
                return
            batch = Block.concat(blocks)
            padded = batch if self._blocks else self._padded(batch)
            yield OneBatch(self._make(padded), _positions(readers))

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


class TokenBatchFlow:
    """Batches in which rows × the longest row stay within a budget; a row that is longer by itself
    is a batch of its own."""

    def __init__(self, node: physical.Batch, session: RankSession, open_flow: OpenFlow) -> None:
        self._node, self._session, self._open = node, session, open_flow

    def runs(self) -> Iterator[BatchRun]:
        rank, spec = self._session.rank, self._node.spec
        if len(rank.mine) > 1 or rank.world > 1:
            raise PlanError("batch(tokens=…) works on one shard; use batch(n) with several ranks")
        assert spec.tokens is not None
        assert spec.by is not None
        shard = ShardReader(self._node, self._session, self._open, rank.mine[0], _TOKEN_ROWS)
        waiting: list[Block] = []
        longest, count = 0, 0
        while shard.available():
            block = shard.take(_READ_ROWS)
            begin = 0
            for i, length in enumerate(item_lengths(block, spec.by, spec.axis)):
                if count and max(longest, length) * (count + 1) > spec.tokens:
                    waiting.append(block.slice(begin, i))
                    if i:
                        shard.end_at(i - 1)
                    yield OneBatch(self._make(waiting), _positions([shard]))
                    waiting, longest, count, begin = [], 0, 0, i
                longest, count = max(longest, length), count + 1
            shard.end_at(len(block) - 1)
            waiting.append(block.slice(begin, len(block)))
        if count:
            yield OneBatch(self._make(waiting), _positions([shard]))

    def _make(self, blocks: list[Block]) -> Made:
        spec = self._node.spec
        block = Block.concat([block for block in blocks if len(block)])
        return block if spec.collate is not None else batch_value(block, spec.pad, spec.grouped)


class ShardReader:
    """The rows of one shard, and the position after the last one that went into a batch."""

    def __init__(
        self,
        node: physical.Batch,
        session: RankSession,
        open_flow: OpenFlow,
        shard: int,
        share: int,
    ) -> None:
        self.shard = shard
        self.start = session.start_of(shard)
        self._reader = Reader(_open_shard(node, session, open_flow, shard, share))
        self.end: ShardEnd | None = None

    def gather(self, count: int) -> list[Block]:
        """The next `count` rows, or as many as there are; all of them go into the batch."""
        blocks, runs = self._reader.gather(count)
        if runs:
            trail, start, size = runs[-1]
            self.end = ShardEnd(self.shard, self.start, trail, start + size - 1)
        return blocks

    def available(self) -> int:
        return self._reader.available()

    def take(self, count: int) -> Block:
        """At most `count` rows; `end_at` says up to which of them a batch goes."""
        block, self._trail, self._first = self._reader.take(count)
        return block

    def end_at(self, row: int) -> None:
        """The batch ends with this row of the rows taken last."""
        self.end = ShardEnd(self.shard, self.start, self._trail, self._first + row)


def _open_shard(
    node: physical.Batch, session: RankSession, open_flow: OpenFlow, shard: int, share: int
) -> Iterator[Piece]:
    """Opens the rows of a shard, after telling the stage below how many rows a batch takes."""
    below = node.input
    if isinstance(below, physical.Segment):
        session.executor.lane(below).blocks.expect(share, aligned=below.stage.one_to_one)
    return open_flow(below, session.of_shard(shard), session.start_of(shard).cursor).pieces()


def _positions(readers: list[ShardReader]) -> Callable[[], Positions]:
    ends = [(reader.shard, reader.start, reader.end) for reader in readers]

    def positions() -> Positions:
        found: Positions = {}
        for shard, start, end in ends:
            found |= {str(shard): start} if end is None else end()
        return found

    return positions
