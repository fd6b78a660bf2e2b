"""Which rows leave a cache folder when it is full.

What a file is worth is the computing that it saves for each byte and hour: the seconds that its
rows took, over its bytes, over the time since its fingerprint was last used. (What has not been
used for a month is as likely as not to be left alone for another.)

Files leave, not fingerprints: a partial cache is as right as a full one, so no more goes than is
needed. New rows take the place of files that are worth less than half as much, and never of rows of
their own fingerprint; where there are not enough of those, the new rows are not kept. Two jobs over
one folder therefore do not drive each other's rows out in turns.

Room is made and reserved under a lock on the folder, so the limit holds with any number of writers.
In an object store, on a file system without locks, or when a writer is stopped while it holds the
lock, the limit may be exceeded by one file (64 MiB, or a sixteenth of the limit) for each other
writer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from silva.run.kept import (
    Kept,
    KeptFile,
    Removed,
    bytes_held,
    list_kept,
    remove_files,
    remove_stale,
)
from silva.run.shelf import Shelf

_LEAST_AGE = 3600.0
"""Rows used within the hour are all alike in use."""
_BETTER = 2.0
"""Rows give way to what is worth this many times as much."""


def worth(seconds: float, size: int, unused: float) -> float:
    """Seconds saved for each byte, and each second of waiting for it to be used.

    >>> worth(60, 1000, unused=7200) < worth(60, 1000, unused=0) < worth(120, 1000, unused=60)
    True
    """
    return seconds / max(size, 1) / max(unused, _LEAST_AGE)


def make_room(shelf: Shelf, size: int, seconds: float, own: str, limit: int | None) -> bool:
    """Whether `size` bytes of fingerprint `own`, which took `seconds` to compute, may be added.

    Removes what is worth less, if that is enough and needed. To be called under the lock.
    """
    lacking = _lacking(shelf, size, limit)
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


def shrink(shelf: Shelf, limit: int) -> Removed:
    """Removes what is worth least until the shelf holds at most `limit`. To be called under the
    lock."""
    lacking = bytes_held(shelf) - limit
    if lacking <= 0:
        return Removed()
    return remove_files(shelf, (file.item for _, file in _by_worth(list_kept(shelf))), lacking)


def _lacking(shelf: Shelf, size: int, limit: int | None) -> float:
    """Bytes that must go before `size` more fit."""
    return size - shelf.free() if limit is None else bytes_held(shelf) + size - limit


def _by_worth(many: Iterable[Kept]) -> list[tuple[float, KeptFile]]:
    """All files and their worth, the least first."""
    now = time.time()
    found = [
        (worth(file.seconds, file.size, now - kept.used), file)
        for kept in many
        for file in kept.files
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].item))
