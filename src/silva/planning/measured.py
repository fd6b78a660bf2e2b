"""What was measured, by step: from the lanes of this run, and from the book of earlier ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from silva.plan.fingerprint import digest, opaque_parts
from silva.plan.node import Derive, Filter, Source, Step
from silva.profile.book import Book
from silva.profile.costs import Cost
from silva.run.lane import Lane

READ = "read"
LATE = "read late"


@dataclass
class Measured:
    """Costs of the steps of one stretch of a plan, above one source."""

    read: Cost = field(default_factory=Cost)
    late: Cost = field(default_factory=Cost)
    """Of columns that cost much and are read after the filters."""
    steps: dict[str, Cost] = field(default_factory=dict)
    """By the id of a derivation or filter."""
    lock_share: float | None = None

    def updated(self, later: Measured) -> Measured:
        """With what was measured later in place of what was known before."""
        return Measured(
            later.read if later.read.rows else self.read,
            later.late if later.late.rows else self.late,
            {**self.steps, **later.steps},
            self.lock_share if later.lock_share is None else later.lock_share,
        )

    def knows(self, steps: Iterable[Derive | Filter]) -> bool:
        return all(self.steps.get(s.id, _NOTHING).rows for s in steps)


_NOTHING = Cost()


def from_lanes(lanes: Iterable[Lane], steps: Iterable[Derive | Filter]) -> Measured:
    """What the lanes saw of these steps. Two pipelines of a mix may have steps of one name, so they
    are known by what they run."""
    found = Measured()
    names = {id(step.step): step.id for step in steps}
    for lane in lanes:
        ran = [_runs(step) for step in getattr(lane.stage, "steps", ())]
        costs = lane.stats.steps
        mine = [names[id(what)] for what in ran if id(what) in names]
        for what, cost in zip(ran, costs[1:], strict=False):
            if id(what) in names and cost.rows:
                found.steps[names[id(what)]] = cost.copy()
        if mine and getattr(lane.stage, "read", None) is not None and costs:
            found.read, found.late = costs[0].copy(), lane.stats.late.copy()
        if mine and lane.probe is not None and lane.probe.seconds:
            found.lock_share = max(found.lock_share or 0.0, lane.probe.share)
    return found


def _runs(step: Any) -> Any:
    """The function or expression that a step of a stage runs."""
    for name in ("function", "term", "step"):
        if hasattr(step, name):
            return getattr(step, name)
    return None


def from_book(book: Book, source: Source, steps: Iterable[Derive | Filter]) -> Measured:
    """What earlier runs saw of the same steps over the same source."""
    found = Measured()
    origin = source.source.fingerprint()
    for name, key in ((READ, _key(origin, READ)), (LATE, _key(origin, LATE))):
        cost = book.get(key)
        if cost is not None and name == READ:
            found.read = cost
        elif cost is not None:
            found.late = cost
    for step in steps:
        own = step_key(origin, step.step)
        known = None if own is None else book.get(own)
        if known is not None:
            found.steps[step.id] = known
    return found


def write_down(
    book: Book, source: Source, steps: Iterable[Derive | Filter], found: Measured
) -> None:
    """Keeps what was measured for the runs to come."""
    origin = source.source.fingerprint()
    for name, cost in ((READ, found.read), (LATE, found.late)):
        if cost.rows:
            book.put(_key(origin, name), cost)
    for step in steps:
        key, seen = step_key(origin, step.step), found.steps.get(step.id)
        if key is not None and seen is not None and seen.rows:
            book.put(key, seen)


def step_key(origin: str, step: Step) -> str | None:
    """The identity of a step over a source; None where it has none beyond this process."""
    return None if opaque_parts(step) else _key(origin, digest(step))


def _key(origin: str, what: str) -> str:
    return digest((origin, what))
