"""What was measured, by step: from the lanes of this run, and from the book of earlier ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from silva.plan.fingerprint import digest, opaque_parts
from silva.plan.node import Derive, Filter, Source, Step
from silva.plan.traits import traits
from silva.profile.book import Book
from silva.profile.costs import Cost
from silva.run.lane import Lane

_OCTAVES = 41
"""Up to a terabyte."""
READ = "read"
LATE = "read late"


@dataclass(frozen=True)
class DevicePace:
    """Seconds that a byte takes of where rows come from; 0 where that is not known."""

    disk: float = 0.0
    network: float = 0.0

    def seconds(self, cost: Cost) -> float:
        """That a row takes of both.

        >>> DevicePace(network=1e-6).seconds(Cost(rows=10, network=10_000))
        0.001
        """
        return (cost.disk * self.disk + cost.network * self.network) / max(cost.rows, 1)


@dataclass
class Measured:
    """Costs of the steps of one stretch of a plan, above one source."""

    read: Cost = field(default_factory=Cost)
    late: Cost = field(default_factory=Cost)
    """Of columns that cost much and are read after the filters."""
    steps: dict[str, Cost] = field(default_factory=dict)
    """By the id of a derivation or filter."""
    pace: DevicePace = DevicePace()

    def updated(self, later: Measured) -> Measured:
        """With what was measured later in place of what was known before."""
        return Measured(
            later.read if later.read.rows else self.read,
            later.late if later.late.rows else self.late,
            {**self.steps, **later.steps},
            later.pace,
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
            found.pace = DevicePace(*lane.device_seconds)
    return found


def _runs(step: Any) -> Any:
    """The function or expression that a step of a stage runs."""
    for name in ("function", "term", "step"):
        if hasattr(step, name):
            return getattr(step, name)
    return None


def from_book(book: Book, source: Source, steps: Iterable[Derive | Filter]) -> Measured:
    """What earlier runs saw of the same steps over the same source; or over another one, as it
    would be for rows of this source's size, where that is known."""
    found = Measured()
    origin = _origin(source)
    found.read = book.get(_key(origin, READ)) or Cost()
    found.late = book.get(_key(origin, LATE)) or Cost()
    sizes = _source_sizes(source, found)
    for step in steps:
        own = step_key(origin, step.step)
        read = [sizes.get(name) for name in traits(step).reads]
        size = None if None in read else sum(one or 0.0 for one in read)
        known = None if own is None else book.get(own)
        if own is not None and known is None and size is not None:
            known = _elsewhere(book, step.step, size)
        if known is None:
            continue
        found.steps[step.id] = known
        sizes |= {name: known.bytes_a_row(name) for name in getattr(step, "into", ())}
    return found


def _origin(source: Source) -> str:
    """By what costs over a source are remembered."""
    sketch: Callable[[], str] = getattr(source.source, "sketch", source.source.fingerprint)
    return sketch()


def _source_sizes(source: Source, found: Measured) -> dict[str, float]:
    """Bytes of a row by column, as an earlier run or the source itself knows them."""
    tells = getattr(source.source, "row_bytes", None)
    sizes: dict[str, float] = {} if tells is None else dict(tells())
    for cost in (found.read, found.late):
        sizes |= {name: cost.bytes_a_row(name) for name in cost.columns}
    return sizes


def _elsewhere(book: Book, step: Step, size: float) -> Cost | None:
    """A step over whatever sources it was seen with: the nearest in size, with what those of other
    sizes tell of how it grows."""
    middle = _octave(size)
    near = sorted(range(_OCTAVES), key=lambda octave: (abs(octave - middle), octave))
    seen = [cost for octave in near if (cost := book.get(_size_key(step, octave))) is not None]
    return seen[0].resized(size, seen[1:]) if seen else None


def _octave(size: float) -> int:
    """Sizes that differ by less than a factor of two are mostly of one.

    >>> _octave(0), _octave(1000), _octave(1100), _octave(2000)
    (0, 10, 10, 11)
    """
    return min(max(round(math.log2(max(size, 1.0))), 0), _OCTAVES - 1)


def write_down(
    book: Book, source: Source, steps: Iterable[Derive | Filter], found: Measured
) -> None:
    """Keeps what was measured for the runs to come."""
    origin = _origin(source)
    for name, cost in ((READ, found.read), (LATE, found.late)):
        if cost.rows:
            book.put(_key(origin, name), cost)
    for step in steps:
        key, seen = step_key(origin, step.step), found.steps.get(step.id)
        if key is not None and seen is not None and seen.rows:
            book.put(key, seen)
            if seen.by_size.rows:
                book.put(_size_key(step.step, _octave(seen.by_size.size)), seen)


def step_key(origin: str, step: Step) -> str | None:
    """The identity of a step over a source; None where it has none beyond this process."""
    return None if opaque_parts(step) else _key(origin, digest(step))


def _size_key(step: Step, octave: int) -> str:
    """The identity of a step over rows of about one size, of any source."""
    return _key(f"rows of 2^{octave} bytes", digest(step))


def _key(origin: str, what: str) -> str:
    return digest((origin, what))
