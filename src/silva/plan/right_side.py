"""The right side of a join, as a parameter of an operator: a plan, and how its rows are found.

A join is not a node of its own. It is a derivation, `derive price = item.match(table).take(price)`,
so everything about derivations holds for it: what it reads and writes, that filters may move before
it, that it is dropped if nothing reads it. Its rows are read when the plan is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from silva.plan import expr
from silva.plan.class_tags import tagged
from silva.plan.node import Node, Source, walk

TABLE = "table"
"""The parameter that holds the right side."""


@tagged("RightSide", "plan")
@dataclass(frozen=True, repr=False)
class RightSide:
    """The rows of a plan, addressed by their number."""

    plan: Node

    def __repr__(self) -> str:
        sources = [n.source for n in walk(self.plan) if isinstance(n, Source)]
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        return f"{TABLE} of {sources[0].describe()}{more}"


@tagged("ByKey", "plan keys called")
@dataclass(frozen=True, repr=False)
class ByKey(RightSide):
    """Rows found by the values of key columns, which are unique."""

    keys: tuple[str, ...]
    called: tuple[str, ...]
    """The names of the keys on the left side, which errors mention."""


@tagged("ByTime", "plan keys called time available lag ttl")
@dataclass(frozen=True, repr=False)
class ByTime(RightSide):
    """The latest row with the same keys that was available at a given time."""

    keys: tuple[str, ...]
    called: tuple[str, ...]
    """The names of the keys on the left side."""
    time: str
    available: str | None
    """The column with the time from which a row is available; None for `time` plus `lag`."""
    lag: Any
    """How long after its time a row becomes available; None for at once."""
    ttl: Any
    """How long after its time a row is valid; None for ever."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read to find a row."""
        known = () if self.available is None else (self.available,)
        return (*self.keys, self.time, *known)


def right_side(part: expr.Term) -> RightSide | None:
    """The right side that a call reads; None if it reads none."""
    if not isinstance(part, expr.Call):
        return None
    found = dict(part.params).get(TABLE)
    return found if isinstance(found, RightSide) else None


def right_sides(node: Node) -> Iterator[RightSide]:
    """Yields the right sides that a node itself reads, in the order written."""
    step = node.runs
    if isinstance(step, expr.Call):
        yield from (found for part in expr.walk(step) if (found := right_side(part)) is not None)


def with_right_side(call: expr.Call, table: Any) -> expr.Call:
    """The call with another table in place of its right side."""
    return replace(
        call, params=tuple((k, table if k == TABLE else value) for k, value in call.params)
    )


def columns_taken(call: expr.Call) -> tuple[str, ...]:
    """The columns that a `join.take` reads from the right side."""
    params = dict(call.params)
    return (params["column"], *params["carries"])


def narrow(
    call: expr.Call, into: tuple[str, ...], wanted: frozenset[str]
) -> tuple[expr.Call, tuple[str, ...]]:
    """A `join.take` into `into`, with only the wanted columns; with one if none is wanted."""
    kept = [pair for pair in zip(into, columns_taken(call), strict=True) if pair[0] in wanted]
    kept = kept or [(into[0], columns_taken(call)[0])]
    names = tuple(name for _, name in kept)
    changed = {"column": names[0], "carries": names[1:]}
    params = tuple((k, changed.get(k, value)) for k, value in call.params)
    return replace(call, params=params), tuple(new for new, _ in kept)
