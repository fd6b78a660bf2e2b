"""Opens a physical node at a state: a table from node type to flow."""

from __future__ import annotations

from typing import Any

from silva.physical import plan as physical
from silva.run.flows.cache import CacheFlow
from silva.run.flows.feeds import PlacesInput, UnitsFlow
from silva.run.flows.mix import MixFlow
from silva.run.flows.pack import PackFlow
from silva.run.flows.segment import BlocksInput, SegmentFlow, inner_state
from silva.run.flows.sequence import ConcatFlow, SkipFlow, TakeFlow, WindowsFlow, ZipFlow
from silva.run.flows.trail import Flow, State
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
    if isinstance(node, physical.Segment):
        source = open_input(node, session, inner_state(node, session, state))
        return SegmentFlow(node, session, source, state)
    if isinstance(node, physical.ChunkedFeed):
        return UnitsFlow(node, session, state)
    flow: Flow = _FLOWS[type(node)](node, session, open_flow, state)
    return flow


def open_input(node: physical.Segment, session: Session, state: State) -> PlacesInput | BlocksInput:
    """The input of a segment: places in an order, or another flow's blocks."""
    if isinstance(node.input, physical.IndexedFeed):
        return PlacesInput(node.input, session, state)
    return BlocksInput(open_flow(node.input, session, state), node.whole)
