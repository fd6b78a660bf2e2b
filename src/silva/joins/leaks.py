"""Finds columns that depend on the future, by removing the future.

For some times `t`, the pipeline runs twice on its rows of that time: as it is, and with joined
tables from which all rows that became known after `t` are removed. A value that differs depends on
the future. The rows are really removed, so the check does not rely on the joins themselves.

What this proves: no value of the rows that were compared, and no such row, depends on rows of
joined tables that became known after the row's own time. What it cannot see: a feature that was
computed from the future before it entered its table; what a function reads by itself; columns of
the pipeline's own source, labels above all; tables without a column of times, which it names; rows
that were not compared.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from silva.errors import PlanError, RowError
from silva.io.arrays.memory import MemorySource, as_column
from silva.loader import Loader, read_columns
from silva.operators.join.tables import visible_from
from silva.operators.join.times import Times
from silva.options import LoaderOptions
from silva.physical.right_sides import RightSides
from silva.plan import expr
from silva.plan.arguments import name_of, names_of, natural
from silva.plan.fingerprint import fingerprint
from silva.plan.node import (
    Batch,
    Bucket,
    Filter,
    Node,
    PlannedSource,
    Select,
    Source,
    transform,
    without_shuffles,
)
from silva.plan.right_side import ByTime, RightSide, right_side, right_sides, with_right_side
from silva.plan.schema import columns, is_batched

_ROWS = "(the row itself)"


@dataclass(frozen=True)
class Leak:
    """A column that changes when the future is removed."""

    column: str
    time: Any
    """The time of a row in which it changes."""
    found: Any
    """The value in that row."""
    known: Any
    """The value without the future."""

    def __str__(self) -> str:
        return f"{self.column} at {self.time}: {self.found!r:.60}, but {self.known!r:.60} was known"


@dataclass(frozen=True)
class Leaks:
    """The result of `check_leaks`: the leaks, and what was checked; true if there are leaks."""

    found: tuple[Leak, ...]
    """One leak for each column that leaks."""
    rows: int
    """The number of rows that were compared."""
    times: int
    tables: tuple[str, ...]
    """The tables whose future was removed, and the column that says when a row became known."""
    unchecked: tuple[str, ...]
    """Tables without a column of times, and steps that were not checked."""

    def __bool__(self) -> bool:
        return bool(self.found)

    def __str__(self) -> str:
        lines = [f"leak: {leak}" for leak in self.found] or ["no leak was found"]
        lines.append(f"compared: {self.rows:,} rows of {self.times:,} times")
        lines += [f"future removed: {table}" for table in self.tables]
        lines += [f"not checked: {what}" for what in self.unchecked]
        return "\n".join(lines)


def check_leaks(
    plan: Node, time: str, known: str | Sequence[str] = (), times: int = 32, seed: int = 0
) -> Leaks:
    """Looks for columns that depend on what was not known by the time in the column `time`.

    `known` names the columns of joined tables that say when a row was known, the first that a table
    has; without one, that of an as-of join is its own, and that of any other the one called `time`.
    """
    name_of("check_leaks(time)", time)
    natural("check_leaks(times=…)", times, least=1)
    natural("check_leaks(seed=…)", seed)
    rows, skipped = _before_batch(without_shuffles(plan))
    if time not in columns(rows):
        raise PlanError(
            f"check_leaks(time={time!r}): there is no such column at the end of the pipeline; the "
            f"columns here are {', '.join(map(repr, columns(rows)))}"
        )
    removal = _Removal(names_of("check_leaks(known=…)", known), time)
    found: dict[str, Leak] = {}
    compared = 0
    moments = _moments(rows, time, times, seed)
    for moment in moments:
        ours = _read(_at(rows, time, moment))
        compared += len(ours)
        try:
            blind = _read(_at(removal.without_future(rows, moment), time, moment))
        except RowError as error:
            found.setdefault(error.step, Leak(error.step, moment, "a value", "failure"))
            continue
        for leak in _differences(moment, ours, blind):
            found.setdefault(leak.column, leak)
    return Leaks(
        tuple(found.values()),
        compared,
        len(moments),
        tuple(removal.checked),
        (*removal.unchecked, *skipped),
    )


def _before_batch(plan: Node) -> tuple[Node, tuple[str, ...]]:
    """The rows before a plan's batch step, and what is not checked after them."""
    if not is_batched(plan):
        return plan, ()
    node = plan
    while not isinstance(node, Batch | Bucket):
        node = node.inputs[0]
    return node.input, () if node is plan else ("steps after batch",)


def _moments(plan: Node, time: str, count: int, seed: int) -> list[Any]:
    """A sample of the times: the first, the last, and others at random."""
    values = {row[time] for row in _read(Select(plan, (time,))) if row[time] is not None}
    there = sorted(values)
    if len(there) <= count:
        return there
    inner = np.random.default_rng(seed).permutation(np.arange(1, len(there) - 1))
    picked = [0, len(there) - 1, *inner[: max(count - 2, 0)].tolist()]
    return [there[i] for i in sorted(picked[:count])]


def _at(plan: Node, time: str, moment: Any) -> Node:
    """The rows of one time."""
    condition = expr.Call("equal", (expr.Col(time), expr.Literal(moment)))
    return Filter(plan, condition, "check_leaks")


def _read(plan: Node) -> list[dict[str, Any]]:
    with Loader(plan, LoaderOptions(backend="inline", cache="off")) as loader:
        return list(loader._loop())


def _differences(
    moment: Any, ours: list[dict[str, Any]], blind: list[dict[str, Any]]
) -> Iterable[Leak]:
    if len(ours) != len(blind):
        yield Leak(_ROWS, moment, f"{len(ours)} rows", f"{len(blind)} rows")
        return
    for one, other in zip(ours, blind, strict=True):
        for name, value in one.items():
            if not _equal(value, other[name]):
                yield Leak(name, moment, value, other[name])


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype
        if not same or a.dtype != object:
            return same and np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM")
    if isinstance(a, list | tuple | np.ndarray) and isinstance(b, list | tuple | np.ndarray):
        return len(a) == len(b) and all(map(_equal, a, b))
    if type(a) is not type(b):
        return False
    return bool(a == b) or (a != a and b != b)


class _Removal:
    """Removes later rows from joined tables. Each table is read once for all times."""

    def __init__(self, known: tuple[str, ...], time: str) -> None:
        """`known`: columns of tables that say when a row became known; `time`: the column to use in
        tables that have none of them."""
        self._known = known
        self._time = time
        self._read = RightSides(read_columns)
        self._made: dict[tuple[str, str], Node] = {}
        self.checked: dict[str, None] = {}
        self.unchecked: dict[str, None] = {}

    def without_future(self, plan: Node, moment: Any) -> Node:
        """The plan with only those rows of its tables that were known by `moment`."""

        def change(node: Node) -> Node:
            finders = [side for side in right_sides(node) if type(side) is not RightSide]
            if not finders:
                return node
            step = node.step  # type: ignore[attr-defined]
            table = self._table(finders[0], moment)
            return replace(node, step=expr.rebuild(step, functools.partial(_into, table)))  # type: ignore[call-arg]

        return transform(plan, change)

    def _table(self, side: RightSide, moment: Any) -> Node:
        """A table with only the rows known by `moment`; likewise the tables that it joins."""
        plan = self.without_future(side.plan, moment)
        column = self._column(side)
        if column is None:
            self.unchecked[f"{side!r}, which has no column of times"] = None
            return plan
        self.checked[f"{side!r}, by {column}"] = None
        key = (f"{fingerprint(plan)} {column} {self._limits(side)}", repr(moment))
        if key not in self._made:
            source = self._known_by(plan, side, column, moment, ":".join(key))
            self._made[key] = Source(cast(PlannedSource, source))
        return self._made[key]

    def _column(self, side: RightSide) -> str | None:
        there = columns(side.plan)
        for name in self._known:
            if name in there:
                return name
        if isinstance(side, ByTime):
            return side.available or side.time
        return self._time if self._time in there else None

    def _limits(self, side: RightSide) -> Any:
        """The time and the lag of an as-of join, if its own column says when a row became known."""
        if not isinstance(side, ByTime) or self._column(side) != (side.available or side.time):
            return None
        return (side.time, side.lag)

    def _known_by(
        self, plan: Node, side: RightSide, column: str, moment: Any, name: str
    ) -> MemorySource:
        names = columns(plan)
        table = self._read.columns(plan, names)
        seen = Times.of(column, table[column])
        if isinstance(side, ByTime) and self._limits(side) is not None:
            late = None if side.available is None else (side.available, table[side.available])
            seen = visible_from((side.time, table[side.time]), late, side.lag)
        now = Times.of(self._time, as_column(self._time, [moment]))
        (limit,), _ = now.bounds(seen.tick, seen.data.dtype)
        rows = np.flatnonzero(seen.valid & (seen.data <= limit).astype(bool))
        data = {n: table[n].take(rows) for n in names}
        return MemorySource(data, "what was known", len(rows), known_as=name)


def _into(table: Node, part: expr.Term) -> expr.Term:
    side = right_side(part)
    if side is None:
        return part
    assert isinstance(part, expr.Call)
    return with_right_side(part, replace(side, plan=table))
