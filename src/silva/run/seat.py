"""An actor as its pool knows it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from silva.run.parcels import Unpacker
from silva.run.task import Task


@dataclass(eq=False)
class Seat:
    """One actor, from its start to its end; the next in its place is another."""

    number: int
    handle: Any
    ready: bool = False
    alive: bool = True
    node: str = ""
    process: int = 0
    memory: Unpacker | None = None
    """That it shares with the driver, where both are on one node."""
    known: set[int] = field(default_factory=set)
    """Stages that it was sent."""
    tasks: deque[Task] = field(default_factory=deque)
    parked: int = 0
    """Free places that are not given out, since fewer actors are needed."""
    more: int = 0
    """Tasks that it has beside those it has places for: they are raced."""
    used_at: float = 0.0
    heir: Seat | None = None
    """Starts elsewhere, to take its place: its node is about to end."""
    retired: bool = False
    """Its heir is there: it only finishes what it has."""
