"""A plan as of some time: its joined tables without the rows that became known later."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, cast

import numpy as np

from silva.io.arrays.memory import MemorySource, as_column
from silva.loader import read_columns
from silva.operators.join.tables import visible_from
from silva.operators.join.times import Times
from silva.physical.right_sides import RightSides
from silva.plan import expr
from silva.plan.fingerprint import fingerprint
from silva.plan.node import Node, PlannedSource, Source, transform
from silva.plan.right_side import ByTime, RightSide, right_side, right_sides, with_right_side
from silva.plan.schema import columns


class Removal:
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
