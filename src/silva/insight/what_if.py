"""What would come of a faster step, more workers, other cores, another backend: the cost model
asked again with other numbers.

The answer is corrected by how far the model is from what is measured now, and has an error bar: how
much blocks differ from each other, and how wrong the model's predictions were so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from statistics import median
from typing import Any

from silva.errors import PlanError
from silva.insight.fragment import fragment, rows_table
from silva.insight.names import Part, find, parts
from silva.insight.overall import Overall, lanes_of, overall
from silva.insight.words import percent, rate, times
from silva.optimize.model import Backend, Load, choose_place
from silva.optimize.system import Loaded, Throughput
from silva.profile.machine import Machine, parse_bytes
from silva.run.lane import Lane

_UNCHECKED = 0.25
"""How wrong the model is taken to be while no prediction of its was judged."""
_BACKENDS = ("inline", "threads", "processes")


@dataclass(frozen=True)
class WhatIf:
    """A prediction, beside what is so now."""

    asked: dict[str, Any]
    now: float
    """Rows a second."""
    now_limit: str
    expected: float
    low: float
    high: float
    limit: str
    """What would end first."""
    error: float
    """Half of the error bar, as a share of what is expected."""
    notes: tuple[str, ...] = ()

    @property
    def gain(self) -> float:
        return self.expected / self.now if self.now else 1.0

    def __str__(self) -> str:
        asked = ", ".join(f"{name}={value!r}" for name, value in self.asked.items())
        lines = [
            f"what if {asked}" if asked else "as it is",
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
                "what if " + escape(", ".join(f"{k}={v!r}" for k, v in self.asked.items())),
                _range(self.low / top, self.expected / top, 1.0),
                rate(self.expected),
                f"±{percent(self.error)}",
                escape(self.limit),
            ),
        ]
        notes = "".join(f'<p class="note">{escape(note)}</p>' for note in self.notes)
        return fragment(rows_table(("", "", "rows a second", "error", "limit"), rows) + notes)


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


def what_if(loader: Any, asked: Mapping[str, Any]) -> WhatIf:
    """Asks the cost model about a loader that has run."""
    plan, executor = loader._lowered(), loader._executor
    found, lanes = overall(plan, executor), lanes_of(plan, executor)
    if found is None:
        raise PlanError(
            "nothing was measured yet: run the loader for a while, or use pipeline.what_if(…)"
        )
    changes = _Changes.of(asked, parts(lanes))
    cores = Machine.here().cpus
    before = found.model(cores)
    by_name = {lane.name: lane for lane in lanes}
    changed = replace(
        found, stages=tuple(changes.applied(s, by_name[s.name], found) for s in found.stages)
    )
    after = changed.model(changes.cores or cores)
    # where the loop itself limits, what the stages could do is only known from the model
    now = found.now if found.limits else before.rows_per_second
    expected = now * after.rows_per_second / before.rows_per_second
    error = _error(lanes)
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


def _error(lanes: Sequence[Lane]) -> float:
    """What is uncertain of the measurements, and of the model."""
    wrong = [abs(math.log1p(e)) for lane in lanes for e in lane.forecasts.errors(lane.counters)]
    # the middle one: a single stretch in which the machine stood still says nothing of the model
    model = math.expm1(median(wrong)) if wrong else _UNCHECKED
    costs = [cost for lane in lanes for cost in lane.stats.steps]
    total = sum(cost.seconds for cost in costs) or 1.0
    # blocks are slow together when the machine is busy: their errors add up
    spread = sum(cost.seconds / total * cost.uncertainty for cost in costs)
    return math.hypot(model, spread)


@dataclass(frozen=True)
class _Changes:
    """What is asked for, understood."""

    factors: tuple[tuple[Part, float], ...]
    workers: int | None
    cores: int | None
    memory: int | None
    backend: Backend | None

    @staticmethod
    def of(asked: Mapping[str, Any], there: list[Part]) -> _Changes:
        own = ("workers", "cores", "memory", "backend")
        factors = []
        for name, factor in asked.items():
            if name in own:
                continue
            if isinstance(factor, bool) or not isinstance(factor, int | float) or factor < 0:
                raise PlanError(f"{name}= is a factor on its time such as 0.5, not {factor!r}")
            factors += [(part, float(factor)) for part in find(there, name)]
        backend = asked.get("backend")
        if backend not in (None, *_BACKENDS):
            raise PlanError(f"backend is one of {', '.join(_BACKENDS)}, not {backend!r}")
        memory = asked.get("memory")
        return _Changes(
            tuple(factors),
            _count("workers", asked.get("workers"), 0),
            _count("cores", asked.get("cores"), 1),
            None if memory is None else parse_bytes(memory),
            backend,
        )

    def applied(self, stage: Loaded, lane: Lane, found: Overall) -> Loaded:
        """A stage as it would be."""
        left = max(1 - self._saved(stage, lane), 0.0)
        load = _uncrowded(stage.load, lane, self._crowds(stage))
        load = replace(load, seconds=load.seconds * left, cpu=load.cpu * left)
        workers = stage.workers if self.workers is None else self.workers
        backend = self.backend or self._backend(stage, lane, load, workers, found)
        return replace(stage, load=load, workers=self._fitting(workers, lane), backend=backend)

    def _saved(self, stage: Loaded, lane: Lane) -> float:
        """Of a stage's time, or of that of its part where it is cut in two."""
        mine = [(part, factor) for part, factor in self.factors if part.lane is lane]
        chosen, whole = lane.cutting.chosen, 1.0
        if stage.part is not None and chosen is not None:
            at, costs = chosen.cut.at + 1, lane.stats.steps
            mine = [(p, factor) for p, factor in mine if (p.number >= at) == bool(stage.part)]
            own = costs[at:] if stage.part else [*costs[:at], lane.stats.late]
            spent = sum(cost.seconds for cost in (*costs, lane.stats.late))
            whole = sum(cost.seconds for cost in own) / max(spent, 1e-12)
        return sum((1 - factor) * part.share for part, factor in mine) / max(whole, 1e-12)

    def _crowds(self, stage: Loaded) -> bool:
        """Whether the stage would run beside others of its kind otherwise than it does now."""
        return self.workers not in (None, stage.workers) or self.cores is not None

    def _backend(
        self, stage: Loaded, lane: Lane, load: Load, workers: int, found: Overall
    ) -> Backend:
        """Where it would run: chosen anew where there are other workers, as a lane chooses."""
        if workers == 0:
            return "inline"
        if lane.forced is not None or self.workers is None:
            return stage.backend
        meanwhile = found.consumer / max(stage.rows * load.seconds, 1e-12)
        return choose_place(load, workers, meanwhile=meanwhile).backend

    def _fitting(self, workers: int, lane: Lane) -> int:
        """As many workers as have a block that fits into memory."""
        if self.memory is None or not lane.stats.blocks:
            return workers
        block = lane.stats.bytes_out / lane.stats.blocks
        return min(workers, max(1, int(self.memory // max(block, 1))))

    def notes(self, found: Overall) -> tuple[str, ...]:
        notes = [
            f"{part.text}: {percent(part.share)} of {part.lane.name}, {factor:g} × its time"
            for part, factor in self.factors
        ]
        if not found.limits:
            notes.append("the loop that reads the batches is what limits now")
        return tuple(notes)


def _uncrowded(load: Load, lane: Lane, crowds: bool) -> Load:
    """The load without the time that workers wait for each other, where their number changes: what
    a row waited when the stage was alone, it waits for a disk or a network."""
    if not crowds or lane.alone is None or lane.backend == "inline":
        return load
    waits = max(lane.alone.seconds - lane.alone.cpu, 0.0)
    return replace(load, seconds=min(load.seconds, load.cpu + waits))


def _count(name: str, value: Any, least: int) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or value < least
    ):
        raise PlanError(f"{name}= is a whole number from {least} up, not {value!r}")
    return value
