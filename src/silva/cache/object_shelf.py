"""A shelf that is a prefix of an object store.

One request writes a file, which then exists as a whole or not at all: a killed process leaves
nothing unfinished. Files are written on background threads. An object store has no locks, so each
writer may exceed a limit by one file; a shelf counts its own files, including those being written.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import ClassVar, TypeVar

from silva.cache.shelf import (
    ABOUT,
    USED,
    Data,
    FileSpan,
    Item,
    UnreachableError,
    is_fingerprint,
    is_own,
    unfinished_name,
)
from silva.errors import SourceError
from silva.io.objects.addresses import Address
from silva.io.objects.errors import ChangedError, GoneError
from silva.io.objects.fetching import PATIENCE, Patience
from silva.io.objects.folder import Listed, ObjectFolder

_UPLOADS = 2
"""Files that are written at the same time."""
_TOUCH_SECONDS = 900.0
"""Eviction treats all rows used within the hour alike, so more frequent marks are of no use."""
_T = TypeVar("_T")


class ObjectShelf:
    file_bytes: ClassVar[int] = 16 << 20

    def __init__(self, address: Address, patience: Patience = PATIENCE) -> None:
        self._folder = ObjectFolder(address, patience)
        self._lock = threading.Lock()
        self._reserved: dict[tuple[str, str], int] = {}
        """Bytes of the files that are being written."""
        self._touched = -_TOUCH_SECONDS
        self._threads: ThreadPoolExecutor | None = None
        self._refusal: str | None = None
        """Why a file could not be written; later files are then not tried."""

    @property
    def shown(self) -> str:
        return self._folder.shown

    def prepare(self) -> None:
        self.fingerprints()

    # Reading.

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
        for (owner, name), size in list(self._reserved.items()):
            if owner == fingerprint and name not in found:
                unfinished = unfinished_name(name)
                found[unfinished] = Item(fingerprint, unfinished, size, time.time())
        return sorted(found.values())

    def expect(self, spans: Sequence[FileSpan]) -> None:
        self._folder.expect([(_listed(item), start, length) for item, start, length in spans])

    def read(self, spans: Sequence[FileSpan]) -> Iterator[Data | OSError]:
        wanted = [(_listed(item), start, length) for item, start, length in spans]
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

    def locked(self) -> AbstractContextManager[object]:
        """Keeps out other threads that use this shelf; other processes cannot be locked out."""
        return self._lock

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
        """Two processes may both write it, with the same text. (A conditional write would exclude
        stores that do not support it.)"""
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
            with suppress(SourceError):  # a read-only bucket still serves its rows
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
