"""The actors of a pool: their places, their replacements, which of them has room for a task, and
what errors say about them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError

from silva.errors import WorkerError
from silva.run.pools.processes import ATTEMPTS
from silva.run.pools.task import Task
from silva.run.ray.buffers import Unpacker
from silva.run.ray.cluster import Cluster

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
    """The first line of one of Ray's errors, which have many lines."""
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


_AHEAD = 2
"""Tasks that an actor has: the one it runs and the next."""
_IDLE_SECONDS = 10.0
"""Seconds after which an actor that is not needed is ended, to free its CPU."""


class Roster:
    """Changed on the pool's thread only; may be read from any thread."""

    def __init__(self, width: int) -> None:
        self.seats: list[Seat | None] = [None] * width
        self.retired: list[Seat] = []
        """Actors that were replaced and only finish their tasks."""
        self.free: deque[Seat] = deque()
        """One entry for each further task that an actor may get, idle actors first."""
        self.there = 0
        """Actors that have started."""

    def everybody(self) -> list[Seat]:
        """All actors that may have tasks."""
        return [*(seat for seat in self.seats if seat is not None), *self.retired]

    def ready(self) -> list[Seat]:
        """The actors that have started and are not retired."""
        return [seat for seat in self.seats if seat is not None and seat.ready]

    def vacant(self, wanted: int) -> list[int]:
        """The empty places among the first `wanted`."""
        return [number for number in range(wanted) if self.seats[number] is None]

    def welcome(self, seat: Seat) -> Seat | None:
        """Adds an actor that has started. If it replaces another, that one is retired and
        returned."""
        before = self.seats[seat.number]
        follows = before if before is not None and before.heir is seat else None
        if follows is not None:
            self.seats[seat.number], follows.heir = seat, None
            follows.retired = True
            self.retired.append(follows)
        seat.ready, seat.used_at = True, time.monotonic()
        self.there += 1
        self.free.appendleft(seat)
        self.free.extend([seat] * (_AHEAD - 1))
        return follows

    def has_room(self, seat: Seat) -> None:
        """Notes that an actor has finished a task."""
        seat.used_at = time.monotonic()
        if seat.more:
            seat.more -= 1
        elif seat.tasks:
            self.free.append(seat)
        else:
            self.free.appendleft(seat)

    def unpark(self, used: int) -> None:
        """Allows the first `used` actors to get tasks."""
        for seat in self.seats[:used]:
            if seat is not None and seat.parked:
                self.free.extend([seat] * seat.parked)
                seat.parked = 0

    def leave(self, seat: Seat) -> None:
        """Removes an actor that is gone; its replacement, if there is one, takes its place."""
        self.there -= seat.ready
        before = self.seats[seat.number]
        if seat.retired:
            self.retired.remove(seat)
        elif before is seat:
            self.seats[seat.number] = seat.heir
        elif before is not None and before.heir is seat:
            before.heir = None  # who it was to follow gets another


def is_idle(seat: Seat, used: int, now: float) -> bool:
    """Whether an actor is not needed and has been idle for long."""
    unused = seat.number >= used and seat.ready and not seat.tasks
    return unused and now - seat.used_at > _IDLE_SECONDS
