"""Runs several configurations of a pipeline on the same rows, and each step once for all that have
it alike.

A step's result is known by what it was computed from, the fingerprint of its column. Two
configurations that differ in their last step share everything before it; content caches of models
share prompts that turn out equal beyond that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.steps import Project
from silva.plan.choice import Configuration, resolve
from silva.plan.fingerprint import column_fingerprints, digest
from silva.plan.node import Node, option
from silva.plan.schema import columns
from silva.serve.requests import identity_of, source_of
from silva.serve.units import Part, Unit, run_unit, units_of

Row = Mapping[str, Any]


@dataclass
class Outcomes:
    """What one configuration gave for some rows."""

    answers: list[dict[str, Any] | None]
    """None for a row that failed or was dropped."""
    by_step: list[dict[str, float]]
    """For each row, the seconds of each step, whoever paid for them."""

    @property
    def seconds(self) -> np.ndarray:
        """For each row, the seconds that its steps took together."""
        return np.array([sum(steps.values()) for steps in self.by_step])


@dataclass(eq=False)
class _Kept:
    """The state of one row after some steps."""

    part: Part
    seconds: dict[str, float]


@dataclass
class Shared:
    """Rows, and what has been computed for them so far."""

    plan: Node
    rows: Sequence[Row]
    ran: Counter[str] = field(default_factory=Counter)
    """How many rows each step has run on, by its label; rows that shared a result do not count."""
    asked: Counter[str] = field(default_factory=Counter)
    """The same without sharing."""

    def __post_init__(self) -> None:
        self._names = source_of(self.plan).names
        self._context = Context(int(option(self.plan, "seed", 0)), 0, "skip")
        self._worker = Worker(shares_generators=False)
        self._states: dict[tuple[str, int], _Kept] = {}
        self._units: dict[str, tuple[Unit, ...]] = {}

    def run(
        self,
        configuration: Configuration,
        numbers: Sequence[int],
        given: Mapping[str, Mapping[int, Any]] | None = None,
    ) -> Outcomes:
        """The answers of a configuration to the rows of these numbers. `given`: for a column, the
        values that take the place of those that its step computes, by the number of the row."""
        given = given or {}
        plan = resolve(self.plan, configuration)
        wanted = columns(plan)
        states = [self._begin(number) for number in numbers]
        path = digest(self._names)
        for unit in self._units_of(plan):
            path = digest((path, _identity(unit)))
            states = self._step(unit, path, numbers, states)
            for name in set(unit.step.writes) & given.keys():
                path = digest((path, name, sorted(given[name])))
                states = self._replaced(name, given[name], path, numbers, states)
        answers = [_answer(state.part, wanted) for state in states]
        return Outcomes(answers, [state.seconds for state in states])

    def _replaced(
        self,
        name: str,
        values: Mapping[int, Any],
        path: str,
        numbers: Sequence[int],
        states: list[_Kept],
    ) -> list[_Kept]:
        """The states with other values of a column."""
        for number, state in zip(numbers, states, strict=True):
            if (path, number) not in self._states:
                part = state.part.copy()
                for row in part.rows if number in values else ():
                    row[name] = values[number]
                self._states[path, number] = _Kept(part, state.seconds)
        return [self._states[path, number] for number in numbers]

    def _begin(self, number: int) -> _Kept:
        row = {name: self.rows[number][name] for name in self._names}
        return _Kept(Part(identity_of(self._names, row), [row]), {})

    def _step(
        self, unit: Unit, path: str, numbers: Sequence[int], states: list[_Kept]
    ) -> list[_Kept]:
        """The states after one more step: those that are known, and the others computed at once."""
        missing = [i for i, number in enumerate(numbers) if (path, number) not in self._states]
        alive = [i for i in missing if states[i].part.rows and not states[i].part.failures]
        parts = [states[i].part.copy() for i in alive]
        began = time.perf_counter()
        if parts:
            run_unit(unit, parts, self._context, self._worker)
        seconds = (time.perf_counter() - began) / max(len(parts), 1)
        made = dict(zip(alive, parts, strict=True))
        for i in missing:
            spent = {**states[i].seconds, **({unit.label: seconds} if i in made else {})}
            self._states[path, numbers[i]] = _Kept(made.get(i, states[i].part), spent)
        if unit.label:
            self.ran[unit.label] += len(alive)
            self.asked[unit.label] += sum(1 for state in states if state.part.rows)
        return [self._states[path, number] for number in numbers]

    def _units_of(self, plan: Node) -> tuple[Unit, ...]:
        key = digest([repr(plan)])
        if key not in self._units:
            with Loader(plan, LoaderOptions(backend="inline")) as loader:
                self._units[key] = units_of(loader.facts().plan)
        return self._units[key]


def _identity(unit: Unit) -> Any:
    step = unit.step
    if isinstance(step, Project):
        return step.names
    if step.runs is None:
        return (type(step).__name__, step.label)
    return (type(step).__name__, column_fingerprints(step.runs, (), tuple(step.writes) or ("",)))


def _answer(part: Part, wanted: tuple[str, ...]) -> dict[str, Any] | None:
    if part.failures or not part.rows:
        return None
    return {name: part.rows[0][name] for name in wanted}
