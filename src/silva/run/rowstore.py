"""Rows kept by identity: in memory here, in files in `filestore`.

A store belongs to one fingerprint and lives in the parent, beside the consumer: only the consumer's
thread uses it, so there is nothing to lock. What does not fit is not kept; a partial cache is as
right as a full one, only slower.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from silva.columns.owned import frozen, lent, owned
from silva.run.entries import Entries, Parts
from silva.run.rowindex import NOWHERE, RowIndex

_LARGEST_CHUNK = 256 << 20
_LARGE_ENTRY = 32 << 10
"""Copying an entry of this size takes longer than finding its chunk: merging gains nothing."""
_KEY_BYTES = 24
"""What the index needs for a row."""


class RowStore(Protocol):
    def __len__(self) -> int:
        """Entries that are kept."""

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""

    def refresh(self) -> None:
        """An epoch begins: looks for what others have added."""

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Which of the rows are kept."""

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        """Keeps the entries of these rows, as far as there is room. `seconds` is what computing
        them took."""

    def expect(self, keys: np.ndarray) -> None:
        """Rows that are kept will be read, after those that were expected the last time."""

    def read(self, keys: np.ndarray) -> Parts:
        """The entries of rows that are kept. A row whose entry turns out to be damaged is in none
        of the parts, and not kept any more."""

    def flush(self) -> None:
        """An epoch ends: what was added is on its way to where it is kept."""

    def close(self) -> None:
        """The loader closes: what was added is kept. The store can be used again."""


class Room:
    """Bytes that all stores of a loader may hold together."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size

    def take(self, count: int) -> bool:
        fits = count <= self.left
        self.left -= count if fits else 0
        return fits

    def give_back(self, count: int) -> None:
        self.left += count


class MemoryStore:
    """Entries in a few large chunks, so that any rows are read by a few `take`s."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._largest = min(room.size // 16, _LARGEST_CHUNK)  # merging needs this much more
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
        fresh = only_new(self, keys)
        if len(fresh) < len(keys):
            keys, entries = keys[fresh], entries.take(fresh)
        size = entries.nbytes + _KEY_BYTES * len(keys)
        if not len(keys) or not self._room.take(size):
            return
        start = len(self)
        self._chunks.append(_owned(entries))
        self._ends.append(start + len(keys))
        self._index.add(keys, np.arange(start, start + len(keys)))
        self.nbytes += size
        self._merge()

    def _merge(self) -> None:
        """Joins the last chunks while they are of like size: each row is copied log2(n) times."""
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

    def read(self, keys: np.ndarray) -> Parts:
        places = self._index.find(keys)
        owner = np.searchsorted(self._ends, places, side="right")
        parts: Parts = []
        for chunk in np.flatnonzero(np.bincount(owner)).tolist():
            which = np.flatnonzero(owner == chunk)
            start = self._ends[chunk - 1] if chunk else 0
            parts.append((which, lend(self._chunks[chunk].take(places[which] - start))))
        return parts

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def only_new(store: RowStore, keys: np.ndarray) -> np.ndarray:
    """Which keys to add: those not kept yet, each once (a row may be drawn twice by `sample`)."""
    _, first = np.unique(keys, return_index=True)
    first.sort()
    new: np.ndarray = first[~store.has(keys[first])]
    return new


def _owned(entries: Entries) -> Entries:
    return Entries(
        entries.counts.copy(),
        {name: owned(column) for name, column in entries.columns.items()},
        None if entries.places is None else entries.places.copy(),
        tuple(part.copy() for part in entries.subs),
    )


def lend(entries: Entries) -> Entries:
    """What may be handed on: nothing in it can be used to change the store."""
    columns = {name: lent(column) for name, column in entries.columns.items()}
    return Entries(entries.counts, columns, entries.places, entries.subs)
