"""What a run takes from outside: the machine, the clock, and choices that a test makes in place of
the lanes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from silva.cost.machine import Machine
from silva.cost.model import Backend
from silva.run.pools.task import Pool

Clock = Callable[[], float]
"""Seconds since some moment, never running backwards."""


@dataclass(frozen=True)
class SlowTask:
    """When a task counts as slow, so that a second worker is given it as well."""

    seconds: float = 5.0
    """The least that it must have taken."""
    times: float = 20.0
    """How many times as long as usual it must have taken."""


@dataclass(frozen=True, eq=False)
class Seams:
    """A run has the real ones; tests pass their own."""

    machine: Machine = field(default_factory=Machine.here)
    clock: Clock = time.monotonic
    cpu_clock: Clock = time.thread_time
    """CPU seconds of the thread that asks: what planning costs."""
    slow: SlowTask = SlowTask()
    block_sizes: Iterable[int] | None = None
    """Rows of the blocks, again and again, in place of the sizes that lanes choose."""
    measures_only: bool = False
    """Stages stay on the consumer's thread and are measured there, as for a forecast."""
    pool: Callable[[Backend], Pool | None] = lambda backend: None
    """A running pool to use, which its owner closes; None for one of the run's own."""
