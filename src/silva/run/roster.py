"""The actors of a pool: who is in which place, who follows whom, and who has room for a task."""

from __future__ import annotations

import time
from collections import deque

from silva.run.seat import Seat

_AHEAD = 2
"""Tasks that an actor holds: the one it does and the next."""
_IDLE_SECONDS = 10.0
"""After so long an actor that is not needed gives its CPU back."""


class Roster:
    """All of it is changed on the pool's thread, and may be looked at from any."""

    def __init__(self, width: int) -> None:
        self.seats: list[Seat | None] = [None] * width
        self.retired: list[Seat] = []
        """Whose places others have: they finish what they are at."""
        self.free: deque[Seat] = deque()
        """A place for one more task each, those of idle actors first."""
        self.there = 0
        """Actors that have started."""

    def everybody(self) -> list[Seat]:
        """All that may have tasks."""
        return [*(seat for seat in self.seats if seat is not None), *self.retired]

    def ready(self) -> list[Seat]:
        """Those that have started, but for the retired."""
        return [seat for seat in self.seats if seat is not None and seat.ready]

    def vacant(self, wanted: int) -> list[int]:
        """Of the first so many places, those where nobody is."""
        return [number for number in range(wanted) if self.seats[number] is None]

    def welcome(self, seat: Seat) -> Seat | None:
        """An actor has started. If it is the heir of another, it takes the place of that one, which
        is given."""
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
        """An actor has done a task."""
        seat.used_at = time.monotonic()
        if seat.more:
            seat.more -= 1
        elif seat.tasks:
            self.free.append(seat)
        else:
            self.free.appendleft(seat)

    def unpark(self, used: int) -> None:
        """The first so many may be given tasks."""
        for seat in self.seats[:used]:
            if seat is not None and seat.parked:
                self.free.extend([seat] * seat.parked)
                seat.parked = 0

    def leave(self, seat: Seat) -> None:
        """An actor is gone; its heir, if there is one, has its place."""
        self.there -= seat.ready
        before = self.seats[seat.number]
        if seat.retired:
            self.retired.remove(seat)
        elif before is seat:
            self.seats[seat.number] = seat.heir
        elif before is not None and before.heir is seat:
            before.heir = None  # who it was to follow gets another


def is_idle(seat: Seat, used: int, now: float) -> bool:
    """Whether it is not among the first so many, and has had nothing to do for long."""
    unused = seat.number >= used and seat.ready and not seat.tasks
    return unused and now - seat.used_at > _IDLE_SECONDS
