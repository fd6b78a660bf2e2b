"""`join` and `asof_join` as plan nodes, and the checks of their arguments.

price, name = item.match(table).take(price, name)           join, left
filter ~item.match(table).is_null(), before it              join, inner
score = user.latest(ts, table).take(score)                  asof_join
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from silva.errors import PlanError
from silva.operators.join.keys import kind_of_type
from silva.operators.join.times import parse_span
from silva.plan.arguments import name_of, names_of, one_of
from silva.plan.expr import Call, Col, Term
from silva.plan.node import Derive, Filter, Node, PlannedSource, Source, walk
from silva.plan.right_side import TABLE, ByKey, ByTime, RightSide
from silva.plan.schema import columns, is_batched, step_is_random, types

Names = str | Sequence[str]
Pairs = tuple[tuple[str, str], ...]
"""Pairs (column on the left, column on the right)."""


def join(left: Node, other: Any, on: Names | Mapping[str, str], how: str, wanted: Any) -> Node:
    """The left plan with columns of the right side; `inner` first drops rows without a match."""
    one_of("join(how=…)", how, "left", "inner")
    right = right_plan("join", other)
    pairs = as_pairs("join(on=…)", on)
    _check("join", left, right, pairs)
    _check_kinds("join", left, right, pairs)
    keys = tuple(name for _, name in pairs)
    names = _taken("join", left, right, wanted, keys)
    called = tuple(name for name, _ in pairs)
    found = Call("join.match", _cols(called), ((TABLE, ByKey(right, keys, called)),))
    plan = left
    if how == "inner":
        missing = Call("is_null", (found,))
        plan = Filter(plan, Call("not", (missing,)), _id(plan, f"join {','.join(called)}"))
    return _take(plan, found, right, names) if names else plan


def asof_join(
    left: Node,
    other: Any,
    by: Names | Mapping[str, str],
    on: str | Mapping[str, str],
    *,
    ttl: Any,
    lag: Any,
    available: str | None,
    wanted: Any,
) -> Node:
    """The left plan with columns of the latest right row that was known at the time of each row."""
    right = right_plan("asof_join", other)
    pairs, times = as_pairs("asof_join(by=…)", by), as_pairs("asof_join(on=…)", on)
    if len(times) != 1:
        raise PlanError(f"asof_join(on=…) names one column of times, not {on!r}")
    ((own, time),) = times
    _check("asof_join", left, right, (*pairs, *times))
    _check_kinds("asof_join", left, right, pairs)
    side = by_time(right, pairs, time, ttl=ttl, lag=lag, available=available)
    _check_times(types(left).get(own), own, side)
    names = _taken("asof_join", left, right, wanted, side.columns)
    if not names:
        raise PlanError("asof_join: the features have no columns besides their keys and times")
    found = Call("join.latest", _cols((*side.called, own)), ((TABLE, side),))
    return _take(left, found, right, names)


def by_time(
    right: Node, pairs: Pairs, time: str, *, ttl: Any, lag: Any, available: str | None
) -> ByTime:
    """The right side of an as-of join."""
    names = () if available is None else (name_of("asof_join(available=…)", available),)
    check_there("asof_join", "the table of features", right, (time, *names))
    kinds = [kind_of_type(types(right).get(name)) for name in (time, *names)]
    for name, kind in zip((time, *names), kinds, strict=True):
        if kind not in (None, "number", "time"):
            raise PlanError(
                f"asof_join: {name!r} must hold numbers or times, but it is {types(right)[name]}"
            )
    if kinds[0] is not None:
        parse_span("ttl", ttl, kinds[0] == "time")
        parse_span("lag", lag, kinds[0] == "time")
    keys = tuple(name for _, name in pairs)
    called = tuple(name for name, _ in pairs)
    return ByTime(right, keys, called, time, available, lag, ttl)


def right_plan(verb: str, other: Any) -> Node:
    """The plan of the right side, passed as a pipeline, a table or a dict of columns."""
    plan = getattr(other, "plan", None)
    if not isinstance(plan, Node):
        plan = _in_memory(verb, other)
    if is_batched(plan):
        raise PlanError(f"{verb}: the other side must be rows: join it before its batch step")
    for node in walk(plan):
        if isinstance(node, Source) and node.source.awaits_rows:
            raise PlanError(
                f"{verb}: the other side is read once, but requests come one by one: derive its "
                "columns from those of the request, in one pipeline"
            )
        step = node.runs
        if step is not None and step_is_random(step):
            raise PlanError(
                f"{verb}: the other side is read only once, but `{node.id}` draws random numbers: "  # type: ignore[attr-defined]
                "move that step after the join"
            )
    return plan


def _in_memory(verb: str, other: Any) -> Node:
    if isinstance(other, Mapping):
        from silva.io.arrays.memory import from_columns

        return Source(cast(PlannedSource, from_columns(other)))
    if hasattr(other, "__arrow_c_stream__") or hasattr(other, "__arrow_c_array__"):
        from silva.io.arrays.arrow import from_arrow

        return Source(cast(PlannedSource, from_arrow(other)))
    raise PlanError(
        f"{verb} takes a pipeline, an Arrow table or a dict of columns, not {type(other).__name__}"
    )


def as_pairs(what: str, names: Names | Mapping[str, str]) -> Pairs:
    given = names if isinstance(names, Mapping) else {n: n for n in names_of(what, names)}
    pairs = tuple(given.items())
    if not isinstance(names, str | Mapping) and len(pairs) < len(tuple(names)):
        pairs = ()
    wrong = [n for pair in pairs for n in pair if not isinstance(n, str)]
    if not pairs or wrong or len(dict(pairs)) < len(pairs):
        raise PlanError(
            f"{what} is a list of different columns, or a dict from left to right columns, not "
            f"{names!r}"
        )
    return pairs


def _check(verb: str, left: Node, right: Node, pairs: Pairs) -> None:
    if is_batched(left):
        raise PlanError(f"{verb} works on rows and must come before batch")
    check_there(verb, "this side", left, tuple(name for name, _ in pairs))
    check_there(verb, "the other side", right, tuple(name for _, name in pairs))


def check_there(verb: str, side: str, plan: Node, names: tuple[str, ...]) -> None:
    there = columns(plan)
    for name in names:
        if name not in there:
            shown = ", ".join(map(repr, there)) or "(none)"
            raise PlanError(f"{verb}: {side} has no column {name!r}; its columns are {shown}")


def _check_kinds(verb: str, left: Node, right: Node, pairs: Pairs) -> None:
    ours, theirs = types(left), types(right)
    for own, name in pairs:
        kinds = kind_of_type(ours.get(own)), kind_of_type(theirs.get(name))
        if None not in kinds and kinds[0] != kinds[1]:
            raise PlanError(
                f"{verb}: {own!r} is {ours[own]} here, and {name!r} is {theirs[name]} on the other "
                "side, so no two values can be equal: cast one of them"
            )


def _check_times(ours: str | None, own: str, side: ByTime) -> None:
    theirs = types(side.plan).get(side.time)
    kinds = kind_of_type(ours), kind_of_type(theirs)
    if None not in kinds and (kinds[0] != kinds[1] or kinds[0] not in ("number", "time")):
        raise PlanError(
            f"asof_join: {own!r} is {ours} here, and {side.time!r} is {theirs} on the other side: "
            "use numbers on both sides, or dates on both"
        )


def _taken(
    verb: str, left: Node, right: Node, wanted: Any, found_by: tuple[str, ...]
) -> tuple[str, ...]:
    if wanted is None:
        names = tuple(n for n in columns(right) if n not in found_by)
    else:
        names = names_of(f"{verb}(columns=…)", wanted)
        check_there(verb, "the other side", right, names)
    twice = [n for n in names if n in columns(left) or names.count(n) > 1]
    if twice:
        raise PlanError(
            f"{verb}: there is already a column {twice[0]!r}: rename it on the other side, or "
            "choose other columns with columns=[…]"
        )
    return names


def _take(plan: Node, found: Term, right: Node, names: tuple[str, ...]) -> Node:
    params = ((TABLE, RightSide(right)), ("column", names[0]), ("carries", names[1:]))
    step = Call("join.take", (found,), params)
    return Derive(plan, step, names, _id(plan, ",".join(names)))


def _cols(names: tuple[str, ...]) -> tuple[Term, ...]:
    return tuple(Col(name) for name in names)


def _id(plan: Node, name: str) -> str:
    """The id of a step: its output and how many steps before it have the same output."""
    before = sum(getattr(node, "id", "").rpartition("#")[0] == name for node in walk(plan))
    return f"{name}#{before}"
