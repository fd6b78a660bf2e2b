"""A shelf that is a prefix of an object store.

One request writes a file, which is there as a whole or not at all, so nothing is ever unfinished:
what a killed process had begun leaves no trace. Files are written on threads of their own, beside
the consumer. Others cannot be locked out, so a limit may be exceeded by one file a writer; of its
own files, also of those that are on their way, a shelf knows.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import PurePosixPath
from typing import ClassVar, TypeVar

from silva.errors import SourceError
from silva.io.addresses import Address
from silva.io.fetching import PATIENCE, Patience
from silva.io.object_errors import ChangedError, GoneError
from silva.io.object_folder import Listed, ObjectFolder
from silva.run.shelf import (
    ABOUT,
    UNFINISHED,
    USED,
    Data,
    Item,
    Part,
    UnreachableError,
    is_fingerprint,
    is_own,
)

_UPLOADS = 2
"""Files that are written at once."""
_TOUCH_SECONDS = 900.0
"""Rows used within the hour are all alike in use: noting it more often tells nothing."""
_T = TypeVar("_T")


class ObjectShelf:
    file_bytes: ClassVar[int] = 16 << 20

    def __init__(self, address: Address, patience: Patience = PATIENCE) -> None:
        self._folder = ObjectFolder(address, patience)
        self._lock = threading.Lock()
        self._reserved: dict[tuple[str, str], int] = {}
        """Bytes of the files that are on their way."""
        self._touched = -_TOUCH_SECONDS
        self._threads: ThreadPoolExecutor | None = None
        self._refusal: str | None = None
        """Why a file could not be written: what comes after it is not even tried."""

    @property
    def shown(self) -> str:
        return self._folder.shown

    def prepare(self) -> None:
        self.fingerprints()

    # What is there.

    def is_foreign(self) -> bool:
        with _reaching():
            folders, objects = self._folder.look()
        return bool(folders or objects) and not any(map(is_fingerprint, folders))

    def fingerprints(self) -> list[str]:
        with _reaching():
            folders, _ = self._folder.look()
        own = {fingerprint for fingerprint, _ in list(self._reserved)}
        return sorted({*filter(is_fingerprint, folders), *own})

    def items(self, fingerprint: str) -> list[Item]:
        with _reaching():
            listed = self._folder.below(fingerprint)
        found = {}
        for each in listed:
            name = each.key.removeprefix(f"{fingerprint}/")
            if "/" not in name and is_own(name):
                found[name] = Item(fingerprint, name, each.size, each.written, each.version)
        for (whose, name), size in list(self._reserved.items()):
            if whose == fingerprint and name not in found:
                aside = str(PurePosixPath(name).with_suffix(UNFINISHED))
                found[aside] = Item(fingerprint, aside, size, time.time())
        return sorted(found.values())

    def expect(self, parts: Sequence[Part]) -> None:
        self._folder.expect([(_listed(item), start, length) for item, start, length in parts])

    def read(self, parts: Sequence[Part]) -> Iterator[Data | OSError]:
        wanted = [(_listed(item), start, length) for item, start, length in parts]
        for found in self._folder.read(wanted):
            if isinstance(found, GoneError | ChangedError):
                yield FileNotFoundError(str(found))
            elif isinstance(found, SourceError):
                yield UnreachableError(str(found))
            else:
                yield found

    def free(self) -> float:
        return math.inf

    # Writing.

    def locked(self) -> AbstractContextManager[None]:
        """Keeps out other threads that use this shelf, and nobody else."""
        return _held(self._lock)

    def reserve(self, fingerprint: str, name: str, size: int) -> None:
        self._reserved[fingerprint, name] = size

    def write(self, fingerprint: str, name: str, parts: Sequence[Data]) -> Item:
        try:
            with self._writing():
                data = b"".join(parts)
                version = self._folder.write(f"{fingerprint}/{name}", data)
        finally:
            del self._reserved[fingerprint, name]
        return Item(fingerprint, name, len(data), time.time(), version)

    def remove(self, items: Sequence[Item]) -> list[Item]:
        if items:
            with _reaching():
                self._folder.remove([f"{item.fingerprint}/{item.name}" for item in items])
        return list(items)

    def remove_empty(self, fingerprint: str) -> None:
        items = self.items(fingerprint)
        if all(item.name in (ABOUT, USED) for item in items):
            self.remove(items)

    def write_about(self, fingerprint: str, data: bytes) -> None:
        """Of two at the same moment the last one wins, with the same words. (Asking for it to be
        written only if it is absent would shut out stores that do not know this.)"""
        with self._writing():
            if not self._folder.exists(f"{fingerprint}/{ABOUT}"):
                self._folder.write(f"{fingerprint}/{ABOUT}", data)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._refusal is not None:
            raise UnreachableError(self._refusal)
        try:
            with _reaching():
                yield
        except UnreachableError as error:
            self._refusal = str(error)
            raise

    def touch(self, fingerprint: str) -> None:
        now = time.monotonic()
        if now - self._touched < _TOUCH_SECONDS:
            return
        self._touched = now

        def note() -> None:
            with suppress(SourceError):  # rows that may be read only are of use all the same
                self._folder.write(f"{fingerprint}/{USED}", b"")

        self.submit(note)

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_UPLOADS, "silva-uploads")
        return self._threads.submit(work)

    def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        self._folder.forget()


def _listed(item: Item) -> Listed:
    return Listed(f"{item.fingerprint}/{item.name}", item.size, item.version, item.written)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except SourceError as error:
        raise UnreachableError(str(error)) from None


@contextmanager
def _held(lock: threading.Lock) -> Iterator[None]:
    with lock:
        yield
