"""Resharding: deals the remaining rows of an epoch out to another number of shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from silva.errors import StateError
from silva.order import cursors as forms
from silva.order.cursor_checks import shown
from silva.order.cursors import Cursor, Form
from silva.order.forms import cursor_form
from silva.order.shards import Ranges, redistribute, shard_range, share
from silva.order.state import MOST_SHARDS, State, check_state
from silva.plan.node import Node

_VERBS: dict[type[Any], str] = {
    forms.PartsForm: "explode",
    forms.WindowsForm: "a window of rows",
    forms.ChunksForm: "a batched function of fixed size",
    forms.CountedForm: "take or skip",
    forms.ConcatForm: "concat",
    forms.ZipForm: "zip",
    forms.BucketForm: "bucket",
    forms.UnitsForm: "a chunked source",
}


class HasPlan(Protocol):
    """A pipeline, as far as a state needs it."""

    @property
    def plan(self) -> Node: ...


def reshard(state: State, shards: int, plan: Node | HasPlan) -> State:
    """The state with its remaining rows dealt out to another number of shards."""
    if type(shards) is not int or not 1 <= shards <= MOST_SHARDS:
        raise StateError(f"shards must be between 1 and {MOST_SHARDS}, not {shown(shards)}")
    node = plan if isinstance(plan, Node) else getattr(plan, "plan", None)
    if not isinstance(node, Node):
        raise StateError(f"reshard takes the pipeline of the state, not {shown(plan)}")
    found = check_state(state, node)
    cursors, old = found["cursors"], found["shards"]
    if not cursors:
        return {**found, "shards": shards}
    if len(cursors) != old:
        raise StateError(
            f"the state has cursors of {len(cursors)} of {old} shards: merge the states of all "
            "ranks with sv.merge_states([…]) first"
        )
    dealt = _deal(cursor_form(node), [cursors[str(s)] for s in range(old)], shards)
    counts = [sum(c[i] for c in found["failures"].values()) for i in (0, 1)]
    return {
        **found,
        "shards": shards,
        "cursors": {str(s): cursor for s, cursor in enumerate(dealt)},
        "failures": {str(s): [share(c, shards, s) for c in counts] for s in range(shards)},
    }


def _deal(form: Form, cursors: Sequence[Cursor], new: int) -> list[Cursor]:
    match form:
        case forms.PlacesForm():
            size = form.size
            remaining = [_remaining(size, c, len(cursors), s) for s, c in enumerate(cursors)]
            return [{"ranges": [list(r) for r in runs]} for runs in redistribute(remaining, new)]
        case forms.MixForm():
            return _deal_mix(form, cursors, new)
    raise StateError(f"a state in the middle of {_VERBS[type(form)]} cannot be resharded")


def _remaining(size: int, cursor: Cursor, shards: int, shard: int) -> Ranges:
    start, stop = shard_range(size, shards, shard)
    if cursor is None:
        return ((start, stop),)
    if "ranges" in cursor:
        return tuple((first, end) for first, end in cursor["ranges"])
    return ((cursor["at"], stop),)


def _deal_mix(form: forms.MixForm, cursors: Sequence[Cursor], new: int) -> list[Cursor]:
    begun = [c for c in cursors if c is not None]
    if any(any(c.get("passes", ())) for c in begun):
        raise StateError("a mix that has begun to repeat a pipeline cannot be resharded")
    count = len(form.many)
    each = [
        _deal(form.many[i], [None if c is None else c["each"][i] for c in cursors], new)
        for i in range(count)
    ]
    given = [max((c["given"][i] for c in begun), default=0) for i in range(count)]
    passes = {"passes": [0] * count} if form.repeats else {}
    return [
        {"given": given, "each": [each[i][s] for i in range(count)], **passes} for s in range(new)
    ]
