"""From row keys to where their entries are: sorted arrays, merged as they grow.

A dict would take ten times the memory, and one step of Python for each row. Here keys that come
together form a level; levels of like size are merged, so there are about log2(n) of them, and
looking up a block is one binary search a level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NOWHERE = -1

_Level = tuple[np.ndarray, np.ndarray]
"""Keys, ascending and without duplicates, and their places."""


class RowIndex:
    """Maps uint64 keys to int64 places; of a key that is added twice, the later place counts."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._levels)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key, `NOWHERE` for those that are not known."""
        out = np.full(len(keys), NOWHERE, dtype=np.int64)
        for known, places in self._levels:  # the newest level is last and so has the last word
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            same = known[at] == keys
            out[same] = places[at[same]]
        return out

    def add(self, keys: np.ndarray, places: np.ndarray) -> None:
        if not len(keys):
            return
        self._levels.append(_sorted(keys, places))
        while len(self._levels) > 1 and 2 * len(self._levels[-1][0]) >= len(self._levels[-2][0]):
            newer, older = self._levels.pop(), self._levels.pop()
            merged = [np.concatenate(pair) for pair in zip(older, newer, strict=True)]
            self._levels.append(_sorted(merged[0], merged[1]))

    def forget(self, gone: Callable[[np.ndarray], np.ndarray]) -> None:
        """Drops every key of whose place `gone` says so."""
        kept = []
        for keys, places in self._levels:
            stays = ~gone(places)
            if stays.any():
                kept.append((keys[stays], places[stays]))
        self._levels = kept


def _sorted(keys: np.ndarray, places: np.ndarray) -> _Level:
    order = np.argsort(keys, kind="stable")
    keys, places = keys[order], places[order]
    last = np.ones(len(keys), dtype=bool)
    last[:-1] = keys[1:] != keys[:-1]  # of equal keys, the one that was added last
    return keys[last], places[last]
