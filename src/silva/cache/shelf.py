"""The interface between a cache and the storage of its files.

A shelf holds files `<fingerprint>/<name>`. Each is written once, appears whole or not at all, and
may be removed at any moment by any process. Files of others are neither listed nor touched.
`FolderShelf` is a folder of a disk, `ObjectShelf` a prefix of an object store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from silva.errors import SourceError

SUFFIX = ".rows"
UNFINISHED = ".tmp"
"""Ends the names of files that are being written, or were when their writer was killed."""
ABOUT = "about.json"
USED = "used"
"""Its modification time is the time of the last use, where a file cannot just be touched."""
_FINGERPRINT = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{16})*")

Data = bytes | memoryview
_T = TypeVar("_T")


class UnreachableError(SourceError, OSError):
    """The storage as a whole does not answer, or denies access."""


@dataclass(frozen=True, order=True)
class Item:
    """A file on a shelf."""

    fingerprint: str
    name: str
    size: int
    written: float
    """When, in seconds since 1970."""
    version: str = ""
    """A tag that changes with the file's content, where the storage has one."""


FileSpan = tuple[Item, int, int]
"""Some bytes of a file: the file, the first byte, and their number."""


class Shelf(Protocol):
    @property
    def shown(self) -> str:
        """The location to show to people, without credentials."""

    @property
    def file_bytes(self) -> int:
        """The size that a file should have, in bytes."""

    def prepare(self) -> None:
        """Creates the folder if there is none; raises OSError where it cannot be used."""

    def is_foreign(self) -> bool:
        """Whether it holds something, but nothing of silva's."""

    def fingerprints(self) -> list[str]:
        """All fingerprints that have a subfolder, by name."""

    def items(self, fingerprint: str) -> list[Item]:
        """silva's own files of a fingerprint, by name."""

    def expect(self, spans: Sequence[FileSpan]) -> None:
        """Announces what will be read after the spans announced before, so that it may be
        prefetched."""

    def read(self, spans: Sequence[FileSpan]) -> Iterator[Data | OSError]:
        """The bytes of each span, in order, or the error: FileNotFoundError where the file is gone.
        Slow storage prefetches the next spans, within bounds."""

    def locked(self) -> AbstractContextManager[object]:
        """Keeps others from making room, as far as the storage supports locks."""

    def free(self) -> float:
        """Bytes that may be added when there is no limit."""

    def reserve(self, fingerprint: str, name: str, size: int) -> None:
        """Shows others how large a file will be, until `write` has ended."""

    def write(self, fingerprint: str, name: str, parts: Sequence[Data]) -> Item:
        """Writes a file for which room was reserved."""

    def remove(self, items: Sequence[Item]) -> list[Item]:
        """Removes files; returns those that it removed itself, as far as the storage can tell."""

    def remove_empty(self, fingerprint: str) -> None:
        """Removes a subfolder without rows, unless it holds something that is not silva's."""

    def write_about(self, fingerprint: str, data: bytes) -> None:
        """Creates the subfolder and its `about.json`, unless they exist."""

    def touch(self, fingerprint: str) -> None:
        """Records that the rows are in use. Raises nothing: they may be read-only."""

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Runs work that writes: at once, or in the background where it takes long."""

    def close(self) -> None:
        """Waits for submitted work, up to its deadline. The shelf can be used again."""


def unfinished_name(name: str) -> str:
    """The name of a file while it is being written.

    >>> unfinished_name("5f3a.rows")
    '5f3a.tmp'
    """
    return str(PurePosixPath(name).with_suffix(UNFINISHED))


def is_fingerprint(name: str) -> bool:
    """
    >>> is_fingerprint("0123456789abcdef" * 2), is_fingerprint("photos")
    (True, False)
    """
    return _FINGERPRINT.fullmatch(name) is not None


def is_own(name: str) -> bool:
    """Whether a file in a subfolder is silva's.

    >>> is_own("5f3a.rows"), is_own("notes.txt")
    (True, False)
    """
    return name in (ABOUT, USED) or name.endswith((SUFFIX, UNFINISHED))
