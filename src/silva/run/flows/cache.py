"""Rows kept after their first computation (see `rowstore`)."""

from __future__ import annotations

from typing import Any

from silva.physical import plan as physical
from silva.run.flows.trail import Flow, State
from silva.run.session import Session


def CacheFlow(node: physical.CacheRows, session: Session, open_flow: Any, state: State) -> Flow:
    flow: Flow = open_flow(node.input, session, state)
    return flow
