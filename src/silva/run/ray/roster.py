"""The actors of a pool: their places, their replacements, and which of them has room for a task."""

from __future__ import annotations

import time
from collections import deque

from silva.run.ray.actor_handle import Seat

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
