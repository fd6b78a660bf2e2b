"""States of loaders: small, readable JSON, tied to the logical plan.

A state holds one cursor for each shard that has started. It loads under another plan, backend,
number of workers and (with the same shards) of ranks. `merge_states` joins the states of all ranks;
`reshard` deals what remains out to another number of shards, so that no row is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from silva.errors import StateError
from silva.order.shards import Ranges, redistribute, shard_range
from silva.plan import node as logical
from silva.plan.fingerprint import fingerprint, says_only_how
from silva.plan.show import show_node

VERSION = 1
_FIELDS = {"silva", "pipeline", "seed", "epoch", "step", "shards", "cursors"}

State = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What a state says about the pipeline it belongs to."""

    fingerprint: str
    outline: list[list[str]]
    """Each node as [what it says, its fingerprint's first digits]: enough to name what changed."""

    @staticmethod
    def of(plan: logical.Node) -> Identity:
        nodes = [n for n in logical.walk(plan) if not says_only_how(n)]
        lines = [[_without_path(show_node(n)), fingerprint(n)[:8]] for n in nodes]
        return Identity(fingerprint(plan), lines)


def _without_path(text: str) -> str:
    """Without the place of a function in some file, which says nothing about the stream."""
    return text.partition("  [")[0]


def new_state(
    identity: Identity,
    seed: int,
    epoch: int,
    shards: int,
    cursors: dict[str, Any],
    step: int,
    close: Sequence[str] = (),
) -> State:
    """`close` names the rewrites in use that do not keep every bit: they are used again."""
    own = {"close": list(close)} if close else {}
    return own | {
        "silva": VERSION,
        "pipeline": identity.fingerprint,
        "outline": identity.outline,
        "seed": seed,
        "epoch": epoch,
        "step": step,
        "shards": shards,
        "cursors": cursors,
    }


def check_state(state: Any, identity: Identity, allow_changed: bool) -> State:
    """The state, if it can be loaded for this pipeline."""
    if not isinstance(state, Mapping) or not set(state) >= _FIELDS:
        raise StateError("this is not a state of a silva loader")
    if state["silva"] != VERSION:
        raise StateError(
            f"the state has version {state['silva']}, this silva reads version {VERSION}"
        )
    if not isinstance(state.get("close", []), list | tuple):
        raise StateError(f"the state's close laws are no list: {state['close']!r:.80}")
    if state["pipeline"] != identity.fingerprint and not allow_changed:
        raise StateError(
            f"the pipeline is not the one this state was saved for: "
            f"{_difference(state, identity)}. Pass allow_changed=True to load_state_dict if the "
            "rows and their order are the same"
        )
    return dict(state)


def _difference(state: Mapping[str, Any], identity: Identity) -> str:
    saved = [tuple(line) for line in state.get("outline", [])]
    now = [tuple(line) for line in identity.outline]
    for i, (old, new) in enumerate(zip(saved, now, strict=False)):
        if old != new:
            if old[0] == new[0]:
                return f"step {i}, `{new[0]}`, has other code, constants or data now"
            return f"step {i} was `{old[0]}` and is `{new[0]}`"
    if len(saved) > len(now):
        return f"step {len(now)}, `{saved[len(now)][0]}`, is gone"
    if len(now) > len(saved):
        return f"step {len(saved)}, `{now[len(saved)][0]}`, is new"
    return "its data has changed"


def merge_states(states: Sequence[State]) -> State:
    """The states of all ranks as one, which any rank can load."""
    if not states:
        raise StateError("merge_states needs the states of all ranks")
    first = states[0]
    cursors: dict[str, Any] = {}
    for state in states:
        for name in ("silva", "pipeline", "seed", "epoch", "step", "shards", "close"):
            if state.get(name) != first.get(name):
                raise StateError(
                    f"states to merge must agree on {name}: {first.get(name)!r} and "
                    f"{state.get(name)!r}; "
                    "save them after the same step"
                )
        for name, cursor in state["cursors"].items():
            if name.isdigit() and name in cursors:
                raise StateError(f"shard {name} is in two of the states")
            if cursors.setdefault(name, cursor) != cursor:  # how many batches were taken, …
                raise StateError(
                    f"the ranks differ in {name!r} ({cursors[name]!r} and {cursor!r}), which "
                    "belongs to a rank and not to a shard: resume with the same number of ranks"
                )
    return {**first, "cursors": cursors}


def reshard(state: State, shards: int, plan: Any) -> State:
    """The state for another number of shards: what remains, dealt out anew."""
    node = getattr(plan, "plan", plan)
    old = int(state["shards"])
    cursors = [state["cursors"].get(str(s)) for s in range(old)]
    try:
        new = _reshard(node, cursors, old, shards)
    except (KeyError, TypeError) as error:
        raise StateError(
            f"a state in the middle of a window or chunk cannot be resharded ({error!r})"
        ) from None
    dealt = {str(i): cursor for i, cursor in enumerate(new)}
    return {**state, "shards": shards, "cursors": dealt}


def _reshard(node: logical.Node, cursors: list[Any], old: int, new: int) -> list[Any]:
    match node:
        case logical.Mix():
            return _reshard_mix(node, cursors, old, new)
        case logical.Zip() | logical.Concat() | logical.Explode() | logical.Pack():
            raise StateError(f"a state in the middle of `{node.verb}` cannot be resharded")
        case logical.Bucket() | logical.Take() | logical.Skip() | logical.Sample():
            raise StateError(f"a state in the middle of `{node.verb}` cannot be resharded")
        case logical.Source():
            return _reshard_source(node, cursors, old, new)
        case _:
            cursors = [c["in"] if isinstance(c, dict) and "in" in c else c for c in cursors]
            return _reshard(node.inputs[0], cursors, old, new)


def _reshard_source(node: logical.Source, cursors: list[Any], old: int, new: int) -> list[Any]:
    if node.source.access != "indexed":
        raise StateError("a state over a chunked source or a stream cannot be resharded")
    length = node.source.length()
    remaining: list[Ranges] = []
    for shard, cursor in enumerate(cursors):
        start, stop = shard_range(length, old, shard)
        if cursor is None:
            remaining.append(((start, stop),))
        elif "ranges" in cursor:
            remaining.append(tuple((int(a), int(b)) for a, b in cursor["ranges"]))
        else:
            remaining.append(((int(cursor["at"]), stop),))
    return [{"ranges": [list(run) for run in runs]} for runs in redistribute(remaining, new)]


def _reshard_mix(node: logical.Mix, cursors: list[Any], old: int, new: int) -> list[Any]:
    count = len(node.many)
    if any(c is not None and c.get("passes") for c in cursors):
        raise StateError("a mix that has begun to repeat a pipeline cannot be resharded")
    each = []
    for child in range(count):
        inner = [None if c is None else c["each"][child] for c in cursors]
        each.append(_reshard(node.many[child], inner, old, new))
    given = [
        max((c["given"][i] for c in cursors if c is not None), default=0) for i in range(count)
    ]
    return [{"given": given, "each": [each[i][s] for i in range(count)]} for s in range(new)]
