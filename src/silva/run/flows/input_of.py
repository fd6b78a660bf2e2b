"""Opens the input of a segment: what its worker reads itself, or another flow's blocks."""

from __future__ import annotations

from typing import Any

from silva.physical import plan as physical
from silva.run.flows.inputs import BlocksInput, Input
from silva.run.flows.places import PlacesInput
from silva.run.flows.trail import State
from silva.run.flows.units import UnitsFlow, UnitsInput
from silva.run.session import Session


def open_input(node: physical.Segment, session: Session, open_flow: Any, state: State) -> Input:
    """The input of a segment, continuing from its state."""
    if isinstance(node.input, physical.IndexedFeed):
        return PlacesInput(node.input, session, state)
    if isinstance(node.input, physical.ChunkedFeed) and node.stage.read is not None:
        return UnitsInput(UnitsFlow(node.input, session, state))
    flow = open_flow(node.input, session, state)
    return BlocksInput(flow.pieces(), flow.fetch, node.whole)
