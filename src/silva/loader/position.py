"""A place in the stream of one rank, and how it is found in a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from silva.errors import StateError
from silva.order.cursor_checks import shown
from silva.order.shards import shards_of_rank
from silva.order.state import Identity, check_policy, check_state, positions
from silva.plan.node import Node
from silva.run.flows.flow import Positions


@dataclass(frozen=True)
class StreamPosition:
    """The place after some batch of an epoch."""

    epoch: int
    shards: Positions = field(default_factory=dict)
    """The position of each shard of this rank; empty at the start of an epoch."""
    step: int = 0
    """Batches of the epoch that were handed out before."""


@dataclass(frozen=True)
class StreamIdentity:
    """What a state and the loader that loads it must have in common."""

    plan: Node
    pipeline: Identity
    seed: int
    substitutes: bool
    """Whether failed rows are replaced by a substitute."""


@dataclass(frozen=True)
class Resumed:
    """What a state contains for one rank."""

    position: StreamPosition
    shards: int
    """The number of shards of all ranks."""
    close: tuple[str, ...]
    """The rewrites in use that do not keep every bit."""


def from_state(
    state: Mapping[str, Any],
    stream: StreamIdentity,
    *,
    rank: int,
    world: int,
    allow_changed: bool = False,
) -> Resumed:
    """The position of a rank in a saved state. Raises `StateError` if this stream cannot continue
    from it; `allow_changed` accepts the state of a pipeline with another fingerprint."""
    found = check_state(state, stream.plan, None if allow_changed else stream.pipeline)
    if found["seed"] != stream.seed:
        raise StateError(
            f"the state was saved with seed={shown(found['seed'])}, this loader has "
            f"seed={stream.seed}"
        )
    shards = found["shards"]
    if shards % world:
        raise StateError(
            f"the state has {shards} shards, which {world} ranks cannot share equally: "
            f"use sv.reshard(state, {world * max(1, shards // world)}, pipeline)"
        )
    own = [str(shard) for shard in shards_of_rank(shards, rank, world)]
    at = positions(found)
    missing = next((shard for shard in own if shard not in at), None)
    if missing is not None and (at or found["step"]):
        raise StateError(
            f"the state lacks shard {missing}, which rank {rank} of {world} "
            "needs: merge the states of all ranks with sv.merge_states([…])"
        )
    check_policy(found, stream.plan, stream.substitutes)
    start = {shard: at[shard] for shard in own} if at else {}
    position = StreamPosition(found["epoch"], start, found["step"])
    return Resumed(position, shards, tuple(found.get("close", ())))
