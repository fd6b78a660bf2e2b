"""The right sides of joins: read once, when a plan is first lowered, and kept by the loader.

Only the columns that are used are read. The same table is the same object in every plan of a
loader, so stages that did not change stay equal, and one that goes to a worker goes with its tables
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from silva.columns import Column
from silva.plan import expr
from silva.plan.fingerprint import fingerprint, opaque_parts
from silva.plan.node import Node
from silva.plan.right_side import (
    ByKey,
    ByTime,
    RightSide,
    columns_taken,
    right_side,
    with_right_side,
)

if TYPE_CHECKING:
    from silva.operators.join.tables import Held

ReadColumns = Callable[[Node, tuple[str, ...]], dict[str, Column]]
"""Reads whole columns of a plan."""


@dataclass
class RightSides:
    """The tables that the expressions of a plan read, each made once."""

    read: ReadColumns
    _columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    _made: dict[str, Held] = field(default_factory=dict)

    def bound(self, term: expr.Term) -> expr.Term:
        """The term with the tables themselves in place of what they are made of."""
        self._read_at_once(term)
        return expr.rebuild(term, self._bind)

    def _read_at_once(self, term: expr.Term) -> None:
        """Reads what the term finds rows by and what it takes of them in one pass."""
        plans: dict[str, Node] = {}
        wanted: dict[str, list[str]] = {}
        for part in expr.walk(term):
            side = right_side(part)
            if side is not None:
                assert isinstance(part, expr.Call)
                key = fingerprint(side.plan)
                plans[key] = side.plan
                wanted.setdefault(key, []).extend(_columns_of(side, part))
        for key, plan in plans.items():
            self.columns(plan, tuple(wanted[key]))

    def _bind(self, part: expr.Term) -> expr.Term:
        side = right_side(part)
        if side is None:
            return part
        assert isinstance(part, expr.Call)
        names = () if isinstance(side, ByKey | ByTime) else columns_taken(part)
        return with_right_side(part, self.held(side, names))

    def held(self, side: RightSide, names: tuple[str, ...] = ()) -> Held:
        """What rows are found in; or, of a plain side, the columns of these names."""
        key = repr((fingerprint(side.plan), {**vars(side), "plan": type(side).__name__}, names))
        if key not in self._made:
            from silva.operators.join.tables import Held

            opaque = tuple(opaque_parts(side))
            self._made[key] = Held.of(self._make(side, names), key, repr(side), opaque)
        return self._made[key]

    def _make(self, side: RightSide, names: tuple[str, ...]) -> Any:
        from silva.operators.join.tables import KeyTable, TimeTable

        if isinstance(side, ByKey):
            read = self.columns(side.plan, side.keys)
            return KeyTable.of(side.called, [read[n] for n in side.keys])
        if not isinstance(side, ByTime):
            return self.columns(side.plan, names)
        read = self.columns(side.plan, side.columns)
        return TimeTable.of(
            side.called,
            [read[n] for n in side.keys],
            (side.time, read[side.time]),
            None if side.available is None else (side.available, read[side.available]),
            side.lag,
            side.ttl,
        )

    def columns(self, plan: Node, names: tuple[str, ...]) -> dict[str, Column]:
        """Whole columns of a plan, each read once."""
        have = self._columns.setdefault(fingerprint(plan), {})
        missing = tuple(dict.fromkeys(n for n in names if n not in have))
        if missing:
            have.update(self.read(plan, missing))
        return {name: have[name] for name in names}


def _columns_of(side: RightSide, call: expr.Call) -> tuple[str, ...]:
    match side:
        case ByKey():
            return side.keys
        case ByTime():
            return side.columns
    return columns_taken(call)
