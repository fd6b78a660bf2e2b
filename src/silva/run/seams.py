"""What a run takes from outside: the machine, the clock, its memory, and choices that a test makes
in place of the lanes."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from silva.cache.row_store import CacheBudget, MemoryStore, RowStore
from silva.cost.machine import Machine
from silva.cost.model import Backend
from silva.run.pools.task import Pool

_LEAST_BYTES = 1 << 16
"""Bytes that every stage may have in flight, however many stages there are."""

Clock = Callable[[], float]
"""Seconds since some moment, never running backwards."""


class MemoryBudget:
    """The bytes that one loader may hold: blocks in flight and rows that caches keep."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._segments = 1
        self._stores: list[RowStore] = []

    @functools.cached_property
    def caches(self) -> CacheBudget:
        """The bytes that rows in caches may hold."""
        return CacheBudget(self.total // 2)

    def divide(self, segments: int) -> None:
        """Shares what is in flight among so many segments that run at once (stages × shards)."""
        self._segments = max(segments, 1)

    def add_cache(self, store: RowStore) -> None:
        """From now on new stages leave half of the memory to caches."""
        self._stores.append(store)

    @property
    def has_caches(self) -> bool:
        return bool(self._stores)

    def lane_bytes(self) -> int:
        """Bytes that one stage may have in flight."""
        in_flight = self.total // 2 if self._stores else self.total
        return max(in_flight // self._segments, _LEAST_BYTES)

    def cache_bytes(self) -> int:
        """Bytes that caches in memory may hold, with what they hold already."""
        kept = (store.nbytes for store in self._stores if isinstance(store, MemoryStore))
        return self.caches.left + sum(kept)


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
    slow: SlowTask = SlowTask()
    block_sizes: Iterable[int] | None = None
    """Rows of the blocks, again and again, in place of the sizes that lanes choose."""
    pool: Callable[[Backend], Pool | None] = lambda backend: None
    """A running pool to use, which its owner closes; None for one of the run's own."""
