"""Predicts the throughput of a run before it begins: from what its first rows cost, or from what
the book of earlier runs knows.

Each stage is put where the run would put it (`choose_place`), and the run is replayed in the
simulator. What comes before the rate is steady counts as well, because short runs consist of it:
stages are measured on the consumer's thread first, worker processes start, and threads whose rows
mostly wait become more step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from silva.cost.experiment import SECONDS
from silva.cost.model import (
    PROCESS_START,
    Backend,
    Placed,
    Work,
    choose_place,
    loop_work,
    most_rows,
    predict,
)
from silva.cost.replay import Own, Replay
from silva.errors import PlanError
from silva.facts.formatting import rate, seconds
from silva.facts.model import ConsumerFacts, RunFacts
from silva.insight.what_if import UNCHECKED
from silva.plan.decision import Decision, Quantity
from silva.run.placement.lane import ENOUGH_SECONDS, MOSTLY_WAITS
from silva.run.placement.sizing import HELPS, INTERVAL

_MEASURED = "measured on its first rows"
_NOTHING_CAME = "no row came in time to predict anything: the pipeline yields none, or very slowly"


@dataclass(frozen=True)
class StageLoad:
    """What is known of a stage before the run."""

    name: str
    work: Work
    """The work of a row if nothing runs beside it."""
    rows: float = 1.0
    """Rows that enter the stage per row that the consumer gets."""
    block_rows: float = 1.0
    shares_generators: bool = False
    """Whether its functions draw from global random generators, which threads would share."""
    uncertainty: float = 0.0
    """The standard error of its seconds per row, as a share."""


@dataclass(frozen=True)
class Workers:
    """The workers that a run may use."""

    count: int
    most_threads: int
    """The threads of a stage whose rows mostly wait."""
    cores: int
    backend: Backend | None = None
    """The backend that was asked for; None where silva chooses."""


@dataclass(frozen=True)
class Forecast:
    """The rows per second that a run is expected to reach, over all of its epochs and from its
    first moment on."""

    rows_per_second: float
    low: float
    high: float
    limit: str
    """The resource that limits the throughput once it is steady."""
    steady: float
    """Rows per second once all workers run and caches are full."""
    source: str
    """Where the costs come from."""
    stages: tuple[Placed, ...] = ()
    """The stages, where they are expected to run."""
    bound: float = math.inf
    """Rows per second that no placement on this machine can exceed."""

    @property
    def decision(self) -> Decision:
        """The same in the form of all predictions of a plan."""
        found = Quantity(self.rows_per_second, interval=(self.low, self.high))
        limit = f"limited by {self.limit}; {self.source}"
        return Decision("forecast", limit, found, bound=Quantity(self.bound))

    def __str__(self) -> str:
        lines = [
            f"forecast: {rate(self.rows_per_second)} ({rate(self.low)} to {rate(self.high)})",
            f"  limit   {self.limit}, at {rate(self.steady)} once all workers run",
            *(f"  {one.name} {_where(one)}" for one in self.stages),
            f"  costs   {self.source}",
        ]
        return "\n".join(lines)

    __repr__ = __str__


def _where(stage: Placed) -> str:
    workers = "" if stage.backend == "inline" else f" ×{stage.workers}"
    return f"on {stage.backend}{workers}: {seconds(stage.work.seconds)} per row"


def loads_of(first: RunFacts, now: RunFacts) -> tuple[tuple[StageLoad, ...], Own]:
    """What a measured run shows of its stages and of its consumer, between two moments."""
    found = now.need_consumer(_NOTHING_CAME)
    by_name = {stage.name: stage for stage in now.stages}
    loads = []
    for placed in found.stages:
        stage = by_name[placed.name]
        busy = sum(step.busy for step in stage.steps) or 1.0
        spread = sum(step.busy / busy * step.uncertainty for step in stage.steps)
        size, work = float(stage.block_rows), placed.work
        work = work.taking(max(work.seconds - work.queued, work.cpu))._replace(queued=0.0)
        loads.append(
            StageLoad(placed.name, work, placed.rows, size, stage.shares_generators, spread)
        )
    return tuple(loads), _own(first.consumer, found)


def cached_rate(now: RunFacts) -> float | None:
    """Rows per second of later epochs that read a cache which the planner chose, without the
    consumer's own work; None without such a cache."""
    found = next((one for one in now.decisions if one.what == "cache" and one.applied), None)
    if found is None or found.predicted is None or now.consumer is None:
        return None
    return found.predicted.value / max(now.consumer.stages[0].rows, 1e-12)


def _own(first: ConsumerFacts | None, now: ConsumerFacts) -> Own:
    """What the consumer does itself for a row, without the first rows, for which it imports
    libraries."""
    if first is None or first.rows == now.rows:
        return Own(now.own - now.own_queued, now.own_cpu)
    rows = now.rows - first.rows
    spent = sum(
        sign * (one.own - one.own_queued) * one.rows / rows for one, sign in ((now, 1), (first, -1))
    )
    cpu = (now.own_cpu * now.rows - first.own_cpu * first.rows) / rows
    return Own(max(spent, 0.0), min(max(cpu, 0.0), max(spent, 0.0)))


def forecast(
    loads: tuple[StageLoad, ...],
    own: Own,
    rows: float | None,
    workers: Workers,
    *,
    epochs: int = 1,
    cached: float | None = None,
    source: str = _MEASURED,
) -> Forecast:
    """The throughput of a run of so many rows in all epochs; None if their number is not known.
    `cached`: rows per second of the epochs after the first, if those read a cache.

    >>> decode = StageLoad("decode", Work(4e-3, 4e-3, 4e-4), block_rows=12)
    >>> two = Workers(count=8, most_threads=8, cores=2)
    >>> found = forecast((decode,), Own(0.0), 1_000_000, two)
    >>> found.limit, round(found.steady), found.low < found.rows_per_second < found.high
    ('the cores, decode', 500, True)
    """
    if not loads:
        raise PlanError(_NOTHING_CAME)
    own_epochs = 1 if cached is None else epochs
    first = None if rows is None else rows / own_epochs
    run = _Run(loads, own, first, workers)
    reached = steady = run.steady()
    if first:
        reached = first / run.seconds(first)
    if cached is not None:
        steady = 1 / (1 / cached + own.seconds)
        reached = epochs / (1 / reached + (epochs - 1) / steady)
    spread = max(load.uncertainty for load in loads)
    error = math.hypot(UNCHECKED, spread)
    limit = predict(run.placed, workers.cores, loop_work(*own))
    most = sum((one.rows * load.work.cpu for one, load in zip(run.placed, loads, strict=True)))
    return Forecast(
        rows_per_second=reached,
        low=reached / (1 + error),
        high=reached * (1 + error),
        limit=limit.limit if limit.stage is None else f"{limit.limit}, {limit.stage}",
        steady=steady,
        source=source,
        stages=run.placed,
        bound=most_rows(Work(cpu=most + own.cpu), workers.cores) if cached is None else math.inf,
    )


class _Run:
    """A run that has not begun, with its stages where they would be placed."""

    def __init__(
        self, loads: tuple[StageLoad, ...], own: Own, rows: float | None, workers: Workers
    ) -> None:
        self._loads, self._own, self._workers = loads, own, workers
        slowest = max(loads, key=lambda load: load.rows * load.work.seconds)
        self._block = slowest.block_rows / max(slowest.rows, 1e-12)
        self._blocks = None if rows is None else math.ceil(rows / self._block)
        self._rows = math.inf if rows is None else rows
        self.placed = tuple(map(self._place, loads))
        """The stages with the most workers that they may get."""

    def _place(self, load: StageLoad) -> Placed:
        workers, own = self._workers, self._own
        backend = workers.backend or ("inline" if not workers.count else None)
        if backend is None:
            rows = max(load.rows, 1e-12)
            backend = choose_place(
                load.work,
                workers.count,
                workers.cores,
                consumer=loop_work(own.seconds / rows, own.cpu / rows),
                left=self._rows * load.rows * load.work.seconds,
                shares_generators=load.shares_generators,
            ).backend
        return Placed(load.name, load.work, backend, workers.count, load.rows)

    def steady(self) -> float:
        """Rows per second once all workers run."""
        return max(rate for rate, _ in self._growing(math.inf))

    def seconds(self, rows: float) -> float:
        """How long it takes to the end."""
        left, passed = rows, 0.0
        for pace, during in self._phases():
            if pace * during >= left:
                return passed + left / pace
            left, passed = left - pace * during, passed + during
        raise AssertionError("the last phase has no end")

    def _phases(self) -> Iterator[tuple[float, float]]:
        """Rows per second, and for how many seconds."""
        asked = self._workers.backend
        backends = {one.backend for one in self.placed}
        alone = self._rate(tuple(replace(one, backend="inline") for one in self.placed))
        if asked is None and backends != {"inline"}:
            yield alone, ENOUGH_SECONDS
        if "processes" in backends:  # the consumer works itself meanwhile, unless it must not
            yield (1e-12 if asked else alone), PROCESS_START
        if asked is None:  # a backend that was chosen is measured before its threads may grow
            yield self._rate(self.placed), SECONDS
        yield from self._growing(INTERVAL)

    def _growing(self, each: float) -> Iterator[tuple[float, float]]:
        """Rates with more and more threads, for as long as that helps."""
        placed, most = self.placed, self._workers.most_threads
        pace = self._rate(placed)
        while True:
            more = tuple(map(self._doubled, placed))
            if more == placed or max(one.workers for one in more) > most:
                break
            faster = self._rate(more)
            if faster < pace * (1 + HELPS):
                break
            yield pace, each
            placed, pace = more, faster
        yield pace, math.inf

    def _doubled(self, stage: Placed) -> Placed:
        waits = stage.work.seconds > MOSTLY_WAITS * stage.work.cpu
        if stage.backend != "threads" or not waits:
            return stage
        return replace(stage, workers=min(2 * stage.workers, self._workers.most_threads))

    def _rate(self, stages: tuple[Placed, ...]) -> float:
        run = Replay(stages, self._workers.cores, self._own, self._block, self._blocks)
        return max(run.run().rows_per_second, 1e-12)
