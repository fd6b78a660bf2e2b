"""How long each step takes for each row, and what latencies follow from that: as it is, and with
one step faster, wider or left out.

Each step runs on each row by itself and is timed, after a row that warms it up. The rows are then
replayed in the simulator as requests: one at a time, or arriving at random at a stated rate, in the
same order and at the same moments for every question. A step runs on a thread as soon as one of its
slots is free; one that takes less time than handing it over runs on the thread of the loop. What
they compute shares the cores, and functions share the GIL.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from silva.cost.simulate import Resource, Task, simulate
from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.plan.function import Function
from silva.plan.node import Node, Options, option
from silva.serve.engine.engine import Engine
from silva.serve.engine.units import Part, Unit, run_unit, units_of
from silva.serve.models.observed import observed
from silva.serve.requests import identity_of, source_of
from silva.serve.search.attribution.interventions import names_of, row_of
from silva.serve.search.rows import request_of

Row = Mapping[str, Any]
_WAITS = "waits"
_LOOP = "the thread of the loop"
_CORES = "the cores"
_GIL = "the GIL"
_MERGES = ("merge_derives", "share")
"""Rules that make one step of several, which are timed each by itself here."""
_CHECKED = 8
"""Rows that the engine answers to find what it adds to the time of the steps: their median is well
above the noise of a turn of the loop, and slow steps run few times more."""
_DEADLINE = 3600.0
"""Seconds that one of them may take."""


@dataclass(frozen=True, eq=False)
class Timed:
    """One step as it was run."""

    id: str
    """As in `Written`; the label of a step that writes no column."""
    label: str
    number: int
    after: frozenset[int]
    seconds: np.ndarray
    """For each row that was recorded."""
    cpu: np.ndarray
    money: np.ndarray
    """By the prices of its models."""
    slots: int
    holds_gil: bool
    in_place: bool
    factor: float = 1.0
    """On its time."""


@dataclass(frozen=True, eq=False)
class Recording:
    """The steps of some rows, and what the engine adds to a request."""

    steps: tuple[Timed, ...]
    overhead: float
    """Seconds of a request that are no step's: turns of the loop, handing over to threads."""
    cores: int
    rows: int

    def changed(self, name: str, *, factor: float = 1.0, wider: int = 1) -> Recording:
        """The same with another time of a step, or with several times its slots."""
        steps = tuple(
            replace(one, factor=one.factor * factor, slots=one.slots * wider)
            if one.id == name
            else one
            for one in self.steps
        )
        return replace(self, steps=steps)

    def latencies(self, load: float | None, seed: int = 0) -> np.ndarray:
        """Seconds from the arrival of each request to its answer. `load`: requests per second that
        arrive at random; None for one at a time."""
        if load is None:
            alone = max(float(sum((one.seconds * one.factor).max() for one in self.steps)), 1e-9)
            arrivals = 2 * (alone + self.overhead) * np.arange(self.rows)
        else:
            gaps = np.random.default_rng(seed).exponential(1 / load, self.rows)
            arrivals = np.cumsum(gaps)
        tasks = [task for i in range(self.rows) for task in self._tasks(i, float(arrivals[i]))]
        found = simulate(self._resources(), tasks).finished
        return np.array([found[f"{i}"] - arrivals[i] for i in range(self.rows)])

    def _resources(self) -> list[Resource]:
        return [
            Resource(_WAITS, math.inf),
            Resource(_LOOP),
            Resource(_CORES, self.cores, policy="fair"),
            Resource(_GIL, policy="fair"),
            *(Resource(f"step {one.number}", one.slots) for one in self.steps),
        ]

    def _tasks(self, i: int, at: float) -> list[Task]:
        made = []
        for one in self.steps:
            seconds = float(one.seconds[i]) * one.factor
            cpu = min(float(one.cpu[i]) * one.factor, seconds)
            use = {_LOOP if one.in_place else f"step {one.number}": seconds, _CORES: cpu}
            if one.holds_gil:
                use[_GIL] = cpu
            after = [f"{i} {number}" for number in sorted(one.after)]
            made.append(Task(f"{i} {one.number}", [use], after, at))
        ends = [task.name for task in made]
        return [*made, Task(f"{i}", [{_WAITS: self.overhead}], ends, at)]


def record(plan: Node, rows: Sequence[Row], seconds: float) -> Recording:
    """Runs the steps on one row after the other, for at most about so many seconds, and the engine
    on some of them."""
    names = source_of(plan).names
    requests = [request_of(names, row, number) for number, row in enumerate(rows)]
    apart = Options(plan, (("disable", (*option(plan, "disable", ()), *_MERGES)),))
    runner, until = _Runner(apart, names), time.monotonic() + seconds
    runner.warm_up(requests[0])
    spent: list[list[Spent]] = []
    for request in requests:
        spent.append(runner.run(request))
        if time.monotonic() > until:
            break
    overhead = _overhead(plan, runner, requests[: min(len(spent), _CHECKED)])
    hop = overhead / max(len(runner.units), 1)
    slots, ids = _slots(apart), names_of(runner.units)
    steps = tuple(
        _timed(unit, name, [row[place] for row in spent], slots.get(unit.number, 1), hop)
        for place, (unit, name) in enumerate(zip(runner.units, ids, strict=True))
    )
    return Recording(steps, overhead, os.cpu_count() or 1, len(spent))


class Spent(NamedTuple):
    """What a step took for one row."""

    seconds: float = 0.0
    cpu: float = 0.0
    money: float = 0.0
    now: float = 0.0
    """Seconds with the answers that were kept."""


class _Runner:
    """Runs the steps of a pipeline on one row at a time."""

    def __init__(self, plan: Node, names: Sequence[str]) -> None:
        self._names = names
        with Loader(plan, LoaderOptions(backend="inline")) as loader:
            self.units = units_of(loader.facts().plan)
        self._context = Context(int(option(plan, "seed", 0)), 0, "skip")
        self._worker = Worker(shares_generators=False)
        self._is_warm = False

    def warm_up(self, request: Row) -> None:
        """Opens models and imports what steps need."""
        self.run(request)
        self._is_warm = True

    def run(self, request: Row) -> list[Spent]:
        """What each step takes; nothing after one that fails or drops the row."""
        part = Part(identity_of(self._names, request), [dict(request)])
        spent = []
        for unit in self.units:
            if row_of(part) is None:
                spent.append(Spent())
                continue
            again = part.copy()
            found, is_timed = self._run(unit, part)
            if not is_timed:  # kept answers that nobody timed are asked for once more
                found = self._run(unit, again, anew=True)[0]._replace(now=found.now)
            spent.append(found)
        return spent

    def _run(self, unit: Unit, part: Part, *, anew: bool = False) -> tuple[Spent, bool]:
        """What a step takes for a row, and whether its answers that were kept had been timed."""
        with observed(keeps_times=self._is_warm, anew=anew) as asked:
            began, cpu = time.perf_counter(), time.thread_time()
            run_unit(unit, [part], self._context, self._worker)
            now, computed = time.perf_counter() - began, time.thread_time() - cpu
        return Spent(now + asked.kept_seconds, computed, asked.money, now), not asked.untimed

    def longest_way(self, spent: Sequence[Spent]) -> float:
        """The seconds of a row alone, with the answers that were kept, if steps that do not wait
        for each other run at once."""
        ends: dict[int, float] = {}
        for unit, one in zip(self.units, spent, strict=True):
            ends[unit.number] = one.now + max((ends[n] for n in unit.after), default=0.0)
        return max(ends.values(), default=0.0)


def _overhead(plan: Node, runner: _Runner, requests: Sequence[Row]) -> float:
    """What the engine adds to the steps of a row that is answered alone."""

    async def answer() -> list[float]:
        engine, took = Engine(plan), []
        try:
            await engine.answer(requests[0], deadline=_DEADLINE)  # warms up
            for request in requests:
                steps = runner.longest_way(runner.run(request))  # with the answers kept by now
                began = time.perf_counter()
                await engine.answer(request, deadline=_DEADLINE)
                took.append(time.perf_counter() - began - steps)
        finally:
            engine.close()
        return took

    return max(float(np.median(asyncio.run(answer()))), 0.0)


def _slots(plan: Node) -> dict[int, int]:
    """How many requests each step works on at once, at most."""
    engine = Engine(plan)
    engine.close()
    return {station.unit.number: station.most for station in engine.stations}


def _timed(unit: Unit, name: str, spent: Sequence[Spent], slots: int, hop: float) -> Timed:
    """A step with its times. One that takes less than a hop between steps runs on the loop."""
    seconds = np.array([one.seconds for one in spent])
    is_function = isinstance(unit.step.runs, Function)
    in_place = not unit.asks and (not is_function or float(seconds.mean()) < hop)
    return Timed(
        name, unit.label, unit.number, unit.after, seconds,
        np.array([one.cpu for one in spent]), np.array([one.money for one in spent]),
        slots, is_function, in_place,
    )  # fmt: skip
