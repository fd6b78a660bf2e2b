"""The memory budget of a loader, shared by blocks in flight and rows in caches."""

from __future__ import annotations

import functools
from collections.abc import Callable

from silva.cache.row_store import CacheBudget, MemoryStore, RowStore
from silva.columns.allocation import release_free

_LEAST_BYTES = 1 << 16
"""Bytes that every stage may have in flight, however many stages there are."""


class _RestOfMemory(CacheBudget):
    """Half of the memory, but no more than blocks in flight leave."""

    def __init__(self, size: int, left_over: Callable[[], float]) -> None:
        super().__init__(size)
        self._left_over = left_over

    def take(self, count: int) -> bool:
        kept = self.size - self.left
        return kept + count <= self._left_over() and super().take(count)


class MemoryBudget:
    """The bytes that one loader may hold: blocks in flight and rows that caches keep. Stages and
    caches ask for their share whenever they need memory, so a cache counts as soon as it is opened.

    >>> memory = MemoryBudget(1 << 20)
    >>> memory.lane_bytes() == 1 << 20
    True
    >>> memory.add_cache(MemoryStore(memory.caches))
    >>> memory.lane_bytes() == 1 << 19
    True
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._segments = 1
        self._stores: list[RowStore] = []
        self._held: dict[Callable[[], float], None] = {}
        """For each segment that runs, a function that returns its bytes in flight."""

    @functools.cached_property
    def caches(self) -> CacheBudget:
        """The bytes that rows in caches may hold."""
        return _RestOfMemory(self.total // 2, lambda: self.total - self.in_flight())

    def divide(self, segments: int) -> None:
        """Divides the bytes in flight among the segments that run at once (stages × shards)."""
        self._segments = max(segments, 1)

    def add_cache(self, store: RowStore) -> None:
        """From now on stages leave half of the memory to caches."""
        self._stores.append(store)

    def hold(self, count: Callable[[], float]) -> None:
        """Counts a segment that starts to run, until `release`; `count` returns its bytes in
        flight."""
        self._held[count] = None

    def release(self, count: Callable[[], float]) -> None:
        del self._held[count]

    def in_flight(self) -> float:
        """Bytes of all blocks in flight, about."""
        return sum(count() for count in list(self._held))  # other threads add to it

    def release_free(self) -> None:
        """Releases recycled memory, as far as blocks in flight and caches leave no room for it."""
        release_free(self.total - (self.caches.size - self.caches.left) - self.in_flight())

    def lane_bytes(self, own: float | None = None) -> int:
        """Bytes that one segment may have in flight: its share; if it has `own` bytes now, no more
        than caches and other segments leave. These may hold more than their shares for a while:
        when a cache is opened, or when the next epoch begins before this one has ended."""
        most = self.total // 2 if self._stores else self.total
        share = most // self._segments
        if own is not None and (self._stores or len(self._held) > self._segments):
            kept = self.caches.size - self.caches.left
            share = min(share, int(self.total - kept - self.in_flight() + own))
        return max(share, _LEAST_BYTES)

    def cache_bytes(self) -> int:
        """Bytes that caches in memory may hold, with what they hold already."""
        kept = (store.nbytes for store in self._stores if isinstance(store, MemoryStore))
        return self.caches.left + sum(kept)
