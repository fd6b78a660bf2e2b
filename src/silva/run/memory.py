"""The memory budget of a loader, shared by blocks in flight, rows that wait, rows in caches, and
memory that is kept for its next use."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from silva.cache.row_store import CacheBudget, MemoryStore, RowStore
from silva.columns.allocation import free_bytes, release_free
from silva.run.shared.allocator import release_freed_memory

_LEAST_BYTES = 1 << 16
"""Bytes that every stage may have in flight, however many stages there are."""
_TRIM_EVERY = 32
"""Blocks for which there was too little room for free memory, after which heaps give back theirs
again: the page faults that follow cost about as much as a block."""
Count = Callable[[], float]


class _RestOfMemory(CacheBudget):
    """Half of the memory, but no more than blocks in flight leave."""

    def __init__(self, size: int, left_over: Callable[[], float]) -> None:
        super().__init__(size)
        self._left_over = left_over

    def take(self, count: int) -> bool:
        kept = self.size - self.left
        return kept + count <= self._left_over() and super().take(count)


class Recycles(Protocol):
    """Keeps memory for its next use, which it can release: a pool."""

    def free_bytes(self) -> int:
        """Bytes that wait for their next use."""

    def release_free(self, most: float) -> None:
        """Releases memory until at most `most` bytes wait."""

    def release_freed_memory(self) -> None:
        """Releases what the heaps of workers keep."""


class MemoryBudget:
    """The bytes that one loader may hold: blocks in flight, rows that wait for the rest of their
    batch, rows that caches keep, and memory that is kept for its next use. Stages and caches ask
    for their share whenever they need memory, so a cache counts as soon as it is opened; what is
    left over is for memory that waits.

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
        self._held: dict[Count, Count] = {}
        """For each holder of blocks, functions that return their bytes, and of these the bytes to
        come."""
        self._scarce = 0
        """Blocks after which there was too little room for free memory."""

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

    def hold(self, count: Count, to_come: Count = lambda: 0.0) -> None:
        """Counts a holder of blocks until `release`: a segment that runs, or a flow that collects
        rows. `count` returns its bytes, and `to_come` how many of them no memory is used for yet.
        """
        self._held[count] = to_come

    def release(self, count: Count) -> None:
        del self._held[count]

    @contextmanager
    def holding(self, count: Count) -> Iterator[None]:
        """Counts a holder of blocks while this is entered."""
        self.hold(count)
        try:
            yield
        finally:
            self.release(count)

    def in_flight(self) -> float:
        """Bytes of all blocks in flight, about."""
        return sum(count() for count in list(self._held))  # other threads add to it

    def release_free(self, recycling: Collection[Recycles] = ()) -> None:
        """Releases memory that waits for its next use, that of `recycling` and of this process, as
        far as blocks in flight and caches leave no room for it."""
        left = self._left() + sum(to_come() for to_come in list(self._held.values()))
        scarce = free_bytes() + sum(memory.free_bytes() for memory in recycling) > left
        self._scarce += scarce
        for memory in recycling:
            memory.release_free(left)
            left -= memory.free_bytes()
        release_free(left)
        if scarce and self._scarce % _TRIM_EVERY == 1:
            release_freed_memory()
            for memory in recycling:
                memory.release_freed_memory()

    def _left(self) -> float:
        """Bytes that blocks in flight and caches leave."""
        return self.total - (self.caches.size - self.caches.left) - self.in_flight()

    def lane_bytes(self, own: float | None = None) -> int:
        """Bytes that one segment may have in flight: its share; if it has `own` bytes now, no more
        than caches and other holders leave. These may hold more than their shares: when a cache is
        opened, when the next epoch begins before this one has ended, or for a large batch."""
        most = self.total // 2 if self._stores else self.total
        share = most // self._segments
        if own is not None:
            share = min(share, int(self._left() + own))
        return max(share, _LEAST_BYTES)

    def cache_bytes(self) -> int:
        """Bytes that caches in memory may hold, with what they hold already."""
        kept = (store.nbytes for store in self._stores if isinstance(store, MemoryStore))
        return self.caches.left + sum(kept)
