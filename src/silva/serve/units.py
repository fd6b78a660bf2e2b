"""The steps of a served pipeline, cut into units, and how a unit runs on rows of several requests.

A unit is one step. It waits for the units that write what it reads, so branches that do not depend
on each other run at the same time; filters, explodes and selections are barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.columns import Values
from silva.errors import PlanError
from silva.physical import plan as physical
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context, Failure
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Keep, MapWhole, Project, Spread, Step
from silva.plan import expr

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

    @property
    def asks(self) -> tuple[expr.Call, ...]:
        """The calls of models and indices in it."""
        term = self.step.runs
        if term is None or not isinstance(term, expr.Call):
            return ()
        parts = (part for part in expr.walk(term) if isinstance(part, expr.Call))
        return tuple(part for part in parts if part.op.startswith(("model.", "index.")))

    @property
    def runs_user_code(self) -> bool:
        """Whether it calls a function of the user."""
        runs = self.step.runs
        return runs is not None and not isinstance(
            runs, expr.Call | expr.Col | expr.Literal | expr.RowId
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


def _clash(earlier: Step, reads: frozenset[str], writes: Sequence[str]) -> bool:
    """Whether a step that reads and writes these columns must wait for an earlier one."""
    made = set(earlier.writes)
    return bool(made & reads or made & set(writes) or (earlier.reads or set()) & set(writes))


@dataclass(eq=False)
class Part:
    """The rows of one request between two units."""

    identity: int
    rows: list[Row]
    places: list[int] | None = None
    """The place of each row within the request, once a step has exploded it."""
    failures: list[Failure] = field(default_factory=list)
    dropped_by: str | None = None
    """The filter that dropped its last row."""


def run_unit(unit: Unit, parts: Sequence[Part], context: Context, worker: Worker) -> None:
    """Runs a unit on the rows of several requests at once. What it makes of a row depends on that
    row alone."""
    step = unit.step
    if isinstance(step, Project):
        for part in parts:
            part.rows = [{new: row[old] for old, new in step.names} for row in part.rows]
        return
    flat = [row for part in parts for row in part.rows]
    if not flat:
        return
    owners = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    exploded = any(part.places is not None for part in parts)
    places = (
        [p for part in parts for p in (part.places or [0] * len(part.rows))] if exploded else None
    )
    names = list(flat[0]) if step.reads is None or isinstance(step, Spread) else sorted(step.reads)
    columns = {name: Values([row[name] for row in flat]).settled() for name in names}
    rows = Rows(
        context,
        columns,
        np.array([parts[owner].identity for owner in owners.tolist()], dtype=np.uint64),
        None if places is None else np.array(places, dtype=np.uint64),
        len(flat),
    )
    step.apply(rows, worker)
    for failure in rows.failures:
        parts[int(owners[failure.row])].failures.append(failure)
    origin = np.arange(len(flat)) if rows.origin is None else rows.origin
    if isinstance(step, Keep | Spread | MapWhole) or rows.failures:
        _regroup(step, parts, flat, owners, rows, origin)
        return
    made = {name: rows.columns[name].rows() for name in step.writes}
    for name, values in made.items():
        for row, value in zip(flat, values, strict=True):
            row[name] = value


def _regroup(
    step: Step,
    parts: Sequence[Part],
    flat: list[Row],
    owners: np.ndarray,
    rows: Rows,
    origin: np.ndarray,
) -> None:
    """Gives each request the rows that it still has."""
    changed = list(rows.columns) if isinstance(step, Spread | MapWhole) else list(step.writes)
    made = {name: rows.columns[name].rows() for name in changed}
    whole = isinstance(step, MapWhole)
    for part in parts:
        part.rows = []
        part.places = None if rows.places is None else []
    for i, source in enumerate(origin.tolist()):
        part = parts[int(owners[source])]
        own = {name: values[i] for name, values in made.items()}
        part.rows.append(own if whole else {**flat[source], **own})
        if rows.places is not None and part.places is not None:
            part.places.append(int(rows.places[i]))
    if isinstance(step, Keep):
        for part in parts:
            if not part.rows and not part.failures and part.dropped_by is None:
                part.dropped_by = step.label
