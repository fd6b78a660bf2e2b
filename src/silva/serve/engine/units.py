"""The steps of a served pipeline, cut into units, and what a unit makes of several requests.

A unit is one step. It waits for the units that write what it reads, so branches that do not depend
on each other run at the same time; filters, explodes and selections are barriers.

A unit only reads the rows of a request. What it makes of them is an `Effect`, which whoever owns
the request applies: units that run at the same time never see each other's changes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.columns import Values
from silva.errors import PlanError
from silva.physical import plan as physical
from silva.physical.stage.attempts import may_repeat
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Keep, MapWhole, Project, Spread, Step
from silva.plan import expr
from silva.plan.function import Function, Stateful
from silva.plan.operator import operator
from silva.plan.turn import every_part
from silva.serve.loop.one_turn import OneTurn

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Unit:
    """One step, and the units that must have run before it."""

    number: int
    step: Step
    after: frozenset[int]

    @property
    def label(self) -> str:
        return self.step.label

    @functools.cached_property
    def asks(self) -> tuple[expr.Call, ...]:
        """The calls of models and indices in it."""
        calls = (part for part in self._parts if isinstance(part, expr.Call))
        return tuple(call for call in calls if call.op.startswith(("model.", "index.")))

    @functools.cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the user that it calls."""
        return tuple(part for part in self._parts if isinstance(part, Function))

    @functools.cached_property
    def _parts(self) -> tuple[expr.Term | Function, ...]:
        return () if self.step.runs is None else tuple(every_part(self.step.runs))

    @property
    def function(self) -> Function | None:
        """The function of the user that it is."""
        return self.step.runs if isinstance(self.step.runs, Function) else None

    @functools.cached_property
    def loop(self) -> OneTurn | None:
        """The step that runs one turn, if it is a loop."""
        return OneTurn.of(self.step)

    @property
    def is_stateful(self) -> bool:
        """Whether each thread that runs it builds an object of its own."""
        return any(isinstance(function.fn, Stateful) for function in self.functions)

    @property
    def may_share(self) -> bool:
        """Whether, as far as the plan knows, equal values that it reads give equal results."""
        runs = self.step.runs
        if runs is None or self.loop is not None:  # a row in a loop is at a turn of its own
            return False
        if isinstance(runs, Function):
            return may_repeat(runs)
        return not any(
            isinstance(part, expr.RowId)
            or (isinstance(part, expr.Call) and operator(part.op).random)
            for part in self._parts
        )


def units_of(plan: physical.PhysicalNode) -> tuple[Unit, ...]:
    """The units of a physical plan that reads requests and maps them."""
    if isinstance(plan, physical.IndexedFeed):
        return ()
    if not isinstance(plan, physical.Segment) or not isinstance(plan.input, physical.IndexedFeed):
        raise PlanError(
            "a pipeline that answers requests maps each request by itself: batch, pack, mix, zip, "
            "concat and cache() are for training"
        )
    units: list[Unit] = []
    barrier = 0
    for step in plan.stage.steps:
        number = len(units)
        is_barrier = isinstance(step, Keep | Spread | Project | MapWhole) or step.reads is None
        if is_barrier:
            after = frozenset(range(barrier, number)) or frozenset(
                range(max(number - 1, 0), number)
            )
        else:
            reads = step.reads or frozenset()
            since = units[barrier:]
            before = {u.number for u in since if _clash(u.step, reads, step.writes)}
            after = frozenset(before | ({barrier - 1} if barrier else set()))
        units.append(Unit(number, step, after))
        if is_barrier:
            barrier = number + 1
    return tuple(units)


def without_selection(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
    """The units without a last one that only leaves columns out, for who picks the columns of its
    answers anyway."""
    last = units[-1].step if units else None
    if isinstance(last, Project) and all(new == old for old, new in last.names):
        return units[:-1]
    return units


def _clash(earlier: Step, reads: frozenset[str], writes: Sequence[str]) -> bool:
    """Whether a step that reads and writes these columns must wait for an earlier one."""
    made = set(earlier.writes)
    return bool(made & reads or made & set(writes) or (earlier.reads or set()) & set(writes))


@dataclass(slots=True)
class Effect:
    """What a unit makes of one request."""

    values: dict[str, list[Any]]
    """The values of columns, for each row that is left."""
    kept: list[int] | None = None
    """For each row that is left, its number among the rows before; None if they are the same."""
    places: list[int] | None = None
    """The place of each row within the request, once a step has exploded it."""
    failures: list[Failure] = field(default_factory=list)
    drew: bool = False
    """Whether the step drew random numbers, which its plan did not say."""
    goes_on: bool = False
    """Whether the step is a loop that is not at its end."""


@dataclass(eq=False)
class Part:
    """The rows of one request between two units."""

    identity: int
    rows: list[Row]
    places: list[int] | None = None
    """The place of each row within the request, once a step has exploded it."""
    failures: dict[int, list[Failure]] = field(default_factory=dict)
    """By the number of the unit that failed."""
    dropped_by: str | None = None
    """The filter that dropped its last row."""
    lost: bool = False
    """Whether a row that could not be computed is missing, so that there is no answer."""

    def copy(self) -> Part:
        rows = [dict(row) for row in self.rows]
        return Part(
            self.identity, rows, self.places, dict(self.failures), self.dropped_by, self.lost
        )

    def apply(self, unit: Unit, effect: Effect) -> None:
        """Changes the rows as a unit says."""
        step = unit.step
        if effect.failures:  # a loop may have some in several turns
            before = self.failures.get(unit.number, [])
            self.failures[unit.number] = [*before, *effect.failures]
        if isinstance(step, Project):
            self.rows = [{new: row[old] for old, new in step.names} for row in self.rows]
        elif isinstance(step, Keep | Spread | MapWhole):
            self._rebuild(step, effect)
        elif effect.kept is not None:
            self.lost = True
        else:
            for name, values in effect.values.items():
                for row, value in zip(self.rows, values, strict=True):
                    row[name] = value

    def _rebuild(self, step: Keep | Spread | MapWhole, effect: Effect) -> None:
        """The rows after a step that may drop, multiply or replace them."""
        if not self.rows:
            return
        self.places = effect.places
        if isinstance(step, Keep):
            if effect.kept is not None:
                self.rows = [self.rows[i] for i in effect.kept]
        else:
            count = len(self.rows) if effect.kept is None else len(effect.kept)
            self.rows = [{n: v[i] for n, v in effect.values.items()} for i in range(count)]
        if self.rows:
            return
        if effect.failures:
            self.lost = True
        elif isinstance(step, Keep):
            self.dropped_by = step.label


def run_unit(unit: Unit, parts: Sequence[Part], context: Context, worker: Worker) -> None:
    """Runs a unit on the rows of several requests at once, and changes them."""
    while parts:
        found = effects(unit, parts, context, worker)
        for part, effect in zip(parts, found, strict=True):
            part.apply(unit, effect)
        parts = [part for part, effect in zip(parts, found, strict=True) if effect.goes_on]


def effects(
    unit: Unit, parts: Sequence[Part], context: Context, worker: Worker
) -> Sequence[Effect]:
    """What a unit makes of several requests: a loop, one turn of it. What it makes of a row depends
    on that row alone."""
    if unit.loop is None:
        return _effects(unit, unit.step, parts, [r for p in parts for r in p.rows], context, worker)
    flat = [unit.loop.row(row) for part in parts for row in part.rows]
    found = _effects(unit, unit.loop.step, parts, flat, context, worker)
    name = unit.loop.into
    for effect in found:
        if effect.kept is None and name in effect.values:
            effect.values[name], effect.goes_on = unit.loop.settled(effect.values[name])
    return found


def _effects(
    unit: Unit,
    step: Step,
    parts: Sequence[Part],
    flat: list[Row],
    context: Context,
    worker: Worker,
) -> list[Effect]:
    """What a step makes of the rows of several requests."""
    if isinstance(step, Project) or not flat:
        return [Effect({}, None, part.places) for part in parts]
    exploded = any(part.places is not None for part in parts)
    places = (
        [p for part in parts for p in (part.places or [0] * len(part.rows))] if exploded else None
    )
    names = list(flat[0]) if step.reads is None or isinstance(step, Spread) else sorted(step.reads)
    columns = {name: Values([row[name] for row in flat]).settled() for name in names}
    ids = [part.identity for part in parts for _ in part.rows]
    rows = Rows(
        context,
        columns,
        np.array(ids, dtype=np.uint64),
        None if places is None else np.array(places, dtype=np.uint64),
        len(flat),
    )
    step.apply(rows, worker)
    drew = unit.function is not None and bool(worker.seeded(unit.function))
    changed = list(rows.columns) if isinstance(step, Spread | MapWhole) else list(step.writes)
    made = {name: rows.columns[name].rows() for name in changed}
    if rows.origin is None and not rows.failures and not exploded and len(flat) == len(parts):
        return [
            Effect({name: [values[i]] for name, values in made.items()}, None, None, [], drew)
            for i in range(len(parts))
        ]
    return _by_part(parts, rows, made, drew)


def _by_part(
    parts: Sequence[Part], rows: Rows, made: dict[str, list[Any]], drew: bool
) -> list[Effect]:
    """The effects of a step on requests whose rows may have failed, gone, or been multiplied."""
    counts = [len(part.rows) for part in parts]
    owners = [number for number, count in enumerate(counts) for _ in range(count)]
    starts = [0, *np.cumsum(counts).tolist()]
    exploded = rows.places is not None
    found = [Effect({n: [] for n in made}, [], [] if exploded else None, [], drew) for _ in parts]
    origin = range(len(owners)) if rows.origin is None else rows.origin.tolist()
    for i, source in enumerate(origin):
        owner = owners[source]
        effect = found[owner]
        for name, values in made.items():
            effect.values[name].append(values[i])
        if effect.kept is not None:
            effect.kept.append(source - starts[owner])
        if effect.places is not None and rows.places is not None:
            effect.places.append(int(rows.places[i]))
    for failure in rows.failures:
        found[owners[failure.row]].failures.append(failure)
    for effect, count in zip(found, counts, strict=True):
        if effect.kept == list(range(count)):
            effect.kept = None
    return found
