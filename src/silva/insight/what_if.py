"""Predicts the throughput with a faster step, more workers, other cores or another backend: the
run is replayed in the simulator with other numbers.

The prediction is scaled by the ratio of the measured to the modelled throughput. Its error bar
combines how much blocks differ from each other and how wrong the model's predictions were so far.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from html import escape
from statistics import median
from typing import Any

from silva.cost.machine import parse_bytes
from silva.cost.model import Backend, Placed, Work, choose_place, loop_work, predict
from silva.cost.replay import Own, Replay, Replayed
from silva.cost.trace import Trace
from silva.errors import PlanError
from silva.facts.formatting import percent, plural, rate, times
from silva.facts.formatting import seconds as duration
from silva.facts.model import ConsumerFacts, RunFacts, StageFacts, StepFacts
from silva.facts.names import NamedWork, find_work
from silva.insight.html import fragment, note, table

_UNCHECKED = 0.25
"""The assumed error of the model while no prediction could be compared with a measurement."""
_UNMEASURED = "nothing was measured yet: run the loader for a while, or use pipeline.what_if(…)"
_BACKENDS = ("inline", "threads", "processes")


@dataclass(frozen=True)
class WhatIf:
    """A prediction beside the present throughput."""

    asked: dict[str, Any]
    now: float
    """Rows per second."""
    now_limit: str
    expected: float
    low: float
    high: float
    limit: str
    """The resource that would limit the throughput."""
    error: float
    """Half of the error bar, as a share of `expected`."""
    now_share: float
    """The share of the time that the present limit is in use."""
    notes: tuple[str, ...] = ()
    trace: Trace = field(default=Trace(()), repr=False)
    """The simulated run that it was read from."""

    @property
    def gain(self) -> float:
        return self.expected / self.now if self.now else 1.0

    @property
    def _question(self) -> str:
        return "what if " + ", ".join(f"{name}={value!r}" for name, value in self.asked.items())

    def __str__(self) -> str:
        lines = [
            self._question if self.asked else "as it is",
            f"  now        {rate(self.now)} (limit: {self.now_limit}, in use "
            f"{percent(self.now_share)} of the time)",
            f"  predicted  {rate(self.expected)} (limit: {self.limit}), {times(self.gain)}",
            f"             between {rate(self.low)} and {rate(self.high)} (±{percent(self.error)})",
        ]
        return "\n".join([*lines, *(f"  · {note}" for note in self.notes)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "trace"}
        return {**shown, "gain": self.gain}

    def _repr_html_(self) -> str:
        top = self.high or 1.0
        rows = [
            ("now", _range(0, self.now / top, 0), rate(self.now), "", escape(self.now_limit)),
            (
                escape(self._question),
                _range(self.low / top, self.expected / top, 1.0),
                rate(self.expected),
                f"±{percent(self.error)}",
                escape(self.limit),
            ),
        ]
        cells = table(("", "", "rows per second", "error", "limit"), rows, measured=True)
        return fragment(cells + "".join(map(note, self.notes)))


def _range(low: float, middle: float, high: float) -> str:
    """A bar up to the middle, with a line for the error bar."""
    line = (
        f'<div style="position:relative;left:{low * 100:.1f}%;width:{(high - low) * 100:.1f}%;'
        f'border-top:2px solid var(--amber);top:-5px"></div>'
        if high > low
        else ""
    )
    fill = f'<div class="fill" style="width:{middle * 100:.1f}%"></div>'
    return f'<div class="track">{fill}{line}</div>'


def what_if(facts: RunFacts, asked: Mapping[str, Any]) -> WhatIf:
    """Replays a run with other numbers."""
    run = RecordedRun(facts)
    changes = _Changes.of(asked, facts)
    after = run.changed(changes)
    gain, trace = run.gain(after)
    now, error = run.consumer.present_rate, _error(facts)
    expected = now * gain
    return WhatIf(
        asked=dict(asked),
        now=now,
        now_limit=str(run.limit),
        expected=expected,
        low=expected / (1 + error),
        high=expected * (1 + error),
        limit=str(run.limit) if after == run.before else _limit(after),
        error=error,
        now_share=run.limit.share,
        notes=changes.notes(run.consumer),
        trace=trace,
    )


class RecordedRun:
    """A run that is replayed as it was, and with other numbers."""

    def __init__(self, facts: RunFacts) -> None:
        self._facts = facts
        self.consumer = facts.need_consumer(_UNMEASURED)
        self.before = _measured_run(facts, self.consumer)
        limit = facts.limit
        assert limit is not None  # something has run
        self.limit = limit

    @functools.cached_property
    def _replayed(self) -> Replayed:
        return self.before.run()

    def changed(self, changes: _Changes) -> Replay:
        """The run as it would be."""
        by_name = {stage.name: stage for stage in self._facts.stages}
        stages = tuple(
            changes.apply(stage, by_name[stage.name], self.consumer) for stage in self.before.stages
        )
        return replace(self.before, stages=stages, cores=changes.cores)

    def gain(self, after: Replay) -> tuple[float, Trace]:
        """How many times as fast the changed run would be, and its trace."""
        if after == self.before:  # exactly as fast, however well the replay fits
            return 1.0, self._replayed.trace
        found = after.run()
        return found.rows_per_second / self._replayed.rows_per_second, found.trace

    def gain_if_free(self, stage: StageFacts, step: StepFacts) -> float:
        """How many times as fast the run would be if one step took no time."""
        free = ((NamedWork(stage, step), 0.0),)
        return self.gain(self.changed(_Changes(free, self.before.cores)))[0]


def _measured_run(facts: RunFacts, found: ConsumerFacts) -> Replay:
    """The run as it is, with the time that rows take if nobody is in their way."""
    by_name = {stage.name: stage for stage in facts.stages}
    stages = tuple(_observed(placed, found.present_rate) for placed in found.stages)
    slowest = max(stages, key=lambda stage: stage.rows * stage.work.seconds)
    stage, own = by_name[slowest.name], Own(found.own - found.own_queued, found.own_cpu)
    size: float = stage.block_rows or stage.totals.rows_in / max(stage.totals.blocks, 1)
    blocks = None
    if stage.epoch_rows:  # the last block of an epoch is smaller: all count as equal
        blocks = math.ceil(stage.epoch_rows / size)
        size = stage.epoch_rows / blocks
    rows = size / max(slowest.rows, 1e-12)
    return Replay(stages, facts.cores, own, rows, blocks).without_contention()


def _observed(placed: Placed, rate: float) -> Placed:
    """A stage that holds the GIL no longer than its threads were seen to do together. Where it was
    not sampled, a function is assumed to hold it all the time."""
    work, most = placed.work, 1 / max(rate * placed.rows, 1e-12)
    if placed.backend != "threads" or work.gil <= most:
        return placed
    return replace(placed, work=work.locking(most))


def _limit(run: Replay) -> str:
    found = predict(run.stages, run.cores, loop_work(run.own.seconds, run.own.cpu))
    return found.limit if found.stage is None else f"{found.limit}, {found.stage}"


def _error(facts: RunFacts) -> float:
    """The relative error of the prediction: of the model, and of the measurements."""
    errors = [abs(math.log1p(error)) for stage in facts.stages for error in stage.errors]
    # the median: one interval in which the machine stood still says nothing about the model
    model = math.expm1(median(errors)) if errors else _UNCHECKED
    steps = [step for stage in facts.stages for step in stage.steps]
    total = sum(step.busy for step in steps) or 1.0
    # blocks are slow together when the machine is busy: their errors add up
    spread = sum(step.busy / total * step.uncertainty for step in steps)
    return math.hypot(model, spread)


@dataclass(frozen=True)
class _Changes:
    """What is asked for."""

    factors: tuple[tuple[NamedWork, float], ...]
    """Steps or operators, and the factors on their time."""
    cores: int
    workers: int | None = None
    memory: int | None = None
    backend: Backend | None = None

    @staticmethod
    def of(asked: Mapping[str, Any], facts: RunFacts) -> _Changes:
        own = ("workers", "cores", "memory", "backend")
        factors = []
        for name, factor in asked.items():
            if name in own:
                continue
            is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
            if not (is_number and 0 <= factor <= sys.float_info.max):  # not NaN either
                raise PlanError(
                    f"{name}= must be a factor for its time, such as 0.5, not {factor!r}"
                )
            factors += [(work, float(factor)) for work in find_work(facts, name)]
        backend = asked.get("backend")
        if backend not in (None, *_BACKENDS):
            raise PlanError(f"backend must be one of {', '.join(_BACKENDS)}, not {backend!r}")
        memory = asked.get("memory")
        return _Changes(
            tuple(factors),
            _count("cores", asked.get("cores"), 1) or facts.cores,
            _count("workers", asked.get("workers"), 0),
            None if memory is None else parse_bytes(memory),
            backend,
        )

    def apply(self, placed: Placed, stage: StageFacts, found: ConsumerFacts) -> Placed:
        """A stage as it would be."""
        left = max(1 - self._saved(stage), 0.0)
        work = placed.work
        if left != 1:
            work = work.taking(work.seconds * left, work.cpu * left)
        asked = None if self.workers == placed.workers else self.workers
        workers = placed.workers if asked is None else asked
        backend = self.backend or self._backend(placed, stage, work, asked, found)
        return replace(placed, work=work, workers=self._fit(workers, stage), backend=backend)

    def _saved(self, stage: StageFacts) -> float:
        """The share of the stage's time that the changed steps no longer take."""
        own = [(work, factor) for work, factor in self.factors if work.stage is stage]
        return sum((1 - factor) * work.share for work, factor in own)

    def _backend(
        self, placed: Placed, stage: StageFacts, work: Work, workers: int | None,
        found: ConsumerFacts,
    ) -> Backend:  # fmt: skip
        """The backend that would be chosen for another number of workers; None is the number in
        force, for which it was chosen already."""
        if workers == 0:
            return "inline"
        if stage.asked_for or workers is None:
            return placed.backend
        rows = max(placed.rows, 1e-12)
        own = loop_work(found.own / rows, found.own_cpu / rows)
        return choose_place(work, workers, self.cores, consumer=own).backend

    def _fit(self, workers: int, stage: StageFacts) -> int:
        """The number of workers with blocks that fit into memory."""
        if self.memory is None or not stage.totals.blocks:
            return workers
        block = stage.totals.bytes_out / stage.totals.blocks
        return min(workers, max(1, int(self.memory // max(block, 1))))

    def notes(self, found: ConsumerFacts) -> tuple[str, ...]:
        notes = [
            f"{work.text}: {percent(work.share)} of {work.stage.name}, {factor:g} × its time"
            for work, factor in self.factors
        ]
        if not found.is_limited_by_stages:
            notes.append("the bottleneck now is the loop that reads the batches")
        notes.append(
            f"replayed from {plural(found.rows, 'row')} in {duration(found.seconds)}; the interval "
            "is the spread of their blocks and the errors of earlier predictions"
        )
        return tuple(notes)


def _count(name: str, value: Any, least: int) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or value < least
    ):
        raise PlanError(f"{name}= must be a whole number of at least {least}, not {value!r}")
    return value
