"""Runs several configurations of a pipeline on the same rows, and each step once for all that have
it alike.

What a step makes of a row is known by the step and by the contents of the columns that it reads. So
two configurations share a step wherever it sees the same values, whatever stands before it, in
other branches, or after it. A model is also asked only for what no answer is kept of.

The latency of a row is what it takes alone: the longest way through its steps, each run on this
row by itself, after one row that warms the step up. An answer that was kept counts with the time
that it took when it was made. Only the first rows of a step are run alone; the others run in
batches, which say nothing about latency.
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
from silva.physical.stage.steps import Keep, MapWhole, Project
from silva.plan.choice import Configuration, resolve
from silva.plan.expr import Call
from silva.plan.fingerprint import column_fingerprints, digest, fingerprint
from silva.plan.fingerprint.hasher import Hasher
from silva.plan.node import Node, Options, option
from silva.plan.schema import columns
from silva.serve.engine.units import Part, Unit, run_unit, units_of
from silva.serve.models.observed import Asked, observed
from silva.serve.requests import identity_of, source_of
from silva.serve.search.rows import Row, check_answers_once, request_of

_MERGING = ("merge_derives",)
"""The rule that makes one step of two, of which configurations may have only one in common."""


@dataclass
class Outcomes:
    """What one configuration gave for some rows."""

    answers: list[dict[str, Any] | None]
    """None for a row that failed or was dropped."""
    seconds: np.ndarray
    """For each row, the seconds that its steps took together, whichever configuration paid."""
    latency: np.ndarray
    """For each row, the seconds that it takes alone; NaN where a step ran on it in a batch."""
    tokens: np.ndarray
    """For each row, the tokens of its prompts and answers."""
    money: np.ndarray
    """For each row, what models cost by their prices, as if no answer were kept."""


@dataclass(eq=False)
class _Made:
    """What a step has made of one row."""

    values: dict[str, Any] | None
    """None for a row that failed or was dropped."""
    keys: dict[str, str]
    """The identity of each value."""
    seconds: float = 0.0
    alone: bool = False
    """Whether these are the seconds that the row takes by itself."""
    tokens: float = 0.0
    money: float = 0.0


@dataclass(eq=False)
class _State:
    """A row on its way through the units of one plan."""

    row: dict[str, Any] | None
    keys: dict[str, str]
    """The identity of the value of each column."""
    seconds: float = 0.0
    ends: dict[int, float] = field(default_factory=dict)
    """When each unit ends, if all units that do not wait for each other run at the same time."""
    alone: bool = True
    tokens: float = 0.0
    money: float = 0.0

    def start_of(self, unit: Unit) -> float:
        return max((self.ends.get(number, 0.0) for number in unit.after), default=0.0)

    def add(self, unit: Unit, made: _Made) -> None:
        self.ends[unit.number] = self.start_of(unit) + made.seconds
        self.seconds += made.seconds
        self.alone &= made.alone
        self.tokens += made.tokens
        self.money += made.money
        if made.values is None:
            self.row = None
        elif isinstance(unit.step, MapWhole):
            self.row, self.keys = dict(made.values), dict(made.keys)
        elif self.row is not None:
            self.row.update(made.values)
            self.keys.update(made.keys)


@dataclass
class Shared:
    """Rows, and what has been computed for them so far."""

    plan: Node
    rows: Sequence[Row]
    alone: int = 0
    """How many rows of each step are run alone, to know their latency."""
    ran: Counter[str] = field(default_factory=Counter)
    """How many rows each step has run on, by its label. Rows that shared a result do not count, nor
    those whose answers were all kept."""
    asked: Counter[str] = field(default_factory=Counter)
    """The same without sharing."""

    def __post_init__(self) -> None:
        check_answers_once(self.plan)
        self._names = source_of(self.plan).names
        self._context = Context(int(option(self.plan, "seed", 0)), 0, "skip")
        self._worker = Worker(shares_generators=False)
        self._made: dict[tuple[Any, ...], _Made] = {}
        self._first: dict[int, tuple[dict[str, Any], dict[str, str]]] = {}
        self._units: dict[str, tuple[tuple[Unit, str], ...]] = {}
        self._alone: Counter[str] = Counter()
        self._called: set[str] = set()
        """Units that have called a model, which is open since then."""

    def run(self, configuration: Configuration, numbers: Sequence[int]) -> Outcomes:
        """The answers of a configuration to the rows of these numbers."""
        plan = resolve(self.plan, configuration)
        wanted = columns(plan)
        states = [self._begin(number) for number in numbers]
        for unit, identity in self._units_of(plan):
            self._step(unit, identity, numbers, states)
        return Outcomes(
            [None if s.row is None else {name: s.row[name] for name in wanted} for s in states],
            np.array([state.seconds for state in states]),
            np.array([max(s.ends.values(), default=0.0) if s.alone else np.nan for s in states]),
            np.array([state.tokens for state in states]),
            np.array([state.money for state in states]),
        )

    def _begin(self, number: int) -> _State:
        if number not in self._first:
            row = request_of(self._names, self.rows[number], number)
            self._first[number] = row, {name: _key(value, name) for name, value in row.items()}
        row, keys = self._first[number]
        return _State(dict(row), dict(keys))

    def _step(
        self, unit: Unit, identity: str, numbers: Sequence[int], states: list[_State]
    ) -> None:
        """One more step: rows whose result is known take it, the others are computed."""
        if isinstance(unit.step, Project):
            for state in states:
                _project(unit.step, state)
                state.ends[unit.number] = state.start_of(unit)
            return
        alive = [i for i, state in enumerate(states) if state.row is not None]
        keys = {i: self._key_of(unit, identity, numbers[i], states[i]) for i in alive}
        missing = [i for i in alive if keys[i] not in self._made]
        first_alone = self.alone + 1 if self.alone else 0  # the first one warms up
        while missing and self._alone[identity] < first_alone:
            i = missing.pop(0)
            self._compute(unit, identity, {keys[i]: states[i]}, numbers[i : i + 1])
        if missing:
            batch = {keys[i]: states[i] for i in missing}
            self._compute(unit, identity, batch, [numbers[i] for i in missing])
        for i in alive:
            states[i].add(unit, self._made[keys[i]])
        if unit.label:
            self.asked[unit.label] += len(alive)

    def _key_of(self, unit: Unit, identity: str, number: int, state: _State) -> tuple[Any, ...]:
        """What the result of a step on a row depends on. The row itself is a part of it: what a
        step draws at random is the row's own."""
        reads = unit.step.reads
        names = sorted(state.keys) if reads is None else sorted(reads)
        return identity, number, *(f"{name}={state.keys[name]}" for name in names)

    def _compute(
        self,
        unit: Unit,
        identity: str,
        states: Mapping[tuple[Any, ...], _State],
        numbers: Sequence[int],
    ) -> None:
        """Runs a unit on rows that it has not seen, and keeps what it made."""
        parts = []
        for number, state in zip(numbers, states.values(), strict=True):
            assert state.row is not None
            request, _ = self._first[number]
            parts.append(Part(identity_of(self._names, request), [dict(state.row)]))
        single = len(parts) == 1
        is_warm = single and self._alone[identity] > 0
        is_open = not unit.asks or identity in self._called
        with observed(keeps_times=is_warm and is_open) as asked:
            began = time.perf_counter()
            run_unit(unit, parts, self._context, self._worker)
            seconds = time.perf_counter() - began
        alone = is_warm and (is_open or not asked.calls) and not asked.untimed
        self._alone[identity] += single
        if asked.calls:
            self._called.add(identity)
        if unit.label:
            self.ran[unit.label] += min(len(parts), asked.calls) if _only_asks(unit) else len(parts)
        for key, part in zip(states, parts, strict=True):
            self._made[key] = _made(unit, part, key, seconds, alone, asked, len(parts))

    def _units_of(self, plan: Node) -> tuple[tuple[Unit, str], ...]:
        """The units of a plan with their identities."""
        key = fingerprint(plan)
        if key not in self._units:
            disabled = (*option(plan, "disable", ()), *_MERGING)
            apart = Options(plan, (("disable", disabled),))
            with Loader(apart, LoaderOptions(backend="inline")) as loader:
                units = units_of(loader.facts().plan)
            self._units[key] = tuple((unit, _identity(unit)) for unit in units)
        return self._units[key]


def _only_asks(unit: Unit) -> bool:
    """Whether all that a unit does is to ask a model."""
    return isinstance(unit.step.runs, Call) and unit.step.runs.op.startswith("model.")


def _identity(unit: Unit) -> str:
    """What a unit does; its id is a part of it, by which it draws random numbers."""
    step = unit.step
    if isinstance(step, Project) or step.runs is None:
        return digest((type(step).__name__, step.label))
    made = column_fingerprints(step.runs, (), tuple(step.writes) or ("",))
    return digest((type(step).__name__, step.id, made))


def _made(
    unit: Unit,
    part: Part,
    key: tuple[Any, ...],
    seconds: float,
    alone: bool,
    asked: Asked,
    count: int,
) -> _Made:
    """What a unit made of one of so many rows that it ran on at once."""
    values: dict[str, Any] | None = None
    if part.rows and not part.failures:
        row = part.rows[0]
        if isinstance(unit.step, Keep):
            values = {}
        else:
            whole_row = isinstance(unit.step, MapWhole)
            values = row if whole_row else {name: row[name] for name in unit.step.writes}
    spent = seconds + (asked.kept_seconds if alone else 0.0)
    keys = {name: _key(value, (name, *key)) for name, value in (values or {}).items()}
    return _Made(values, keys, spent / count, alone, asked.tokens / count, asked.money / count)


def _key(value: Any, made_by: Any) -> str:
    """The identity of a value: its contents, or else how it was made."""
    hasher = Hasher()
    hasher.add(value, "")
    return digest(made_by) if hasher.opaque else hasher.hexdigest()


def _project(step: Project, state: _State) -> None:
    if state.row is not None:
        state.row = {new: state.row[old] for old, new in step.names}
    state.keys = {new: state.keys[old] for old, new in step.names if old in state.keys}
