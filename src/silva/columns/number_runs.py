"""Runs of one long array of numbers, and which of them are equal.

Among many runs, neighbours are compared first, all at once, since rows that repeat are mostly
neighbours; the others are looked up by their bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

_AT_ONCE = 1 << 20
"""Numbers that are gathered at once."""
_FEW = 4096
"""Up to this many runs, looking them up one by one is faster than numpy."""

_CLUSTERED = 4
"""Rows for each change of a key from which sorting the changes alone is faster."""


@dataclass(frozen=True, eq=False, slots=True)
class NumberRuns:
    """Runs of the items of one array."""

    items: np.ndarray
    """Whole numbers."""
    starts: np.ndarray
    """int64: the first item of each run."""
    lengths: np.ndarray
    """int64: the number of items of each run."""

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, indices: np.ndarray) -> NumberRuns:
        return NumberRuns(self.items, self.starts[indices], self.lengths[indices])

    def numbers(self) -> np.ndarray:
        """One number per run, equal where runs are, in the order of first appearance."""
        if len(self) <= _FEW:
            return self._by_bytes()
        repeats = np.zeros(len(self), dtype=bool)
        repeats[1:] = self.lengths[1:] == self.lengths[:-1]
        near = np.flatnonzero(repeats)
        repeats[near] = same(
            self.items, self.starts[near - 1], self.starts[near], self.lengths[near]
        )
        heads = self.take(np.flatnonzero(~repeats))
        return np.take(heads._by_bytes(), np.cumsum(~repeats) - 1)

    def _by_bytes(self) -> np.ndarray:
        if self._differ():
            return np.arange(len(self))
        raw, width = np.ascontiguousarray(self.items).tobytes(), self.items.dtype.itemsize
        starts, ends = self.starts * width, (self.starts + self.lengths) * width
        known: dict[bytes, int] = {}
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        found = (known.setdefault(raw[a:b], len(known)) for a, b in bounds)
        return np.fromiter(found, np.int64, len(self))

    def _differ(self) -> bool:
        """Whether all runs differ, by a quick test: runs of one length, end to end, whose sums with
        random weights all differ. Equal runs have equal sums."""
        size = int(self.lengths[0]) if len(self) > 1 else 0
        if not size or (self.lengths != size).any() or (np.diff(self.starts) != size).any():
            return False
        begin = int(self.starts[0])
        runs = self.items[begin : begin + len(self) * size].reshape(len(self), size)
        sums = np.sort(runs.astype(np.uint64) @ _weights(size))
        return bool((sums[1:] != sums[:-1]).all())


@functools.lru_cache(maxsize=64)
def _weights(size: int) -> np.ndarray:
    """Random odd numbers: odd ones keep differences in the highest bits of an item."""
    return np.random.default_rng(0).integers(0, 1 << 64, size, np.uint64) | np.uint64(1)


def appearance(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct key first appears, and for each row the number of its key in that order.

    >>> first, number = appearance(np.array([7, 7, 3, 7]))
    >>> first.tolist(), number.tolist()
    ([0, 2], [0, 0, 1, 0])
    """
    if not len(keys):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    changes = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    heads = np.flatnonzero(changes)
    if (keys[heads[1:]] > keys[heads[:-1]]).all():  # as those of clustered rows mostly are
        return heads, np.cumsum(changes) - 1
    first, number = _ranked(keys[heads])
    return heads[first], number[np.cumsum(changes) - 1]


def appearance_in_each(keys: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """`appearance` in each batch of `size` rows: where keys first appear in their batch, the number
    of each row's key in its batch, and where the first rows of each batch begin and end. Batches
    are sorted one by one, in a quarter of the time of all rows together, unless few keys change.

    >>> first, number, bounds = appearance_in_each(np.array([7, 7, 3, 7, 3, 3]), 3)
    >>> first.tolist(), number.tolist(), bounds
    ([0, 2, 3, 4], [0, 0, 1, 0, 1, 1], [0, 2, 4])
    """
    changes = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=changes[1:])
    changes[::size] = True
    heads, run = np.flatnonzero(changes), np.cumsum(changes) - 1
    few, batch = keys[heads], heads // size
    ascending = ((few[1:] > few[:-1]) | (batch[1:] > batch[:-1])).all()
    if ascending or len(heads) == _distinct_in_each(keys, size):
        first, number = heads, run
    elif len(heads) < len(keys) // _CLUSTERED:
        ranks = np.unique(few, return_inverse=True)[1]
        first, number = _ranked(batch * len(few) + ranks)
        first, number = heads[first], number[run]
    else:
        first, number = _ranked_in_each(keys, size)
    bounds = np.searchsorted(first, np.arange(0, len(keys) + 1, size))
    number.reshape(-1, size)[:] -= bounds[:-1, None]
    return first, number, bounds.tolist()


def _distinct_in_each(keys: np.ndarray, size: int) -> int:
    """The number of distinct keys in each batch, added up. Sorting keys alone takes a tenth of the
    time of ranking them."""
    ordered = np.sort(keys.reshape(-1, size), axis=1)
    return len(ordered) + int(np.count_nonzero(ordered[:, 1:] != ordered[:, :-1]))


def _ranked_in_each(keys: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """`_ranked` where keys of different batches differ."""
    bits, least, most = size.bit_length(), int(keys.min()), int(keys.max())
    if (most - least).bit_length() + bits > 63:
        keys, least = np.unique(keys, return_inverse=True)[1], 0
    both = (keys.astype(np.int64) - least).reshape(-1, size) << bits
    both |= np.arange(size)
    both.sort(axis=1)
    starts = np.arange(len(both))[:, None] * size
    row = ((both & ((1 << bits) - 1)) + starts).reshape(-1)
    both >>= bits
    new = np.ones(both.shape, dtype=bool)
    np.not_equal(both[:, 1:], both[:, :-1], out=new[:, 1:])
    place = row[new.reshape(-1)]
    is_first = np.zeros(len(row), dtype=bool)
    is_first[place] = True
    rank = (np.cumsum(is_first) - 1)[place]
    number = np.empty(len(row), np.int64)
    number[row] = rank[np.cumsum(new) - 1]
    return np.flatnonzero(is_first), number


def _ranked(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`appearance` of keys in any order. Where a key and its place fit into one number, one sort of
    these is all: a third of the time of `np.unique`."""
    bits, least, most = len(keys).bit_length(), int(keys.min()), int(keys.max())
    if (most - least).bit_length() + bits > 63:
        _, place, found = np.unique(keys, return_index=True, return_inverse=True)
    else:
        small = (keys - keys.min()) if keys.dtype == np.uint64 else keys.astype(np.int64) - least
        both = (small.astype(np.int64) << bits) | np.arange(len(keys))
        both.sort()
        changes = np.ones(len(keys), dtype=bool)
        key, row = both >> bits, both & ((1 << bits) - 1)
        np.not_equal(key[1:], key[:-1], out=changes[1:])
        place = row[changes]
        found = np.empty(len(keys), np.int64)
        found[row] = np.cumsum(changes) - 1
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[place] = True
    rank = (np.cumsum(is_first) - 1)[place]
    return np.flatnonzero(is_first), rank[found]


def offsets_of(lengths: Any) -> np.ndarray:
    """Where each run of these lengths begins, and where the last one ends.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def gathered(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of all items of runs, one run after the other, and where each run begins."""
    offsets = offsets_of(lengths)
    positions = np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], lengths)
    return positions, offsets


def same(items: np.ndarray, a: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether the runs of these lengths that begin at `a` and at `b` are equal, pair by pair."""
    equal = np.ones(len(a), dtype=bool)
    some = np.flatnonzero(lengths)
    for place in (np.zeros(len(some), np.int64), lengths[some] - 1):
        equal[some] &= items[a[some] + place] == items[b[some] + place]
    left = np.flatnonzero(equal & (lengths > 2) & (a != b))
    for at in pieces(lengths[left]):
        pairs = left[at]
        positions, offsets = gathered(a[pairs], lengths[pairs])
        away = np.repeat(b[pairs] - a[pairs], lengths[pairs])
        equal[pairs] = np.logical_and.reduceat(
            items[positions] == items[positions + away], offsets[:-1]
        )
    return equal


def pieces(lengths: np.ndarray) -> list[slice]:
    """Slices of the runs, each with about as many items as are gathered at once."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_AT_ONCE, total + _AT_ONCE, _AT_ONCE)) + 1
    bounds = np.unique(np.minimum(np.concatenate([[0], cuts, [len(lengths)]]), len(lengths)))
    return [slice(x, y) for x, y in pairwise(bounds.tolist())]
