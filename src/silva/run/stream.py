"""One epoch of one rank: opens the physical plan, and hands out its batches in order, with the
positions of the shards after each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import compress, islice, repeat
from operator import length_hint
from typing import Any

from silva.errors import PlanError, RowError
from silva.lifetime import Thread, join_all
from silva.physical import plan as physical
from silva.physical.stage.context import Context
from silva.run.executor import Executor, nobody_waits
from silva.run.failures import DeferredFailures, Failures
from silva.run.flows.batch import BatchFlow, BlockBatches, BlockItems, FixedBatchFlow, single_rows
from silva.run.flows.batch_segment import BatchSegmentFlow, TakeBatchesFlow
from silva.run.flows.bucket import BucketFlow, TokenBatchFlow
from silva.run.flows.flow import Cursor, Flow, Positions, RankSession, RankShards, Session
from silva.run.flows.mix import MixFlow
from silva.run.flows.segment import open_segment
from silva.run.flows.sequence import ConcatFlow, SkipFlow, TakeFlow, ZipFlow
from silva.run.flows.units import UnitsFlow
from silva.run.flows.windows import PackFlow, WindowsFlow

ROW_FLOWS: dict[type[physical.PhysicalNode], Callable[[Any, Session, Cursor], Flow]] = {
    physical.Segment: open_segment,
    physical.ChunkedFeed: UnitsFlow,
    physical.Windows: WindowsFlow,
    physical.Take: TakeFlow,
    physical.SkipRows: SkipFlow,
    physical.Concat: ConcatFlow,
    physical.Zip: ZipFlow,
    physical.Mix: MixFlow,
    physical.Pack: PackFlow,
}
"""What opens each type of node that yields rows; caches are imported when there is one."""


def open_flow(node: physical.PhysicalNode, session: Session, cursor: Cursor) -> Flow:
    """The flow of a node of rows for one shard, continuing from `cursor` (None: the start)."""
    match node:
        case physical.Segment(input=physical.CacheRows() as cache) if cache.spec.planned:
            from silva.run.flows.planned_cache import open_planned_cache

            return open_planned_cache(node, cache, session, cursor)
        case physical.CacheRows():
            from silva.run.flows.cache import open_cache

            return open_cache(node, session, cursor)
    return ROW_FLOWS[type(node)](node, session, cursor)


def open_batches(node: physical.PhysicalNode, session: RankSession) -> BatchFlow | None:
    """The flow of a node of batches for one rank, continuing from where its session starts; None
    for a node that yields rows."""
    match node:
        case physical.Batch() if node.spec.tokens is not None:
            return TokenBatchFlow(node, session)
        case physical.Batch():
            return FixedBatchFlow(node, session)
        case physical.Bucket():
            return BucketFlow(node, session)
        case physical.BatchSegment():
            deferred = DeferredFailures(session.failures)
            below = open_batches(node.input, replace(session, failures=deferred))
            assert below is not None
            return BatchSegmentFlow(node, session, below, deferred)
        case physical.Take():
            below = open_batches(node.input, session)
            return below and TakeBatchesFlow(node.count - session.done, below)
    return None


class Stream:
    """Iterates over the batches (or rows) of an epoch; `positions()` are valid after each."""

    def __init__(
        self,
        plan: physical.PhysicalNode,
        executor: Executor,
        context: Context,
        rank: RankShards,
        failures: Failures,
        start: Positions,
        *,
        step: int = 0,
        most: int | None = None,
        as_blocks: bool = False,
    ) -> None:
        """`step`: batches of the epoch that were handed out before `start`. `most`: batches of the
        epoch that every rank can fill; shards differ by a row. `as_blocks`: batches are given as
        the blocks that they are made of."""
        self._plan = plan
        self._session = RankSession(executor, open_flow, context, rank, failures, start, step)
        self._failures = failures
        self._most = None if most is None else most - step
        self._as_blocks = as_blocks
        self._block: BlockItems | None = None
        self._to_give = repeat(True, sys.maxsize)
        """Loses one item for each batch of this block that is handed out."""
        self._before = 0
        """Batches of earlier blocks."""

    @property
    def _given(self) -> int:
        """Batches of this block that were handed out."""
        return sys.maxsize - length_hint(self._to_give)

    @property
    def count(self) -> int:
        """Batches (or rows) handed out so far."""
        return self._before + self._given

    def positions(self) -> Positions:
        """Where the shards stand after what was handed out last."""
        return self._session.start if self._block is None else self._block.positions(self._given)

    def __iter__(self) -> Iterator[Any]:
        return self._hand_out(self._blocks())

    def _blocks(self) -> Iterator[BlockItems]:
        plan, session = self._plan, self._session
        if self._as_blocks:
            if not isinstance(plan, physical.Batch) or not self._has_one_size(plan):
                raise PlanError("blocks are given of rows in batches of one size, on one rank")
            batches: BatchFlow | None = FixedBatchFlow(plan, session, as_blocks=True)
        else:
            batches = open_batches(plan, session)
        if batches is None:
            return single_rows(plan, session)
        made = batches.batches()
        return made if self._most is None else _first_batches(made, self._most)

    def _has_one_size(self, plan: physical.Batch) -> bool:
        rank = self._session.rank
        return plan.spec.tokens is None and len(rank.mine) == 1 and not rank.pads

    def _hand_out(self, blocks: Iterator[BlockItems]) -> Iterator[Any]:
        try:
            for block in blocks:
                self._before, self._block = self.count, block
                self._to_give = repeat(True, sys.maxsize)
                shown = self._judged(block) if self._failures.unjudged else block.shown()
                yield from compress(shown, self._to_give)  # counts without a step of Python
        except RowError as error:
            self._failures.note_end(error)
            raise
        if self._failures.total:
            self._failures.judge(self._failures.total, _seen(self.positions()), at_end=True)

    def _judged(self, block: BlockItems) -> Iterator[Any]:
        """The batches of a block, each once the share of failed rows up to its end is found to be
        small enough."""
        for given, batch in enumerate(block.shown(), 1):
            if self._failures.unjudged:
                at = block.positions(given)
                self._failures.judge(sum(shard.failed for shard in at.values()), _seen(at))
            yield batch


def _seen(positions: Positions) -> int:
    """Rows that all shards have read up to these positions."""
    return sum(at.seen for at in positions.values())


def _first_batches(blocks: Iterator[BlockBatches], most: int) -> Iterator[BlockBatches]:
    """The first batches. The few rows after them are read and dropped, so that a pipeline that does
    not end as it should is an error on every rank."""
    for block in blocks:
        if most > 0:
            first = block.first(most)
            most -= first.count
            yield first


class NextEpoch:
    """The stream of the next epoch: a thread makes its first batch while the trainer works between
    the epochs."""

    def __init__(self, epoch: int, stream: Stream) -> None:
        self.epoch = epoch
        self.stream = stream
        self._batches = iter(stream)
        self._first: list[Any] = []
        self._error: BaseException | None = None
        self._thread = Thread(self._start, "ahead")
        self._thread.start()

    def _start(self) -> None:
        nobody_waits.set(True)
        try:
            self._first = list(islice(self._batches, 1))
        except BaseException as error:  # noqa: BLE001  raised again when the epoch begins
            self._error = error

    def batches(self) -> Iterator[dict[str, Any]]:
        """The epoch, from its first batch on."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        while self._first:
            yield self._first.pop()  # nobody holds it for the rest of the epoch
        yield from self._batches

    def drop(self) -> None:
        """Gives up the epoch; its workers have been ended before."""
        join_all([self._thread])
        close = getattr(self._batches, "close", None)
        if close is not None and not self._thread.is_alive():
            close()
