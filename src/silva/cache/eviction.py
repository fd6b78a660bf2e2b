"""Eviction: which rows leave a cache folder when it is full.

    worth = seconds to compute the rows / bytes / time since their fingerprint was last used

(Rows that were not used for a month will probably not be used for another.) Files are evicted, not
fingerprints: a partial cache is as right as a full one, so no more goes than is needed. New rows
replace files that are worth less than half as much, and never rows of their own fingerprint. Where
that does not make enough room, the new rows are not kept. So two jobs over one folder do not evict
each other's rows in turns.

Room is made and reserved under a lock on the folder, so the limit holds with any number of writers.
In an object store, on a file system without locks, or when a writer is stopped while it holds the
lock, each other writer may exceed the limit by one file (64 MiB, or a sixteenth of the limit).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from silva.cache.shelf import Shelf
from silva.cache.shelf_index import (
    KeptFile,
    KeptRows,
    RemovedRows,
    bytes_held,
    list_kept,
    remove_files,
    remove_stale,
)

_LEAST_AGE = 3600.0
"""Seconds. Rows used within the hour count as used at the same time."""
_BETTER = 2.0
"""New rows replace others if they are worth this many times as much."""


def worth(seconds: float, size: int, unused: float) -> float:
    """Seconds of computing saved per byte and per second since the last use.

    >>> worth(60, 1000, unused=7200) < worth(60, 1000, unused=0) < worth(120, 1000, unused=60)
    True
    """
    return seconds / max(size, 1) / max(unused, _LEAST_AGE)


def make_room(shelf: Shelf, size: int, seconds: float, own: str, limit: int | None) -> bool:
    """Whether `size` bytes of fingerprint `own`, which took `seconds` to compute, may be added.

    Removes files that are worth less, if that is needed and enough. Call it under the lock.
    """
    lacking = size - shelf.free() if limit is None else bytes_held(shelf) + size - limit
    if lacking > 0:
        subfolders = map(shelf.items, shelf.fingerprints())
        lacking -= sum(remove_stale(shelf, items).size for items in subfolders)
    if lacking <= 0:
        return True
    others = [kept for kept in list_kept(shelf) if kept.fingerprint != own]
    most = worth(seconds, size, 0) / _BETTER
    less = [file for value, file in _by_worth(others) if value < most]
    if sum(file.size for file in less) < lacking:
        return False
    return remove_files(shelf, (file.item for file in less), lacking).size >= lacking


def shrink(shelf: Shelf, limit: int) -> RemovedRows:
    """Removes the files worth least until the shelf holds at most `limit` bytes. Call it under the
    lock."""
    lacking = bytes_held(shelf) - limit
    if lacking <= 0:
        return RemovedRows()
    return remove_files(shelf, (file.item for _, file in _by_worth(list_kept(shelf))), lacking)


def _by_worth(many: Iterable[KeptRows]) -> list[tuple[float, KeptFile]]:
    """All files with their worth, the least first."""
    now = time.time()
    found = [
        (worth(file.seconds, file.size, now - kept.used), file)
        for kept in many
        for file in kept.files
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].item))
