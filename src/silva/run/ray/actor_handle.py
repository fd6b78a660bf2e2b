"""An actor as its pool knows it, and what errors say about actors."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError

from silva.errors import WorkerError
from silva.run.pools.processes import ATTEMPTS
from silva.run.pools.task import Task
from silva.run.ray.cluster import Cluster
from silva.run.ray.same_node import Unpacker

_STACKS_SECONDS = 1.0
"""Time that an actor has to report what it is doing."""


@dataclass(eq=False)
class Seat:
    """One actor, from its start to its end; a replacement has a seat of its own."""

    number: int
    handle: Any
    ready: bool = False
    alive: bool = True
    node: str = ""
    process: int = 0
    memory: Unpacker | None = None
    """Memory that it shares with the driver; None on different nodes."""
    known: set[int] = field(default_factory=set)
    """The stages that it was sent."""
    tasks: deque[Task] = field(default_factory=deque)
    parked: int = 0
    """Free places that are not used, since fewer actors are needed."""
    more: int = 0
    """Raced tasks that it has beyond its places."""
    used_at: float = 0.0
    heir: Seat | None = None
    """The replacement that starts on another node, since the actor's node is being drained."""
    retired: bool = False
    """Whether its replacement has started: it only finishes its tasks."""


def first_line(error: BaseException) -> str:
    """An error of Ray's by its first line: it goes on for many."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def lost_on(task: Task, error: BaseException) -> WorkerError:
    """The error for a task that several actors were lost on."""
    what = "actors" if isinstance(error, RayActorError) else "results"
    return WorkerError(
        f"{ATTEMPTS} {what} were lost one after another ({first_line(error)}) while doing "
        f"{task.describe()} in `{task.stage.label}`"
    )


def stacks_of(cluster: Cluster, seats: list[Seat | None]) -> str:
    """The stacks of each actor, as far as it answers."""
    asked: dict[Seat, Any] = {}
    with contextlib.suppress(Exception):  # then none of them answers
        asked = {s: s.handle.stacks.remote() for s in seats if s is not None and s.ready}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_STACKS_SECONDS)
    lines = [cluster.describe()]
    for number, seat in enumerate(seats):
        if seat is None or not seat.ready:
            lines.append(f"actor {number}: not started")
            continue
        try:
            text = ray.get(asked[seat], timeout=0)
        except Exception as error:  # noqa: BLE001  it is for a message about another error
            text = f"  (no answer: {type(error).__name__})"
        lines.append(f"actor {number} (process {seat.process}, node {seat.node[:8]}):\n{text}")
    return "\n".join(lines)
