"""Opens a physical node at a state: a table from node type to flow."""

from __future__ import annotations

from typing import Any

from silva.physical import plan as physical
from silva.run.flows.cache import CacheFlow
from silva.run.flows.input_of import open_input
from silva.run.flows.mix import MixFlow
from silva.run.flows.pack import PackFlow
from silva.run.flows.planned_cache import PlannedCacheFlow, has_planned_cache
from silva.run.flows.segment import SegmentFlow, inner_state
from silva.run.flows.sequence import ConcatFlow, SkipFlow, TakeFlow, WindowsFlow, ZipFlow
from silva.run.flows.trail import Flow, State
from silva.run.flows.units import UnitsFlow
from silva.run.session import Session

_FLOWS: dict[type, Any] = {
    physical.Windows: WindowsFlow,
    physical.Take: TakeFlow,
    physical.Skip: SkipFlow,
    physical.Concat: ConcatFlow,
    physical.Zip: ZipFlow,
    physical.Mix: MixFlow,
    physical.Pack: PackFlow,
    physical.CacheRows: CacheFlow,
}


def open_flow(node: Any, session: Session, state: State) -> Flow:
    """The flow of a row-level node for one shard, continuing from `state` (None: the start)."""
    if isinstance(node, physical.Segment) and has_planned_cache(node):
        return PlannedCacheFlow(node, session, open_flow, state)
    if isinstance(node, physical.Segment):
        inner = inner_state(node, session, state)
        source = open_input(node, session, open_flow, inner)
        return SegmentFlow(node, session, source, state)
    if isinstance(node, physical.ChunkedFeed):
        return UnitsFlow(node, session, state)
    flow: Flow = _FLOWS[type(node)](node, session, open_flow, state)
    return flow
