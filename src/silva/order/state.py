"""States of loaders: small, readable JSON, tied to the logical plan.

A state holds, for each shard that has started, a cursor and the number of failed rows. It loads
under another plan, backend, policy, number of workers and (with the same shards) of ranks. Every
state passes `check_state`, which checks it strictly before anything is opened. `merge_states` joins
the states of all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silva.errors import StateError
from silva.order import state_0_1
from silva.order.cursor_checks import MOST, shown
from silva.order.cursors import Position, check_cursors
from silva.order.forms import batching, cursor_form, has_windows
from silva.plan import node as logical
from silva.plan.fingerprint import fingerprint, says_only_how
from silva.plan.show import show_node

VERSION = 2
_FIELDS = {"silva", "pipeline", "seed", "epoch", "step", "shards", "cursors"}
_MAY_HAVE = {"outline", "failures", "close", "substitutes"}
_COMMON = ("silva", "pipeline", "seed", "epoch", "step", "shards", "close", "substitutes")
"""The fields in which the states of all ranks agree."""

MOST_SHARDS = 1 << 16
"""The most shards that a state or a pipeline may have."""
_MOST_EPOCHS = 1 << 32
_MOST_LINES = 1 << 16
_SEED_BITS = 256
_SHORT_STEP = 60
"""Characters of a step's text that an error shows in full."""

State = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """How a state identifies the pipeline it belongs to."""

    fingerprint: str
    outline: list[list[str]]
    """Each node as [its text, the first digits of its fingerprint]: enough to name what changed."""

    @staticmethod
    def of(plan: logical.Node) -> Identity:
        nodes = [n for n in logical.walk(plan) if not says_only_how(n)]
        lines = [[_without_path(show_node(n)), fingerprint(n)[:8]] for n in nodes]
        return Identity(fingerprint(plan), lines)


def _without_path(text: str) -> str:
    """The text without the file and line of a function, which do not affect the stream."""
    return text.partition("  [")[0]


def new_state(
    identity: Identity,
    *,
    seed: int,
    epoch: int,
    step: int,
    shards: int,
    positions: Mapping[str, Position],
    close: Sequence[str],
    substitutes: bool,
) -> State:
    """A new state. `close` names the rewrites in use that do not keep every bit; loading the state
    uses them again. `substitutes`: failed rows were replaced and counted."""
    own: State = {"close": list(close)} if close else {}
    own |= {"substitutes": True} if substitutes else {}
    return own | {
        "silva": VERSION,
        "pipeline": identity.fingerprint,
        "outline": identity.outline,
        "seed": seed,
        "epoch": epoch,
        "step": step,
        "shards": shards,
        "cursors": {shard: at.cursor for shard, at in positions.items()},
        "failures": {shard: [at.failed, at.seen] for shard, at in positions.items()},
    }


def check_policy(state: State, plan: logical.Node, substitutes: bool) -> None:
    """Raises unless a checked state can continue under this policy for failed rows.

    A window is read again as a whole. If failed rows were counted differently, it would hold other
    rows than those that were given.
    """
    same = state.get("substitutes", False) == substitutes
    failed = any(count[0] for count in state["failures"].values())
    if failed and not same and has_windows(cursor_form(plan)):
        raise StateError(
            "rows failed before this state was saved, and its windows were filled "
            + ("without them" if substitutes else "with substitutes for them")
            + ": load the state with the same kind of on_error, or start the epoch again"
        )


def positions(state: State) -> dict[str, Position]:
    """The position of each shard in a checked state."""
    counts = state["failures"]
    return {s: Position(cursor, *counts.get(s, (0, 0))) for s, cursor in state["cursors"].items()}


def check_state(
    state: Any,
    plan: logical.Node,
    identity: Identity | None = None,
) -> State:
    """A copy of the state in today's form, if a stream of `plan` can continue from it.

    Raises `StateError` otherwise, and nothing else, whatever `state` is. The work grows with the
    length of the state and the plan only. `identity` is the plan's; without it, the state may
    belong to another pipeline whose cursors have the same form.
    """
    found = check_head(state)
    if identity is not None and found["pipeline"] != identity.fingerprint:
        raise StateError(
            f"the pipeline is not the one this state was saved for: "
            f"{_difference(found, identity)}. Pass allow_changed=True to load_state_dict if the "
            "rows and their order are the same"
        )
    _check_shards(plan, found["shards"])
    form = cursor_form(plan)
    if found["silva"] == state_0_1.VERSION:
        found = {**found, **state_0_1.upgrade(found, form), "silva": VERSION}
    cursors = _check_numbered(found["cursors"], found["shards"], "cursors")
    check_cursors(form, cursors, shards=found["shards"], seed=found["seed"], epoch=found["epoch"])
    counts = _check_numbered(found.get("failures", {}), found["shards"], "failures")
    for shard, count in counts.items():
        if shard not in cursors or not isinstance(count, list | tuple) or len(count) != 2:
            raise StateError(f"the failures of shard {shard} must be [failed, seen] of a cursor")
        for number in count:
            _check_number("failures", number, 0, MOST)
    copied: State = json.loads(json.dumps({**found, "failures": counts}))
    return copied


def check_head(state: Any, most_shards: int = MOST_SHARDS) -> State:
    """The state, if everything but its cursors is valid."""
    if not isinstance(state, Mapping) or not state.keys() >= _FIELDS:
        raise StateError("this is not a state of a silva loader")
    version = state["silva"]
    if type(version) is not int or version not in (state_0_1.VERSION, VERSION):
        raise StateError(
            f"the state has version {shown(version)}, this silva reads versions "
            f"{state_0_1.VERSION} and {VERSION}"
        )
    if unknown := state.keys() - _FIELDS - _MAY_HAVE:
        raise StateError(f"the state has an unknown field: {shown(next(iter(unknown)))}")
    if not isinstance(state["pipeline"], str):
        raise StateError(
            f"the state's pipeline must be a fingerprint, not {shown(state['pipeline'])}"
        )
    if type(state["seed"]) is not int or state["seed"].bit_length() > _SEED_BITS:
        raise StateError(f"the state's seed must be a whole number, not {shown(state['seed'])}")
    _check_number("epoch", state["epoch"], 0, _MOST_EPOCHS - 1)
    _check_number("step", state["step"], 0, MOST)
    _check_number("shards", state["shards"], 1, most_shards)
    _check_texts("close", state.get("close", []))
    if state.get("substitutes", True) is not True:
        raise StateError(f"the state's substitutes must be True, not {shown(state['substitutes'])}")
    for line in _check_lines(state.get("outline", [])):
        _check_texts("outline", line)
    if not isinstance(state["cursors"], dict):
        raise StateError(f"the state's cursors must be a dict, not {shown(state['cursors'])}")
    return dict(state)


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise StateError(
            f"the state's {name} must be a whole number from {least} to {most}, not {shown(value)}"
        )


def _check_lines(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or len(value) > _MOST_LINES:
        raise StateError(f"the state's outline must be a list of steps, not {shown(value)}")
    return value


def _check_texts(name: str, value: Any) -> None:
    lines = _check_lines(value)
    if not all(isinstance(line, str) for line in lines) or (name == "outline" and len(lines) != 2):
        raise StateError(f"the state's {name} must hold strings only")


def _check_numbered(value: Any, shards: int, name: str) -> dict[str, Any]:
    """The value, if its keys are numbers of shards, as strings."""
    if not isinstance(value, dict):
        raise StateError(f"the state's {name} must be a dict, not {shown(value)}")
    for key in value:
        plain = isinstance(key, str) and len(key) < 10 and key.isascii() and key.isdigit()
        if not plain or str(int(key)) != key or int(key) >= shards:
            raise StateError(
                f"the state's {name} must be of shards 0 to {shards - 1}, not {shown(key)}"
            )
    return value


def _check_shards(plan: logical.Node, shards: int) -> None:
    """Raises unless the pipeline can be read in this number of shards."""
    batch = batching(plan)
    sizes: list[int] = []
    if isinstance(batch, logical.Bucket):
        sizes = [rows for _, rows in batch.sizes]
    elif batch is not None and batch.size is not None:
        sizes = [batch.size]
    alone = batch is None or (isinstance(batch, logical.Batch) and batch.tokens is not None)
    uneven = [rows for rows in sizes if rows % shards]
    if (alone and shards != 1) or uneven:
        raise StateError(
            f"the state has {shards} shards, but this pipeline cannot be read in as many: "
            + ("it has one" if alone else f"a batch has {uneven[0]} rows")
        )


def _difference(state: Mapping[str, Any], identity: Identity) -> str:
    saved = [tuple(line) for line in state.get("outline", [])]
    now = [tuple(line) for line in identity.outline]
    for i, (old, new) in enumerate(zip(saved, now, strict=False)):
        if old != new:
            if old[0] == new[0]:
                return f"the code, constants or data of step {i}, `{new[0]}`, have changed"
            return _changed(i, old[0], new[0])
    if len(saved) > len(now):
        return f"step {len(now)}, `{saved[len(now)][0][:200]}`, is gone"
    if len(now) > len(saved):
        return f"step {len(saved)}, `{now[len(saved)][0]}`, is new"
    return "its data has changed"


def _changed(step: int, old: str, new: str) -> str:
    """The change of a step's text; of a long one, only the part that differs, in whole words."""
    if max(len(old), len(new)) <= _SHORT_STEP:
        return f"step {step} was `{old}` and is `{new}`"
    first = _same(old, new)
    last = _same(old[first:][::-1], new[first:][::-1])
    start = max(new.rfind(mark, 0, first) for mark in " (") + 1

    def part(text: str) -> str:
        ends = (text.find(mark, max(len(text) - last, start)) for mark in " ,)")
        stop = min((end for end in ends if end >= 0), default=len(text))
        return f"…{text[start:stop][:200]}…"

    return f"step {step}, `{new[:_SHORT_STEP]}…`, had `{part(old)}` and has `{part(new)}`"


def _same(a: str, b: str) -> int:
    """The number of characters with which both begin."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def merge_states(states: Sequence[State]) -> State:
    """The states of all ranks as one, which any rank can load."""
    if not isinstance(states, Sequence) or isinstance(states, str | bytes) or not states:
        raise StateError("merge_states needs the states of all ranks")
    found = [check_head(state, MOST) for state in states]
    first = found[0]
    for state in found:
        for name in _COMMON:
            if state.get(name) != first.get(name):
                raise StateError(
                    f"states to merge must agree on {name}: {shown(first.get(name))} and "
                    f"{shown(state.get(name))}; save them after the same step"
                )
    if first["silva"] == state_0_1.VERSION:
        return {**first, "cursors": state_0_1.merge_cursors([state["cursors"] for state in found])}
    joined = {name: _join(found, name) for name in ("cursors", "failures")}
    return {**first, **joined}


def _join(states: Sequence[State], name: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for state in states:
        own = _check_numbered(state.get(name, {}), state["shards"], name)
        if both := made.keys() & own.keys():
            raise StateError(f"shard {min(both)} is in two of the states")
        made |= own
    return made
