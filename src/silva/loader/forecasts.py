"""Forecasts a run before it begins: by its first rows, or by the book of earlier runs.

First rows run twice: on this thread, where they cost what they cost alone, and then with workers,
as the run will. Both loaders are apart from the run's: they have their own positions and write no
failed rows down.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Literal

from silva.cost.costs import BLOCK_SECONDS, ENOUGH_BLOCKS
from silva.cost.machine import Machine
from silva.cost.model import Backend
from silva.cost.replay import Own
from silva.errors import PlanError
from silva.facts.model import RunFacts
from silva.insight.expected_run import StageLoad, Trial, Workers, late, share_of_mean, spread_of
from silva.insight.forecast import BY_BOOK, Forecast, cached_rate, forecast, loads_of
from silva.insight.progress import rows_of
from silva.loader.loader import Loader, count_workers
from silva.options import LoaderOptions, is_auto
from silva.order.length import plan_rows
from silva.plan.arguments import number
from silva.plan.node import Batch, Node, Options
from silva.plan.schema import is_batched
from silva.planner.earlier_runs import known_work
from silva.run.placement.sizing import MOST_THREADS
from silva.run.seams import Seams

_SECONDS, _MOST_SECONDS = 0.5, 2.0
"""Time for which first rows are measured, without and with workers: blocks differ, and their mean
should be known to a few percent. With workers it takes longer, because they must start first, are
compared with one thread, and become more where rows wait."""
_UNSETTLED_SECONDS = 3 * _MOST_SECONDS
"""Time after the first batch for which it goes on at most where something is still compared then: a
backend that is tried and left says nothing of the run, and two may be tried one after the other."""


def measured_forecast(plan: Node, options: LoaderOptions, consumer: float) -> Forecast:
    """The forecast of a run of `plan` whose loop takes `consumer` seconds for a batch."""
    if not 0 <= number("forecast(consumer=…): seconds per batch", consumer) < math.inf:
        raise PlanError(f"forecast(consumer=…) is in seconds per batch, not {consumer!r}")
    quiet = replace(options, progress=False, failures=None, group=None)
    here: Backend | Literal["auto"] = "inline" if options.backend == "inline" else "auto"
    with Loader(plan, replace(quiet, backend=here), Seams(measures_only=True)) as loader:
        first, now, batches = _first_rows(loader)
    loads, own = loads_of(first, now)
    found, top = now.consumer, _top(plan)
    per_batch = found.rows / max(batches, 1) if found else 1.0
    if isinstance(top, Batch) and top.size is not None:
        per_batch = float(top.size)
    own = Own(own.seconds + consumer / per_batch, own.cpu)
    tried, began = _try(plan, quiet, consumer)
    return forecast(
        loads,
        own,
        _all_rows(top, began, options, per_batch),
        _allowed(options),
        epochs=options.epochs or 1,
        cached=cached_rate(began),
        tried=tried,
    )


def forecast_by_book(written: Node, plan: Node, options: LoaderOptions) -> Forecast | None:
    """The forecast of a pipeline that has not run, by what earlier runs of `plan` cost; None where
    they do not know every step. The loop is taken to be that of those runs."""
    allowed = _allowed(options)
    known = known_work(plan, allowed.count)
    if known is None:
        return None
    size = max(known.kept * BLOCK_SECONDS / max(known.work.seconds, 1e-12), 1.0)
    load = StageLoad("stage 1", known.work, 1 / known.kept, size / known.kept)
    rows = _counted_rows(_top(written), options)
    return forecast((load,), known.own, rows, allowed, source=BY_BOOK)


def _allowed(options: LoaderOptions) -> Workers:
    machine = Machine.here()
    workers = count_workers(options, machine)
    most = max(MOST_THREADS, workers) if is_auto(options.workers) else workers
    asked = None if options.backend == "auto" else options.backend
    return Workers(workers, most, machine.cpus, asked)


def _first_rows(loader: Loader) -> tuple[RunFacts, RunFacts, int]:
    """Reads batches for a short while; returns what was known after the first one and what is known
    at the end, and the number of batches."""
    first: RunFacts | None = None
    loader.facts()  # imports what collecting them needs, which is no work of the consumer
    stop, batches = time.monotonic() + _SECONDS, 0
    for _ in loader:
        batches += 1
        if first is None:
            first = loader.facts()
        if time.monotonic() >= stop:
            break
    now = loader.facts()
    return first or now, now, batches


def _try(plan: Node, options: LoaderOptions, consumer: float) -> tuple[Trial, RunFacts]:
    """Runs the first rows as the run will; a run that is shorter than the time for it is tried
    several times, of which the median counts. Returns what that one showed as well."""
    stop = time.monotonic() + _MOST_SECONDS
    trials = [found := _run_until(stop, plan, options, consumer)]
    while found[0].ended and len(trials) < ENOUGH_BLOCKS:
        if time.monotonic() + max(tried.seconds for tried, _ in trials) > stop:
            break
        found = _run_until(stop, plan, options, consumer)
        if found[0].ended:
            trials.append(found)
    if len(trials) == 1:
        return trials[0]
    spread = share_of_mean([tried.rows / tried.seconds for tried, _ in trials])
    middle, facts = sorted(trials, key=lambda one: one[0].seconds)[len(trials) // 2]
    return replace(middle, spread=spread), facts


def _run_until(
    stop: float, plan: Node, options: LoaderOptions, consumer: float
) -> tuple[Trial, RunFacts]:
    """Runs from the first row to the end, or to the first moment after `stop` at which nothing is
    being compared."""
    began, rows, batched = time.monotonic(), 0, is_batched(plan)
    arrivals: list[float] = []
    look = stop

    def trial(loader: Loader, *, ended: bool) -> tuple[Trial, RunFacts]:
        seconds, facts = time.monotonic() - began, loader.facts()
        pace = None if facts.consumer is None else facts.consumer.steady
        came = late(arrivals)
        if not pace and len(came) > 1 and came[-1] > came[0]:
            pace = rows / len(arrivals) * (len(came) - 1) / (came[-1] - came[0])
        return Trial(facts.consumer, rows, seconds, ended, pace, spread_of(arrivals)), facts

    with Loader(plan, options) as loader:
        for _ in range(options.epochs or 1):
            for batch in loader:
                if consumer:
                    time.sleep(consumer)
                rows += rows_of(batch) if batched else 1
                arrivals.append(time.monotonic())
                if arrivals[-1] >= look:
                    settled = all(stage.settled for stage in loader.facts().stages)
                    if settled or arrivals[-1] >= arrivals[0] + _UNSETTLED_SECONDS:
                        return trial(loader, ended=False)
                    look = arrivals[-1] + BLOCK_SECONDS
        return trial(loader, ended=True)


def _top(plan: Node) -> Node:
    """The last step of a plan."""
    return _top(plan.input) if isinstance(plan, Options) else plan


def _counted_rows(top: Node, options: LoaderOptions) -> float | None:
    """Rows of all epochs, where the plan says how many there are."""
    rows = plan_rows(top.input if isinstance(top, Batch) else top)
    return None if rows is None else rows * (options.epochs or 1) / options.world


def _all_rows(top: Node, now: RunFacts, options: LoaderOptions, per_batch: float) -> float | None:
    """Rows that the consumer will get in all epochs; None where that is not known."""
    if options.steps is not None:
        return options.steps * per_batch * (options.epochs or 1)
    placed = {} if now.consumer is None else {one.name: one for one in now.consumer.stages}
    counts = [
        stage.all_rows / placed[stage.name].rows
        for stage in now.stages
        if stage.all_rows is not None and stage.name in placed
    ]
    return _counted_rows(top, options) or min(counts, default=None)
