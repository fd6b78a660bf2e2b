"""Predicts the throughput with a faster step, more workers, other cores or another backend: the
cost model with other numbers.

The prediction is scaled by the ratio of the measured to the modelled throughput. Its error bar
combines how much blocks differ from each other and how wrong the model's predictions were so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from statistics import median
from typing import Any

from silva.cost.machine import parse_bytes
from silva.cost.model import Backend, Load, choose_place
from silva.cost.system import Loaded, Throughput
from silva.errors import PlanError
from silva.facts.formatting import percent, rate, times
from silva.facts.model import ConsumerFacts, RunFacts, StageFacts
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
    notes: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        return self.expected / self.now if self.now else 1.0

    @property
    def _question(self) -> str:
        return "what if " + ", ".join(f"{name}={value!r}" for name, value in self.asked.items())

    def __str__(self) -> str:
        lines = [
            self._question if self.asked else "as it is",
            f"  now        {rate(self.now)} (limit: {self.now_limit})",
            f"  predicted  {rate(self.expected)} (limit: {self.limit}), {times(self.gain)}",
            f"             between {rate(self.low)} and {rate(self.high)} (±{percent(self.error)})",
        ]
        return "\n".join([*lines, *(f"  · {note}" for note in self.notes)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gain": self.gain}

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
    """Asks the cost model about a run."""
    found = facts.need_consumer(_UNMEASURED)
    changes = _Changes.of(asked, facts)
    before = found.model(facts.cores)
    by_name = {stage.name: stage for stage in facts.stages}
    loads = tuple(changes.apply(load, by_name[load.name], found) for load in found.stages)
    after = replace(found, stages=loads).model(changes.cores or facts.cores)
    # where the loop itself limits, what the stages could do is only known from the model
    now = found.present_rate if found.is_limited_by_stages else before.rows_per_second
    expected = now * after.rows_per_second / before.rows_per_second
    error = _error(facts)
    return WhatIf(
        asked=dict(asked),
        now=now,
        now_limit=_limit(before),
        expected=expected,
        low=expected / (1 + error),
        high=expected * (1 + error),
        limit=_limit(after),
        error=error,
        notes=changes.notes(found),
    )


def _limit(found: Throughput) -> str:
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
    workers: int | None
    cores: int | None
    memory: int | None
    backend: Backend | None

    @staticmethod
    def of(asked: Mapping[str, Any], facts: RunFacts) -> _Changes:
        own = ("workers", "cores", "memory", "backend")
        factors = []
        for name, factor in asked.items():
            if name in own:
                continue
            if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0:
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
            _count("workers", asked.get("workers"), 0),
            _count("cores", asked.get("cores"), 1),
            None if memory is None else parse_bytes(memory),
            backend,
        )

    def apply(self, loaded: Loaded, stage: StageFacts, found: ConsumerFacts) -> Loaded:
        """A stage as it would be."""
        left = max(1 - self._saved(stage), 0.0)
        load = _without_contention(loaded.load, stage) if self._moves(loaded) else loaded.load
        load = replace(load, seconds=load.seconds * left, cpu=load.cpu * left)
        workers = loaded.workers if self.workers is None else self.workers
        backend = self.backend or self._backend(loaded, stage, load, workers, found)
        return replace(loaded, load=load, workers=self._fit(workers, stage), backend=backend)

    def _saved(self, stage: StageFacts) -> float:
        """The share of the stage's time that the changed steps no longer take."""
        own = [(work, factor) for work, factor in self.factors if work.stage is stage]
        return sum((1 - factor) * work.share for work, factor in own)

    def _moves(self, loaded: Loaded) -> bool:
        """Whether the stage would share its cores with another number of workers."""
        return self.workers not in (None, loaded.workers) or self.cores is not None

    def _backend(
        self, loaded: Loaded, stage: StageFacts, load: Load, workers: int, found: ConsumerFacts
    ) -> Backend:
        """The backend that would be chosen for another number of workers."""
        if workers == 0:
            return "inline"
        if stage.asked_for or self.workers is None:
            return loaded.backend
        meanwhile = found.own / max(loaded.rows * load.seconds, 1e-12)
        return choose_place(load, workers, meanwhile=meanwhile).backend

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
        return tuple(notes)


def _without_contention(load: Load, stage: StageFacts) -> Load:
    """The load without the time that workers wait for each other: only what a row waited when
    nothing ran beside the stage, for a disk or a network."""
    if stage.alone is None or stage.backend == "inline":
        return load
    waits = max(stage.alone.seconds - stage.alone.cpu, 0.0)
    return replace(load, seconds=min(load.seconds, load.cpu + waits))


def _count(name: str, value: Any, least: int) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or value < least
    ):
        raise PlanError(f"{name}= must be a whole number of at least {least}, not {value!r}")
    return value
