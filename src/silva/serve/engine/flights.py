"""Requests on their way through the units of a plan, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from silva.physical.stage.context import Failure
from silva.serve.deadline import Limit
from silva.serve.engine.units import Part, Row
from silva.serve.tenant import NOBODY, Tenant


@dataclass(frozen=True)
class Outcome:
    """How a request ended: with rows, dropped by a filter, or with failures."""

    rows: list[Row]
    dropped_by: str | None = None
    failures: tuple[Failure, ...] = ()
    exploded: bool = False
    """Whether a step made several rows of the request."""
    substituted: bool = False
    """Whether a substitute took the place of all that failed."""


class Late(Exception):
    """The deadline of a request has passed."""

    def __init__(self, waits_for: str) -> None:
        super().__init__(f"the deadline has passed; the request waits for `{waits_for}`")
        self.waits_for = waits_for
        self.waits_for = waits_for


@dataclass(eq=False, kw_only=True)
class Flight(Part):
    """A request on its way."""

    done: asyncio.Future[Outcome]
    began: float
    deadline: float
    """When it must have ended, on the clock of the engine."""
    left: list[int]
    """For each unit, how many others it still waits for."""
    stop: int
    """How many units must run: all, or those up to the first one that fails or drops it. Units that
    ran at the same time as others do not decide which failure a client sees."""
    tenant: Tenant = NOBODY
    """Who asks. Requests of several tenants share no calls."""
    running: set[int] = field(default_factory=set)
    """The units that it waits for."""
    ended: int = 0
    """The units that have run, as bits."""
    errors: dict[int, Exception] = field(default_factory=dict)
    """What units raised that is not the failure of a row, by their number."""

    @property
    def over(self) -> bool:
        return self.done.done()

    def passed(self, number: int, *, last: bool) -> None:
        """Notes that a unit has run; the `last` one makes all after it needless."""
        self.ended |= 1 << number
        if last:
            self.stop = min(self.stop, number + 1)

    @property
    def is_through(self) -> bool:
        """Whether all units have run that must."""
        needed = (1 << self.stop) - 1
        return self.ended & needed == needed

    def outcome(self, columns: Sequence[str], *, substitutes: bool) -> Outcome:
        """How it ended, with these columns."""
        exploded = self.places is not None
        if not self.failures:
            rows = [{name: row[name] for name in columns} for row in self.rows]
            return Outcome(rows, self.dropped_by, exploded=exploded)
        found = [one for n in sorted(self.failures) if n < self.stop for one in self.failures[n]]
        failed = self.lost or (bool(found) and not substitutes)
        rows = [] if failed else [{name: row[name] for name in columns} for row in self.rows]
        return Outcome(rows, self.dropped_by, tuple(found), exploded, bool(found) and not failed)


@dataclass(eq=False)
class Batch:
    """Requests whose rows a unit runs on at once."""

    flights: list[Flight]
    limit: Limit
    thread: int | None = None
    """The thread that runs it, once it has begun."""
    is_abandoned: bool = False
    """Whether nobody awaits it, and its slot was given to others while it still runs."""
