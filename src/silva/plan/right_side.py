"""The other side of a join, as the parameter of an operator: a plan, and how its rows are found.

A join is no node of its own. It is a derivation, `derive price = item.match(table).take(price)`, so
all that is known of derivations holds for it: what it reads and writes, that filters may go before
it, that it is dropped where nobody reads it. Its rows are read when the plan is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from silva.plan import expr
from silva.plan.node import Node, Source, walk

TABLE = "table"
"""The parameter that holds the other side."""


@dataclass(frozen=True, repr=False)
class RightSide:
    """The rows themselves: what is taken of them is told by their number."""

    plan: Node

    def __repr__(self) -> str:
        sources = [n.source for n in walk(self.plan) if isinstance(n, Source)]
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        return f"{TABLE} of {sources[0].describe()}{more}"


@dataclass(frozen=True, repr=False)
class ByKey(RightSide):
    """Rows found by the values of some columns, which no two rows share."""

    keys: tuple[str, ...]
    called: tuple[str, ...]
    """Their names on the side that looks: errors tell these."""


@dataclass(frozen=True, repr=False)
class ByTime(RightSide):
    """Of the rows with the same values of `keys`, the latest one that was known by some time."""

    keys: tuple[str, ...]
    called: tuple[str, ...]
    """Their names on the side that looks."""
    time: str
    available: str | None
    """The column with the time at which a row was known; None where its time tells."""
    lag: Any
    """How long after its time a row is known; None for at once."""
    ttl: Any
    """How long after its time a row still counts; None for ever."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All that is read to find a row."""
        known = () if self.available is None else (self.available,)
        return (*self.keys, self.time, *known)


def right_side(part: expr.Term) -> RightSide | None:
    """The other side that a call looks into."""
    if not isinstance(part, expr.Call):
        return None
    found = dict(part.params).get(TABLE)
    return found if isinstance(found, RightSide) else None


def right_sides(node: Node) -> Iterator[RightSide]:
    """The other sides that a node itself looks into, in the order written."""
    step = getattr(node, "step", None)
    if isinstance(step, expr.Call):
        yield from (found for part in expr.walk(step) if (found := right_side(part)) is not None)


def with_right_side(call: expr.Call, table: Any) -> expr.Call:
    """The call that looks into something else."""
    return replace(
        call, params=tuple((k, table if k == TABLE else value) for k, value in call.params)
    )


def taken(call: expr.Call) -> tuple[str, ...]:
    """The columns that a `join.take` gives."""
    params = dict(call.params)
    return (params["column"], *params["carries"])


def narrowed(
    call: expr.Call, into: tuple[str, ...], wanted: frozenset[str]
) -> tuple[expr.Call, tuple[str, ...]]:
    """A `join.take` into these columns, with just those that are wanted; with one if none is."""
    kept = [pair for pair in zip(into, taken(call), strict=True) if pair[0] in wanted]
    kept = kept or [(into[0], taken(call)[0])]
    names = tuple(name for _, name in kept)
    changed = {"column": names[0], "carries": names[1:]}
    params = tuple((k, changed.get(k, value)) for k, value in call.params)
    return replace(call, params=params), tuple(new for new, _ in kept)
