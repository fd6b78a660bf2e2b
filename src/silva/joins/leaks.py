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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.errors import PlanError, RowError
from silva.joins.known import Removal
from silva.loader import Loader
from silva.options import LoaderOptions
from silva.plan import expr
from silva.plan.arguments import name_of, names_of, natural
from silva.plan.node import Batch, Bucket, Filter, Node, Select, without_shuffles
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
    removal = Removal(names_of("check_leaks(known=…)", known), time)
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
