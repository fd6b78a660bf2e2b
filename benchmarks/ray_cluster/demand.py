"""A trainer that asks for a quarter of a node's rate, for all of it, and for three times as much.

Nodes are of four CPUs, all on this machine, and the step sleeps, so that two cores suffice. Of each
demand it is printed how long it took until workers were enough and not too many (a quarter more
than are needed), how many there were at the end, and the most that were asked for on the way up;
and the share of its time that the trainer waited in the second half, and how many rows a second it
got of those it asked for.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import silva as sv
from benchmarks.ray_cluster.clusters import SLEEP, actors, joined, sleeps

_NODE_CPUS = 4
_NODES = 4
_DEMANDS = (0.25, 1.0, 3.0, 1.0, 0.25)
_SECONDS = 24.0
"""For each demand; the second half is taken as settled."""
_BATCH = 10
_OVERSHOOT = 1.25


@dataclass(frozen=True)
class Seen:
    """When the trainer asked for a batch, how long it waited for it, the workers in use then."""

    at: float
    waited: float
    width: int


def demand() -> None:
    rows = sv.from_columns({"x": range(1_000_000)}).derive(y=sleeps).batch(_BATCH)
    with joined(0) as cluster:
        for _ in range(_NODES):
            cluster.add_node(num_cpus=_NODE_CPUS)
        with rows.loader(backend="ray", cluster="auto") as loader:
            batches = (batch for _ in itertools.count() for batch in loader)
            while actors(loader) < _NODE_CPUS * _NODES:
                next(batches)
            for share in _DEMANDS:
                needed = share * _NODE_CPUS
                seen = train(needed, loader, batches)
                print(f"{share:4}× of a node: {told(needed, seen)}, {actors(loader)} alive")
            batches.close()
    print("(wanted: workers within seconds, waits below 2%, at most a quarter more than needed)")


def train(needed: float, loader: sv.Loader, batches: Iterator[Any]) -> list[Seen]:
    """A trainer whose own step takes as long as so many workers take for a batch."""
    (lane,) = loader._executor.lanes.values()
    step, began, seen = _BATCH * SLEEP / needed, time.perf_counter(), []
    while (asked := time.perf_counter()) - began < _SECONDS:
        next(batches)
        came = time.perf_counter()
        seen.append(Seen(asked - began, came - asked, lane.width.now))
        time.sleep(max(0.0, came + step - time.perf_counter()))
    return seen


def told(needed: float, seen: list[Seen]) -> str:
    """What came of one demand, in words."""
    most = math.ceil(_OVERSHOOT * needed)
    wrong = [one.at for one in seen if not needed <= one.width <= most]
    settled = f"after {wrong[-1]:.1f} s" if wrong else "at once"
    if wrong and wrong[-1] == seen[-1].at:
        settled = "never"
    later = [one for one in seen if one.at > _SECONDS / 2]
    waits = sum(one.waited for one in later) / (_SECONDS / 2)
    highest = max(one.width for one in seen if one.at > 0 or not wrong)
    rate = len(later) * _BATCH / (_SECONDS / 2) * SLEEP / needed
    return (
        f"{needed:g} needed, {seen[-1].width} used (at most {highest}), settled {settled}, "
        f"waits {waits:.1%}, gets {rate:.0%}"
    )
