"""The measured costs of steps: from the lanes of this run, and from the book of earlier runs."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from silva.cost.costs import Cost
from silva.cost.experiment import LIMITS
from silva.folders import profiles_folder
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import Spread
from silva.plan.fingerprint import digest, opaque_parts
from silva.plan.function import Step
from silva.plan.node import Derive, Filter, Source
from silva.plan.schema import step_reads
from silva.planner.movable_runs import StepRun
from silva.run.placement.lane import Lane

if TYPE_CHECKING:
    from silva.cost.book import Book

_OCTAVES = 41
"""Sizes of rows that are distinguished, as powers of two: up to a terabyte."""
_STRETCH = 0.15
"""Seconds of work between two comparisons of costs: several times a second."""
PLANNING_SHARE = 0.02
"""The share of a run that planning may take: of its seconds of work, and of its rows for a check of
rewrites."""
READ, LATE, LOOP = "read", "read late", "the loop"
DISK, NETWORK = "seconds of the disk", "seconds of the network"


@dataclass(frozen=True)
class DevicePace:
    """Seconds per byte of the devices that rows come from; 0 where that is not known."""

    disk: float = 0.0
    network: float = 0.0

    def seconds(self, cost: Cost) -> tuple[float, float]:
        """Seconds of the disk and of the network per row.

        >>> DevicePace(network=1e-6).seconds(Cost(rows=10, network=10_000))
        (0.0, 0.001)
        """
        rows = max(cost.rows, 1)
        return cost.disk * self.disk / rows, cost.network * self.network / rows

    def updated(self, later: DevicePace) -> DevicePace:
        """These seconds, replaced by later ones where those are known.

        >>> DevicePace(1e-9, 1e-6).updated(DevicePace(network=2e-6))
        DevicePace(disk=1e-09, network=2e-06)
        """
        return DevicePace(later.disk or self.disk, later.network or self.network)


@dataclass
class Measured:
    """The costs of reading a source and of a run of steps above it."""

    read: Cost = field(default_factory=Cost)
    late: Cost = field(default_factory=Cost)
    """The cost of reading expensive columns, after the filters."""
    steps: dict[str, Cost] = field(default_factory=dict)
    """The cost of each derivation and filter, by its id."""
    pace: DevicePace = DevicePace()
    loop: Cost = field(default_factory=Cost)
    """What the consumer's own loop takes for a row of the source."""
    explodes: dict[str, Cost] = field(default_factory=dict)
    """The cost of each explode, by its column; it keeps more rows than come in."""

    def updated(self, later: Measured) -> Measured:
        """These costs, replaced by later ones where there are any."""
        read = later.read if later.read.rows else self.read
        late = later.late if later.late.rows else self.late
        return Measured(
            read,
            _late_beside(read, late),
            {**self.steps, **later.steps},
            self.pace.updated(later.pace),
            later.loop if later.loop.rows else self.loop,
            {**self.explodes, **later.explodes},
        )

    def costs(self) -> dict[str, Cost]:
        """All costs, by name."""
        return {READ: self.read, LATE: self.late, LOOP: self.loop, **self.steps}

    def with_costs(self, costs: Mapping[str, Cost]) -> Measured:
        """The same with other costs, by the same names."""
        steps = {name: costs[name] for name in self.steps}
        return replace(self, read=costs[READ], late=costs[LATE], steps=steps, loop=costs[LOOP])

    def knows(self, steps: Iterable[Derive | Filter]) -> bool:
        return all(self.steps.get(s.id, _NOTHING).rows for s in steps)


_NOTHING = Cost()


def _late_beside(read: Cost, late: Cost) -> Cost:
    """The cost of reading columns late; nothing where reading has them at once, as in a plan whose
    first filter needs them: then the late cost is of a plan before it.

    >>> late = Cost(rows=10, columns={"bytes": 900})
    >>> _late_beside(Cost(rows=10, columns={"path": 90}), late).rows
    10
    >>> _late_beside(Cost(rows=10, columns={"path": 90, "bytes": 900}), late).rows
    0
    """
    return Cost() if late.columns.keys() & read.columns.keys() else late


class Effort(NamedTuple):
    """How much looking and planning there may be."""

    stretch: float = _STRETCH
    """Seconds of work between two comparisons of costs."""
    share: float = PLANNING_SHARE
    """The share of the run's work that planning may take."""
    first: float = LIMITS
    """The share of the work for the first batch that planning before it may take: less than what
    makes a trainer wait."""


def _is_written() -> bool:
    """Whether earlier runs have left costs."""
    try:
        with os.scandir(profiles_folder()) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


class CostSource(Protocol):
    """The source of the costs that the planner uses."""

    @property
    def effort(self) -> Effort:
        """How often costs are compared, and what planning may take."""

    def before(self, run: StepRun) -> Measured:
        """The costs that are known before the first row."""

    def now(self, run: StepRun) -> Measured:
        """The costs that were measured by now, added up since each stage has its steps."""

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        """Saves costs for later runs."""


class MeasuredCosts:
    """Costs measured by the lanes of this run and, from the book, by earlier runs."""

    effort = Effort()

    def __init__(self, lanes: Mapping[str, Lane]) -> None:
        self._lanes = lanes

    @functools.cached_property
    def _book(self) -> Book:
        from silva.cost.book import Book

        return Book()

    def before(self, run: StepRun) -> Measured:
        source = run.source
        if source is None or not _is_written():  # importing the book would delay the first batch
            return Measured()
        return from_book(self._book, source, run.steps)

    def now(self, run: StepRun) -> Measured:
        return from_lanes(list(self._lanes.values()), run.steps)

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        for run, found in zip(runs, known, strict=True):
            if run.source is not None:
                write_down(self._book, run.source, run.steps, found)
        self._book.tidy()


def from_lanes(lanes: Iterable[Lane], steps: Iterable[Derive | Filter]) -> Measured:
    """The costs of these steps as the lanes measured them. Two pipelines of a mix may have steps of
    the same name, so steps are matched by the object that the plan holds."""
    lanes = list(lanes)
    found = Measured(loop=_loop(lanes))
    names = {id(step.step): step.id for step in steps}
    for lane in lanes:
        ran = lane.stage.steps if isinstance(lane.stage, Stage) else ()
        costs = lane.stats.steps
        mine = [names.get(id(step.planned)) for step in ran]
        if not any(mine):
            continue
        for name, step, cost in zip(mine, ran, costs[1:], strict=False):
            if name is not None and cost.rows:
                found.steps[name] = cost.copy()
            elif isinstance(step, Spread) and cost.rows:
                found.explodes[step.column] = cost.copy()
        if getattr(lane.stage, "read", None) is not None and costs:
            found.read, found.late = costs[0].copy(), lane.stats.late.copy()
            found.pace = DevicePace(*lane.device_seconds)
    return found


def _loop(lanes: Iterable[Lane]) -> Cost:
    """What the consumer's own loop took so far. The consumer of a stage may wait for the next one,
    so the shortest time in which stages wait for their consumer is that of the loop."""
    ran = [lane for lane in lanes if lane.stats.blocks]
    if not ran:
        return Cost()
    top = min(ran, key=lambda lane: lane.own.seconds)
    done = top.own.rows / max(top.stats.rows_in, 1)  # the rows in its hands are still to take time
    rows = round(done * max(lane.stats.rows_in for lane in ran))
    seconds = max(top.own.seconds - top.stats.own_queued, top.stats.own_cpu)
    return replace(top.own, rows=rows, kept=rows, seconds=seconds, cpu=top.stats.own_cpu)


def from_book(book: Book, source: Source, steps: Iterable[Derive | Filter]) -> Measured:
    """The costs of these steps in earlier runs over the same source; or over another one, scaled to
    the size of this source's rows, where that is known."""
    found = Measured()
    origin = _origin(source)
    found.read = book.get(_key(origin, READ)) or Cost()
    found.late = _late_beside(found.read, book.get(_key(origin, LATE)) or Cost())
    devices = (book.get(_key(origin, name)) or _NOTHING for name in (DISK, NETWORK))
    found.pace = DevicePace(*(_seconds_a_byte(cost) for cost in devices))
    steps = list(steps)
    loop = _loop_key(origin, steps)
    found.loop = (book.get(loop) if loop else None) or Cost()
    sizes = _source_sizes(source, found)
    for step in steps:
        own = step_key(origin, step.step)
        read = [sizes.get(name) for name in step_reads(step.step)]
        size = None if None in read else sum(one or 0.0 for one in read)
        known = None if own is None else book.get(own)
        if own is not None and known is None and size is not None:
            known = _elsewhere(book, step.step, size)
        if known is None:
            continue
        found.steps[step.id] = known
        sizes |= {name: known.bytes_a_row(name) for name in step.writes}
    return found


def _device_cost(seconds_a_byte: float) -> Cost:
    """The seconds of a device as the book keeps them: like a step over one row of one byte."""
    return Cost(rows=1, kept=1, seconds=seconds_a_byte, moved=1)


def _seconds_a_byte(cost: Cost) -> float:
    return cost.seconds / cost.moved if cost.moved else 0.0


def _origin(source: Source) -> str:
    """The identity of a source in the book."""
    return str(source.source.sketch())


def _source_sizes(source: Source, found: Measured) -> dict[str, float]:
    """Bytes per row of each column, as an earlier run measured them or the source states them."""
    sizes: dict[str, float] = dict(source.source.row_bytes())
    for cost in (found.read, found.late):
        sizes |= {name: cost.bytes_a_row(name) for name in cost.columns}
    return sizes


def _elsewhere(book: Book, step: Step, size: float) -> Cost | None:
    """The cost of a step over other sources: of the nearest size, scaled by how the cost grows over
    the other sizes."""
    middle = _octave(size)
    near = sorted(range(_OCTAVES), key=lambda octave: (abs(octave - middle), octave))
    seen = [cost for octave in near if (cost := book.get(_size_key(step, octave))) is not None]
    return seen[0].resized(size, seen[1:]) if seen else None


def _octave(size: float) -> int:
    """The power of two nearest to a size.

    >>> _octave(0), _octave(1000), _octave(1100), _octave(2000)
    (0, 10, 10, 11)
    """
    return min(max(round(math.log2(max(size, 1.0))), 0), _OCTAVES - 1)


def write_down(
    book: Book, source: Source, steps: Iterable[Derive | Filter], found: Measured
) -> None:
    """Saves measured costs for later runs."""
    origin = _origin(source)
    for name, cost in ((READ, found.read), (LATE, found.late)):
        if cost.rows:
            book.put(_key(origin, name), cost)
    for name, seconds in ((DISK, found.pace.disk), (NETWORK, found.pace.network)):
        if seconds:
            book.put(_key(origin, name), _device_cost(seconds))
    steps = list(steps)
    loop = _loop_key(origin, steps)
    if loop is not None and found.loop.rows:
        book.put(loop, found.loop)
    for step in steps:
        key, seen = step_key(origin, step.step), found.steps.get(step.id)
        if key is not None and seen is not None and seen.rows:
            book.put(key, seen)
            if seen.by_size.rows:
                book.put(_size_key(step.step, _octave(seen.by_size.size)), seen)


def step_key(origin: str, step: Step) -> str | None:
    """The identity of a step over a source; None if it is known in this process only."""
    return None if opaque_parts(step) else _key(origin, digest(step))


def _loop_key(origin: str, steps: Iterable[Derive | Filter]) -> str | None:
    """The identity of the loop over a run of steps; None if it is known in this process only."""
    every = [step.step for step in steps]
    return None if opaque_parts(every) else _key(origin, digest((LOOP, every)))


def _size_key(step: Step, octave: int) -> str:
    """The identity of a step over rows of a given size, of any source."""
    return _key(f"rows of 2^{octave} bytes", digest(step))


def _key(origin: str, what: str) -> str:
    return digest((origin, what))
