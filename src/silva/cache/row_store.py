"""Rows kept by identity: the store's interface, its index, and the store in memory.

A store belongs to one fingerprint and lives in the parent process: only the consumer's thread uses
it. Rows that do not fit are not kept; a partial cache is as right as a full one, only slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from silva.cache.entries import Entries, FoundEntries
from silva.columns import Column
from silva.columns.owned import frozen, lent, owned
from silva.errors import ColumnError

_LARGEST_CHUNK = 256 << 20
_LARGE_ENTRY = 32 << 10
"""Bytes. Copying a larger entry takes longer than finding its chunk: merging gains nothing."""
_KEY_BYTES = 24
"""Memory that the index needs per row."""
NOWHERE = -1


class RowStore(Protocol):
    def __len__(self) -> int:
        """The number of entries kept."""

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""

    def refresh(self) -> None:
        """Looks for rows that others have added; called when an epoch begins."""

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Which of the rows are kept."""

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        """Keeps the entries of these rows, as far as there is room. Raises `ColumnError` for a
        column that cannot be kept. `seconds` is the time it took to compute them."""

    def expect(self, keys: np.ndarray) -> None:
        """Announces rows that will be read next, so that the store may prefetch them."""

    def read(self, keys: np.ndarray) -> FoundEntries:
        """The entries of rows that are kept. A row whose entry turns out to be damaged is missing
        from the result, and is no longer kept."""

    def flush(self) -> None:
        """Starts to write what was added; called when an epoch ends."""

    def close(self) -> None:
        """Waits until what was added is written. The store can be used again."""


class CacheBudget:
    """Bytes that all row stores of a loader may hold together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size

    def take(self, count: int) -> bool:
        fits = count <= self.left
        self.left -= count if fits else 0
        return fits

    def give_back(self, count: int) -> None:
        self.left += count


_Level = tuple[np.ndarray, np.ndarray]
"""Keys, ascending and without duplicates, and their locations."""


class RowIndex:
    """Maps uint64 keys to int64 locations; the later location of a key that is added twice counts.

    A dict would take ten times the memory, and one step of Python per row. Here keys that are added
    together form a sorted level; levels of similar size are merged, so there are about log2(n) of
    them, and a block is looked up by one binary search per level.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._levels)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The location of each key; `NOWHERE` for keys that are not in the index."""
        out = np.full(len(keys), NOWHERE, dtype=np.int64)
        for known, locations in self._levels:  # the newest level is last and overrides the others
            run = _same_run(known, keys)
            if run is not None:
                out[:] = locations[run]
                continue
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            same = known[at] == keys
            out[same] = locations[at[same]]
        return out

    def add(self, keys: np.ndarray, locations: np.ndarray) -> None:
        if not len(keys):
            return
        self._levels.append(_sorted(keys, locations))
        while len(self._levels) > 1 and 2 * len(self._levels[-1][0]) >= len(self._levels[-2][0]):
            newer, older = self._levels.pop(), self._levels.pop()
            merged = [np.concatenate(pair) for pair in zip(older, newer, strict=True)]
            self._levels.append(_sorted(merged[0], merged[1]))

    def remove(self, gone: Callable[[np.ndarray], np.ndarray]) -> None:
        """Removes the keys whose location satisfies `gone`."""
        kept = []
        for keys, locations in self._levels:
            stays = ~gone(locations)
            if stays.any():
                kept.append((keys[stays], locations[stays]))
        self._levels = kept


def _same_run(known: np.ndarray, keys: np.ndarray) -> slice | None:
    """Where the keys stand among the known ones, if they do so one after the other, as in an epoch
    without a shuffle: comparing takes a fraction of the time of searching.

    >>> _same_run(np.array([2, 4, 6, 8]), np.array([4, 6]))
    slice(1, 3, None)
    >>> _same_run(np.array([2, 4, 6, 8]), np.array([4, 5])) is None
    True
    """
    if not len(keys):
        return None
    start = int(np.searchsorted(known, keys[0]))
    run = slice(start, start + len(keys))
    if run.stop > len(known) or known[run.stop - 1] != keys[-1]:
        return None
    return run if np.array_equal(known[run], keys) else None


def _sorted(keys: np.ndarray, locations: np.ndarray) -> _Level:
    if (keys[1:] > keys[:-1]).all():
        return keys, locations
    order = np.argsort(keys, kind="stable")
    keys, locations = keys[order], locations[order]
    last = np.ones(len(keys), dtype=bool)
    last[:-1] = keys[1:] != keys[:-1]  # of equal keys, the one that was added last
    return keys[last], locations[last]


class MemoryStore:
    """Entries in a few large chunks, so that any rows are read by a few calls of `take`."""

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._largest = min(budget.size // 16, _LARGEST_CHUNK)  # merging needs this much more
        self._index = RowIndex()
        self._chunks: list[Entries] = []
        self._ends: list[int] = []
        """For each chunk, the number of entries up to its end."""
        self.nbytes = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def refresh(self) -> None:
        pass

    def has(self, keys: np.ndarray) -> np.ndarray:
        known: np.ndarray = self._index.find(keys) != NOWHERE
        return known

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        fresh = select_new(self, keys)
        if len(fresh) < len(keys):
            keys, entries = keys[fresh], entries.take(fresh)
        size = entries.nbytes + _KEY_BYTES * len(keys)
        if not len(keys) or not self._budget.take(size):
            return
        try:
            kept = _owned(entries)
        except ColumnError:
            self._budget.give_back(size)
            raise
        start = len(self)
        self._chunks.append(kept)
        self._ends.append(start + len(keys))
        self._index.add(keys, np.arange(start, start + len(keys)))
        self.nbytes += size
        self._merge()

    def _merge(self) -> None:
        """Joins the last chunks while their sizes are similar: each row is copied log2(n) times."""
        while len(self._chunks) > 1:
            older, newer = self._chunks[-2:]
            together = older.nbytes + newer.nbytes
            if 2 * newer.nbytes < older.nbytes or together > self._largest:
                return
            if newer.nbytes > _LARGE_ENTRY * len(newer):
                return
            joined = Entries.concat([older, newer])
            for column in joined.columns.values():
                frozen(column)
            self._chunks[-2:] = [joined]
            del self._ends[-2]

    def expect(self, keys: np.ndarray) -> None:
        pass

    def read(self, keys: np.ndarray) -> FoundEntries:
        locations = self._index.find(keys)
        owner = np.searchsorted(self._ends, locations, side="right")
        found: FoundEntries = []
        for chunk in np.flatnonzero(np.bincount(owner)).tolist():
            which = np.flatnonzero(owner == chunk)
            start = self._ends[chunk - 1] if chunk else 0
            found.append((which, lend(self._chunks[chunk].take(locations[which] - start))))
        return found

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def select_new(store: RowStore, keys: np.ndarray) -> np.ndarray:
    """The indices of the keys to add: those not kept yet, each once (`sample` may draw a row
    twice)."""
    _, first = np.unique(keys, return_index=True)
    first.sort()
    new: np.ndarray = first[~store.has(keys[first])]
    return new


def _owned(entries: Entries) -> Entries:
    return Entries(
        entries.counts.copy(),
        {name: _copy(name, column) for name, column in entries.columns.items()},
        None if entries.places is None else entries.places.copy(),
        tuple(part.copy() for part in entries.subs),
    )


def _copy(name: str, column: Column) -> Column:
    try:
        return owned(column)
    except Exception as error:  # copying an object of the user's may raise anything
        raise ColumnError(
            f"column {name!r} holds a value that cannot be copied ({error!r:.200}), which cache() "
            "must do to keep it. Put `.cache()` before the step that makes the column, or drop the "
            "column"
        ) from error


def lend(entries: Entries) -> Entries:
    """The entries as they may be handed out: the receiver cannot change the store through them."""
    columns = {name: lent(column) for name, column in entries.columns.items()}
    return Entries(entries.counts, columns, entries.places, entries.subs)
