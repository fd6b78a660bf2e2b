"""Which rows leave a cache folder when it is full.

What a file is worth is the computing that it saves for each byte and hour: the seconds that its
rows took, over its bytes, over the time since its fingerprint was last used. (What has not been
used for a month is as likely as not to be left alone for another.)

Files leave, not fingerprints: a partial cache is as right as a full one, so no more goes than is
needed. New rows take the place of files that are worth less than half as much, and never of rows of
their own fingerprint; where there are not enough of those, the new rows are not kept. Two jobs over
one folder therefore do not drive each other's rows out in turns.

Room is made and reserved under a lock on the folder, so the limit holds with any number of writers.
On a file system without locks, or when a writer is stopped while it holds the lock, the folder may
exceed its limit by one file (64 MiB, or a sixteenth of the limit) for each other writer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from silva.run.kept import (
    Kept,
    KeptFile,
    Removed,
    bytes_held,
    list_kept,
    remove_files,
    remove_stale,
    subfolders,
)

_LEAST_AGE = 3600.0
"""Rows used within the hour are all alike in use."""
_BETTER = 2.0
"""Rows give way to what is worth this many times as much."""
_FREE = 0.05
"""Of the disk, what a folder without a limit leaves free."""
_LOCK_SECONDS = 10.0


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from making room in the folder; a killed one lets go by itself."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _took(descriptor) and time.monotonic() < deadline:
            time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # there are no locks here
    return True


def worth(seconds: float, size: int, unused: float) -> float:
    """Seconds saved for each byte, and each second of waiting for it to be used.

    >>> worth(60, 1000, unused=7200) < worth(60, 1000, unused=0) < worth(120, 1000, unused=60)
    True
    """
    return seconds / max(size, 1) / max(unused, _LEAST_AGE)


def make_room(folder: Path, size: int, seconds: float, own: str, limit: int | None) -> bool:
    """Whether `size` bytes of fingerprint `own`, which took `seconds` to compute, may be added.

    Removes what is worth less, if that is enough and needed. To be called under the lock.
    """
    lacking = _lacking(folder, size, limit)
    if lacking > 0:
        lacking -= sum(remove_stale(subfolder).size for subfolder in subfolders(folder))
    if lacking <= 0:
        return True
    others = [kept for kept in list_kept(folder) if kept.fingerprint != own]
    most = worth(seconds, size, 0) / _BETTER
    less = [file for value, file in _by_worth(others) if value < most]
    if sum(file.size for file in less) < lacking:
        return False
    return remove_files((file.path for file in less), lacking).size >= lacking


def shrink(folder: Path, limit: int) -> Removed:
    """Removes what is worth least until the folder holds at most `limit`. To be called under the
    lock."""
    lacking = bytes_held(folder) - limit
    if lacking <= 0:
        return Removed()
    return remove_files((file.path for _, file in _by_worth(list_kept(folder))), lacking)


def _lacking(folder: Path, size: int, limit: int | None) -> int:
    """Bytes that must go before `size` more fit."""
    if limit is not None:
        return bytes_held(folder) + size - limit
    disk = shutil.disk_usage(folder)
    return size - (disk.free - int(disk.total * _FREE))


def _by_worth(many: Iterable[Kept]) -> list[tuple[float, KeptFile]]:
    """All files and their worth, the least first."""
    now = time.time()
    found = [
        (worth(file.seconds, file.size, now - kept.used), file)
        for kept in many
        for file in kept.files
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].path))
