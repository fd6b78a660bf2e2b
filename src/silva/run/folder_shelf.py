"""A shelf that is a folder of a disk.

A file is written aside, at its full length from the start, and then renamed. Room is made under a
lock on the folder; where the file system has none, nobody is kept out.
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

from silva.run.shelf import ABOUT, UNFINISHED, Data, Item, Part, is_fingerprint, is_own

_FREE = 0.05
"""Of the disk, what a folder without a limit leaves free."""
_LOCK_SECONDS = 10.0
_T = TypeVar("_T")


class FolderShelf:
    file_bytes: ClassVar[int] = 64 << 20

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def shown(self) -> str:
        return str(self._folder)

    def prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    # What is there.

    def is_foreign(self) -> bool:
        return self._folder.is_dir() and bool(os.listdir(self._folder)) and not self.fingerprints()

    def fingerprints(self) -> list[str]:
        try:
            with os.scandir(self._folder) as listing:
                return sorted(e.name for e in listing if is_fingerprint(e.name) and e.is_dir())
        except FileNotFoundError:
            return []

    def items(self, fingerprint: str) -> list[Item]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder / fingerprint) as all_:
            for entry in all_:
                if is_own(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        found.append(_item(fingerprint, entry.name, entry.stat()))
        return sorted(found)

    def expect(self, parts: Sequence[Part]) -> None:
        """The operating system reads ahead by itself."""

    def read(self, parts: Sequence[Part]) -> Iterator[Data | OSError]:
        for item, start, length in parts:
            try:
                with self._path(item).open("rb") as file:
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
        """Keeps other processes from making room; a killed one lets go by itself."""
        self.prepare()
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not _took(descriptor) and time.monotonic() < deadline:
                time.sleep(0.005)
            yield
        finally:
            os.close(descriptor)

    def reserve(self, fingerprint: str, name: str, size: int) -> None:
        """Makes the unfinished file, at its full length."""
        aside = self._aside(fingerprint, name)
        with aside.open("xb") as file:
            try:
                file.truncate(size)
            except OSError:
                aside.unlink(missing_ok=True)
                raise

    def write(self, fingerprint: str, name: str, parts: Sequence[Data]) -> Item:
        path, aside = self._folder / fingerprint / name, self._aside(fingerprint, name)
        try:
            with aside.open("r+b") as file:
                for part in parts:
                    file.write(part)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        return _item(fingerprint, name, path.stat())

    def remove(self, items: Sequence[Item]) -> list[Item]:
        gone = []
        for item in items:
            with contextlib.suppress(OSError):  # gone already, or another user's, or read-only
                self._path(item).unlink()
                gone.append(item)
        return gone

    def remove_empty(self, fingerprint: str) -> None:
        subfolder = self._folder / fingerprint
        with contextlib.suppress(OSError):
            if os.listdir(subfolder) in ([], [ABOUT]):
                (subfolder / ABOUT).unlink(missing_ok=True)
                subfolder.rmdir()

    def write_about(self, fingerprint: str, data: bytes) -> None:
        subfolder = self._folder / fingerprint
        subfolder.mkdir(parents=True, exist_ok=True)
        if (subfolder / ABOUT).exists():
            return
        aside = subfolder / f"{uuid.uuid4().hex}{UNFINISHED}"
        try:
            aside.write_bytes(data)
            try:
                os.link(aside, subfolder / ABOUT)
            except FileExistsError:
                return
            except OSError:  # a file system without links: the last one wins, with the same words
                os.replace(aside, subfolder / ABOUT)
        finally:
            aside.unlink(missing_ok=True)

    def touch(self, fingerprint: str) -> None:
        with contextlib.suppress(OSError):  # not there yet, or read-only
            os.utime(self._folder / fingerprint / ABOUT)

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """A disk is fast enough to be waited for."""
        done: Future[_T] = Future()
        try:
            done.set_result(work())
        except OSError as error:
            done.set_exception(error)
        return done

    def close(self) -> None:
        pass

    def _path(self, item: Item) -> Path:
        return self._folder / item.fingerprint / item.name

    def _aside(self, fingerprint: str, name: str) -> Path:
        return (self._folder / fingerprint / name).with_suffix(UNFINISHED)


def _item(fingerprint: str, name: str, status: os.stat_result) -> Item:
    return Item(fingerprint, name, status.st_size, status.st_mtime)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # there are no locks here
    return True
