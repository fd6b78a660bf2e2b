"""A shelf that is a folder of a disk.

A file is written under a temporary name, at its full length from the start, and then renamed. Room
is made under a lock on the folder, where the file system has locks. Symbolic links within the
folder are not followed (`silva.folders`): silva treats what they point to as absent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar, TypeVar

from silva.cache.shelf import (
    ABOUT,
    UNFINISHED,
    Data,
    FileSpan,
    Item,
    is_fingerprint,
    is_own,
    unfinished_name,
)
from silva.errors import FolderError
from silva.folders import OwnFolder

_FREE = 0.05
"""The share of the disk that a folder without a limit leaves free."""
_LOCK_SECONDS = 10.0
_T = TypeVar("_T")


class FolderShelf:
    file_bytes: ClassVar[int] = 64 << 20

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = OwnFolder(folder)

    @property
    def shown(self) -> str:
        return str(self._folder)

    def prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    # Reading.

    def is_foreign(self) -> bool:
        return self._folder.is_dir() and bool(os.listdir(self._folder)) and not self.fingerprints()

    def fingerprints(self) -> list[str]:
        named = [entry for entry in self._own.entries() if is_fingerprint(entry.name)]
        return [entry.name for entry in named if entry.is_dir(follow_symlinks=False)]

    def items(self, fingerprint: str) -> list[Item]:
        try:
            found = self._own.below(fingerprint).entries(sizes=True)
        except FolderError:
            return []
        return [
            _item(fingerprint, entry.name, entry.stat(follow_symlinks=False))
            for entry in found
            if is_own(entry.name) and entry.is_file(follow_symlinks=False)
        ]

    def expect(self, spans: Sequence[FileSpan]) -> None:
        """The operating system reads ahead by itself."""

    def read(self, spans: Sequence[FileSpan]) -> Iterator[Data | OSError]:
        for item, start, length in spans:
            try:
                handle = self._own.below(item.fingerprint).open_file(item.name)
                with open(handle, "rb") as file:
                    file.seek(start)
                    data = file.read(length)
            except OSError as error:
                yield error
            else:
                yield data

    def free(self) -> float:
        disk = shutil.disk_usage(self._folder)
        return disk.free - int(disk.total * _FREE)

    # Writing.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from making room; the system releases the lock of a killed one."""
        self.prepare()
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _try_lock(descriptor) and time.monotonic() < deadline:
                time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)

    def reserve(self, fingerprint: str, name: str, size: int) -> None:
        """Creates the unfinished file, at its full length."""
        own, unfinished = self._own.below(fingerprint), unfinished_name(name)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(own.open_file(unfinished, new), "wb") as file:
            try:
                file.truncate(size)
            except OSError:
                _discard(own, unfinished)
                raise

    def write(self, fingerprint: str, name: str, parts: Sequence[Data]) -> Item:
        own, unfinished = self._own.below(fingerprint), unfinished_name(name)
        try:
            with open(own.open_file(unfinished, os.O_RDWR), "r+b") as file:
                for part in parts:
                    file.write(part)
            with own.opened() as folder:
                os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except BaseException:
            _discard(own, unfinished)
            raise
        return _item(fingerprint, name, status)

    def remove(self, items: Sequence[Item]) -> list[Item]:
        removed = []
        for item in items:
            with contextlib.suppress(OSError):  # gone already, or another user's, or read-only
                self._own.below(item.fingerprint).remove(item.name)
                removed.append(item)
        return removed

    def remove_empty(self, fingerprint: str) -> None:
        own = self._own.below(fingerprint)
        with contextlib.suppress(OSError):
            with own.opened() as folder:
                if os.listdir(folder) not in ([], [ABOUT]):
                    return
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(ABOUT, dir_fd=folder)
            with self._own.opened() as above:
                os.rmdir(fingerprint, dir_fd=above)

    def write_about(self, fingerprint: str, data: bytes) -> None:
        own = self._own.below(fingerprint)
        if own.has(ABOUT):
            return
        unfinished = f"{uuid.uuid4().hex}{UNFINISHED}"
        own.write(ABOUT, data, unfinished, replace=True, sync=False)  # all write the same

    def touch(self, fingerprint: str) -> None:
        own = self._own.below(fingerprint)
        with contextlib.suppress(OSError), own.opened() as folder:  # not there yet, or read-only
            os.utime(ABOUT, dir_fd=folder, follow_symlinks=False)

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Runs the work at once: a disk is fast enough to wait for."""
        done: Future[_T] = Future()
        try:
            done.set_result(work())
        except OSError as error:
            done.set_exception(error)
        return done

    def close(self) -> None:
        pass


def _discard(own: OwnFolder, name: str) -> None:
    with contextlib.suppress(OSError):
        own.remove(name)


def _item(fingerprint: str, name: str, status: os.stat_result) -> Item:
    return Item(fingerprint, name, status.st_size, status.st_mtime)


def _try_lock(descriptor: int) -> bool:
    """Whether the lock is held now, or the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
