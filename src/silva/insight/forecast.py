"""Predicts the throughput of a run before it begins: from what its first rows cost, or from what
the book of earlier runs knows.

Each stage is put where the run would put it, and the run is replayed in the simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from silva.cost.costs import ERRORS
from silva.cost.model import Placed, Work, loop_work, most_rows, predict
from silva.cost.replay import Own
from silva.errors import PlanError
from silva.facts.formatting import rate, seconds
from silva.facts.model import ConsumerFacts, RunFacts
from silva.insight.expected_run import ExpectedRun, StageLoad, Trial, Workers
from silva.plan.decision import RATE, Decision, Quantity

_MEASURED, BY_BOOK = "measured on its first rows", "measured by earlier runs"
"""Where costs come from."""
_ERROR = 1 / 3
"""The error of a forecast, as a share of it, that nine of ten pipelines stay within
(`python -m benchmarks.forecasts`), where blocks and parts of the trial hardly differ. It does not
follow from how well trials repeat: a trial cannot show what comes after it, such as other rows, a
backend that is chosen otherwise, or a machine that becomes busy. Two trials of a short run that
differed by 1 % were followed by a run that was 6 % faster."""
_NO_TRIAL = Trial(None)
_NOTHING_CAME = "no row came in time to predict anything: the pipeline yields none, or very slowly"


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
            forecast_line(self.decision),
            f"  {rate(self.steady)} once all workers run",
            *(f"  {one.name} {_where(one)}" for one in self.stages),
        ]
        return "\n".join(lines)

    __repr__ = __str__


def forecast_line(found: Decision) -> str:
    """A forecast in one line.

    >>> forecast_line(Decision("forecast", "by the book", Quantity(90.0, interval=(70.0, 120.0))))
    'forecast: 90.0 rows/s (70.0 to 120 rows/s), by the book'
    """
    assert found.predicted is not None
    assert found.predicted.interval is not None
    low, high = found.predicted.interval
    between = f"{rate(low).removesuffix(' ' + RATE)} to {rate(high)}"
    return f"{found.what}: {rate(found.predicted.value)} ({between}), {found.why}"


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
    tried: Trial = _NO_TRIAL,
    source: str = _MEASURED,
) -> Forecast:
    """The throughput of a run of so many rows in all epochs; None if their number is not known.
    `cached`: rows per second of the epochs after the first, if those read a cache. `tried`: the
    beginning of the run, after which it goes on.

    >>> decode = StageLoad("decode", Work(4e-3, 4e-3, 4e-4), block_rows=12)
    >>> two = Workers(count=8, most_threads=8, cores=2)
    >>> found = forecast((decode,), Own(0.0), 1_000_000, two)
    >>> found.limit, round(found.steady), found.low < found.rows_per_second < found.high
    ('the cores, decode', 500, True)
    """
    if not loads:
        raise PlanError(_NOTHING_CAME)
    if tried.ended:
        rows = tried.rows
    elif rows is not None:
        rows = max(rows, tried.rows)
    first = None if rows is None else rows / (1 if cached is None else epochs)
    run = ExpectedRun(loads, own, first, workers, tried)
    reached = steady = run.steady()
    if cached is not None:
        steady = 1 / (1 / cached + own.seconds)
        reached = epochs / (1 / reached + (epochs - 1) / steady)
    if rows and first:
        later = max(rows - max(first, tried.rows), 0.0)
        reached = rows / (run.seconds(first) + later / steady)
    if tried.ended:  # too short to tell the rate of its latter half from that of one block
        seen = None if tried.seen is None else tried.seen.steady
        steady = max(reached, seen or 0.0)
    spread = max(load.uncertainty for load in loads)
    # how long workers take to start, and threads to become more, is known within half of it
    unsteady = 0.0 if tried.seconds else max(1 - reached / steady, 0.0)
    # what was seen to vary counts by twice its deviation, as where measurements are compared
    error = math.hypot(_ERROR, ERRORS * spread, ERRORS * tried.spread, unsteady / 2)
    limit = predict(run.placed, workers.cores, loop_work(*own))
    bound = most_rows(Work(cpu=own.cpu + sum(x.rows * x.work.cpu for x in loads)), workers.cores)
    if tried.seen is not None:  # what was measured is possible
        bound = max(bound, steady)
    return Forecast(
        rows_per_second=reached,
        low=reached / (1 + error),
        high=reached * (1 + error),
        limit=limit.limit if limit.stage is None else f"{limit.limit}, {limit.stage}",
        steady=steady,
        source=source,
        stages=run.placed,
        bound=bound if cached is None else math.inf,
    )
