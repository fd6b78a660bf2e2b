"""What is told of a Ray cluster in errors: its own words go on for many lines."""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.exceptions import RayActorError

from silva.errors import WorkerError
from silva.run.cluster import Cluster
from silva.run.processes import ATTEMPTS
from silva.run.seat import Seat
from silva.run.task import Task

_LOOKS = 1.0
"""Seconds that an actor has to say what it is doing."""


def told(error: BaseException) -> str:
    """The error as one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def lost_on(task: Task, error: BaseException) -> WorkerError:
    """A task that was given to one actor after another."""
    what = "actors" if isinstance(error, RayActorError) else "results"
    return WorkerError(
        f"{ATTEMPTS} {what} were lost one after another ({told(error)}) while doing "
        f"{task.describe()} in `{task.stage.label}`"
    )


def stacks_of(cluster: Cluster, seats: list[Seat | None]) -> str:
    """What each actor is doing, as it says itself, or that it is not there yet."""
    asked: dict[Seat, Any] = {}
    with contextlib.suppress(Exception):  # then none of them answers
        asked = {s: s.handle.stacks.remote() for s in seats if s is not None and s.ready}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=_LOOKS)
    lines = [cluster.describe()]
    for number, seat in enumerate(seats):
        if seat is None or not seat.ready:
            lines.append(f"actor {number}: not started")
            continue
        try:
            text = ray.get(asked[seat], timeout=0)
        except Exception as error:  # noqa: BLE001  it is for a message about another error
            text = f"  (no answer: {type(error).__name__})"
        lines.append(f"actor {number} (process {seat.process}, node {seat.node[:8]}):\n{text}")
    return "\n".join(lines)
