"""Runs the first rows of a pipeline on this thread, to forecast a whole run of it.

The probe is a loader of its own: it has its own position, writes no failures down, and saves no
costs. Its stages stay on the consumer's thread, where rows cost what they cost alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Literal

from silva.cost.model import Backend
from silva.cost.replay import Own
from silva.errors import PlanError
from silva.facts.model import RunFacts
from silva.insight.forecast import Forecast, Workers, cached_rate, forecast, loads_of
from silva.loader.loader import Loader, count_workers
from silva.options import LoaderOptions, is_auto
from silva.order.length import plan_rows
from silva.plan.arguments import number
from silva.plan.node import Batch, Node, Options
from silva.run.placement.sizing import MOST_THREADS
from silva.run.seams import Seams

_SECONDS = 1.0
"""Time for which first rows are measured, at most: blocks differ, and their mean should be known
to a few percent."""


def measured_forecast(plan: Node, options: LoaderOptions, consumer: float) -> Forecast:
    """The forecast of a run of `plan` whose loop takes `consumer` seconds for a batch."""
    if not 0 <= number("forecast(consumer=…): seconds per batch", consumer) < math.inf:
        raise PlanError(f"forecast(consumer=…) is in seconds per batch, not {consumer!r}")
    seams = Seams(measures_only=True)
    workers = count_workers(options, seams.machine)
    here: Backend | Literal["auto"] = "inline" if options.backend == "inline" else "auto"
    probing = replace(options, backend=here, progress=False, failures=None)
    with Loader(plan, probing, seams) as loader:
        first, now, batches = _first_rows(loader)
    loads, own = loads_of(first, now)
    found, top = now.consumer, _top(plan)
    per_batch = found.rows / max(batches, 1) if found else 1.0
    if isinstance(top, Batch) and top.size is not None:
        per_batch = float(top.size)
    own = Own(own.seconds + consumer / per_batch, own.cpu)
    most = MOST_THREADS if is_auto(options.workers) else workers
    asked = None if options.backend == "auto" else options.backend
    rows = _all_rows(top, now, options, per_batch)
    allowed = Workers(workers, max(most, workers), now.cores, asked)
    epochs = options.epochs or 1
    return forecast(loads, own, rows, allowed, epochs=epochs, cached=cached_rate(now))


def _first_rows(loader: Loader) -> tuple[RunFacts, RunFacts, int]:
    """Reads batches for a second at most; returns what was known after the first one and what is
    known at the end, and the number of batches."""
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


def _top(plan: Node) -> Node:
    """The last step of a plan."""
    return _top(plan.input) if isinstance(plan, Options) else plan


def _all_rows(
    top: Node, now: RunFacts, options: LoaderOptions, per_batch: float
) -> float | None:
    """Rows that the consumer will get in all epochs; None where that is not known."""
    epochs = options.epochs or 1
    if options.steps is not None:
        return options.steps * per_batch * epochs
    rows = plan_rows(top.input if isinstance(top, Batch) else top)
    if rows is not None:
        return rows * epochs / options.world
    placed = {} if now.consumer is None else {one.name: one for one in now.consumer.stages}
    counts = [
        stage.all_rows / placed[stage.name].rows
        for stage in now.stages
        if stage.all_rows is not None and stage.name in placed
    ]
    return min(counts, default=None)
