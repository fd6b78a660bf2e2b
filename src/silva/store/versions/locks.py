"""Locks on folders, which the system releases when a process dies.

A writer holds its own folder of data while it works, so that `gc` can tell its files from those
that a killed writer left. A commit holds the table alone while it makes the next version, and so
does `gc`. Without that, a slow commit would lose to quicker ones time and again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

from silva.errors import TableError
from silva.folders import OwnFolder

_PATIENCE = 600.0
"""Seconds to wait for a table that other processes hold."""
_PAUSE = 0.002
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@contextlib.contextmanager
def hold_table(folder: Path) -> Iterator[None]:
    """Holds a table alone.

    A waiting process first takes the lock of `versions`, as a gate, and keeps it until the table is
    free. So nobody who comes later overtakes it.
    """
    deadline = time.monotonic() + _PATIENCE
    table = FolderLock(os.open(folder, _FOLDER))
    gate = FolderLock()
    try:
        with contextlib.suppress(FileNotFoundError):  # a table that is being created
            gate = FolderLock(os.open(folder / "versions", _FOLDER))
            _wait(gate.handle, folder, deadline)
        _wait(table.handle, folder, deadline)
        gate.close()
        yield
    finally:
        gate.close()
        table.close()


def _wait(handle: int, folder: Path, deadline: float) -> None:
    while not _try_lock(handle):
        if time.monotonic() > deadline:
            raise TableError(
                f"other processes, which commit to {str(folder)!r} or run gc() on it, have held it "
                f"for {_PATIENCE:.0f} s. Look for one that is stopped, end it, and try again"
            )
        time.sleep(_PAUSE)


class FolderLock:
    """An exclusive lock on a folder, released by `close` or when nothing refers to it any more: an
    interrupt between two calls, such as Ctrl-C, leaves no lock behind.

    The descriptor belongs to an object of C, which closes it when it is dropped. A destructor in
    Python would do so too, but Ctrl-C in a destructor is lost: Python reports and ignores it.
    """

    def __init__(self, handle: int = -1) -> None:
        self._owner = select.epoll.fromfd(handle) if handle >= 0 else None

    @property
    def handle(self) -> int:
        """A descriptor of the folder; -1 once it is closed."""
        return -1 if self._owner is None else self._owner.fileno()

    def close(self) -> None:
        self._owner = None


def try_lock_folder(folder: OwnFolder, *, make: bool = False) -> FolderLock | None:
    """Locks a folder without waiting. None if another process holds it, or if the folder is gone;
    `make` creates it."""
    try:
        lock = FolderLock(folder.open(make=make))
    except FileNotFoundError:
        return None
    if _try_lock(lock.handle) and os.fstat(lock.handle).st_nlink:
        return lock
    lock.close()
    return None


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
