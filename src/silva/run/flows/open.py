"""Opens a physical node at a state: one flow for each type of node."""

from __future__ import annotations

from silva.physical import plan as physical
from silva.run.flows.batch import FixedBatchFlow, TokenBatchFlow
from silva.run.flows.batch_segment import BatchSegmentFlow, TakeBatchesFlow
from silva.run.flows.batches import BatchFlow
from silva.run.flows.bucket import BucketFlow
from silva.run.flows.cache import CacheFlow
from silva.run.flows.mix import MixFlow
from silva.run.flows.pack import PackFlow
from silva.run.flows.planned_cache import PlannedCacheFlow
from silva.run.flows.segment import open_segment
from silva.run.flows.sequence import ConcatFlow, SkipFlow, TakeFlow, ZipFlow
from silva.run.flows.trail import Cursor, Flow
from silva.run.flows.units import UnitsFlow
from silva.run.flows.windows import WindowsFlow
from silva.run.session import RankSession, Session


def open_flow(node: physical.PhysicalNode, session: Session, cursor: Cursor) -> Flow:
    """The flow of a node of rows for one shard, continuing from `cursor` (None: the start)."""
    match node:
        case physical.Segment(input=physical.CacheRows() as cache) if cache.spec.planned:
            return PlannedCacheFlow(node, session, open_flow, cursor)
        case physical.Segment():
            return open_segment(node, session, open_flow, cursor)
        case physical.CacheRows():
            return CacheFlow(node, session, open_flow, cursor)
        case physical.ChunkedFeed():
            return UnitsFlow(node, session, cursor)
        case physical.Windows():
            return WindowsFlow(node, session, open_flow, cursor)
        case physical.Take():
            return TakeFlow(node, session, open_flow, cursor)
        case physical.SkipRows():
            return SkipFlow(node, session, open_flow, cursor)
        case physical.Concat():
            return ConcatFlow(node, session, open_flow, cursor)
        case physical.Zip():
            return ZipFlow(node, session, open_flow, cursor)
        case physical.Mix():
            return MixFlow(node, session, open_flow, cursor)
        case physical.Pack():
            return PackFlow(node, session, open_flow, cursor)
    raise TypeError(f"{type(node).__name__} gives no rows")


def open_batches(node: physical.PhysicalNode, session: RankSession) -> BatchFlow:
    """The flow of a node of batches for one rank, continuing from where its session starts."""
    match node:
        case physical.Batch() if node.spec.tokens is not None:
            return TokenBatchFlow(node, session, open_flow)
        case physical.Batch():
            return FixedBatchFlow(node, session, open_flow)
        case physical.Bucket():
            return BucketFlow(node, session, open_flow)
        case physical.BatchSegment():
            return BatchSegmentFlow(node, session, open_batches)
        case physical.Take():
            return TakeBatchesFlow(node, session, open_batches)
    raise TypeError(f"{type(node).__name__} gives no batches")


def makes_batches(node: physical.PhysicalNode) -> bool:
    """Whether a node yields batches; a `Take` yields what its input does."""
    if isinstance(node, physical.Take):
        return makes_batches(node.input)
    return isinstance(node, physical.Batch | physical.Bucket | physical.BatchSegment)
