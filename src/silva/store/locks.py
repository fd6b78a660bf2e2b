"""Locks on folders, which a process that dies lets go of by itself.

A writer holds its own folder of data for as long as it works, so that `gc` can tell its files from
those that a killed writer left. Commits hold the table together with other commits, for the moment
that they take; `gc` holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from silva.errors import TableError

_PATIENCE = 600.0
"""Seconds to wait for those who hold a table."""
_PAUSE = 0.002


@contextlib.contextmanager
def held(folder: Path, *, alone: bool) -> Iterator[None]:
    """Holds a table, together with others or alone."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _took(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                whom = "commits" if alone else "gc()"
                raise TableError(
                    f"{str(folder)!r} was held by {whom} of other processes for "
                    f"{_PATIENCE:.0f} s: is one of them stopped?"
                )
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(handle)


def take(folder: Path) -> int | None:
    """A handle that holds a folder alone until it is closed; None where somebody else does, or
    where the folder is gone."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    if _took(handle, fcntl.LOCK_EX) and os.fstat(handle).st_nlink:
        return handle
    os.close(handle)
    return None


def _took(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
