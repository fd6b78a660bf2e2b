"""Where a cache keeps its files: the one place where kept rows meet storage.

A shelf holds files `<fingerprint>/<name>`. Each is written once, appears whole or not at all, and
may be removed at any moment by anybody. Whatever else lies there is somebody else's: it is neither
listed nor touched. `FolderShelf` is a folder of a disk, `ObjectShelf` a prefix of an object store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from silva.errors import SourceError

SUFFIX = ".rows"
UNFINISHED = ".tmp"
"""Ends the names of files that are being written, or were when their writer was killed."""
ABOUT = "about.json"
USED = "used"
"""When this was written, the rows were in use: for storage that cannot just touch a file."""
_FINGERPRINT = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{16})*")

Data = bytes | memoryview
_T = TypeVar("_T")


class UnreachableError(SourceError, OSError):
    """The storage as a whole does not answer, or lets nobody in."""


@dataclass(frozen=True, order=True)
class Item:
    """A file on a shelf."""

    fingerprint: str
    name: str
    size: int
    written: float
    """In seconds since 1970."""
    version: str = ""
    """What changes if the file does, where the storage tells."""


Part = tuple[Item, int, int]
"""Of a file, the first byte and how many."""


class Shelf(Protocol):
    @property
    def shown(self) -> str:
        """Where it is, for people; without credentials."""

    @property
    def file_bytes(self) -> int:
        """How large files are worth making."""

    def prepare(self) -> None:
        """Makes it, if it must be made; raises OSError where it cannot be used."""

    def is_foreign(self) -> bool:
        """Whether it holds something, and nothing of silva's."""

    def fingerprints(self) -> list[str]:
        """All that have a subfolder, by name."""

    def items(self, fingerprint: str) -> list[Item]:
        """The files of a fingerprint that are silva's own, by name."""

    def expect(self, parts: Sequence[Part]) -> None:
        """What will be read after that which was expected the last time: it may be on its way."""

    def read(self, parts: Sequence[Part]) -> Iterator[Data | OSError]:
        """The bytes of each part, in order, or why there are none: FileNotFoundError where the file
        is gone. What comes next is on its way, within bounds, where that takes time."""

    def locked(self) -> AbstractContextManager[None]:
        """Keeps others from making room, as far as the storage can do that."""

    def free(self) -> float:
        """Bytes that may be added without a limit."""

    def reserve(self, fingerprint: str, name: str, size: int) -> None:
        """Lets others see what a file will take, until `write` has ended."""

    def write(self, fingerprint: str, name: str, parts: Sequence[Data]) -> Item:
        """Writes a file for which room was reserved."""

    def remove(self, items: Sequence[Item]) -> list[Item]:
        """Removes files; returns those that went, and not those that somebody else removed, where
        that can be told."""

    def remove_empty(self, fingerprint: str) -> None:
        """Removes a subfolder without rows, unless it holds something that is not silva's."""

    def write_about(self, fingerprint: str, data: bytes) -> None:
        """Makes the subfolder and says what is in it, unless that is done."""

    def touch(self, fingerprint: str) -> None:
        """The rows are in use. Raises nothing: they may be read-only."""

    def submit(self, work: Callable[[], _T]) -> Future[_T]:
        """Does work that writes: at once, or beside the caller where it takes long."""

    def close(self) -> None:
        """Waits for what was submitted, as long as its deadline allows. It can be used again."""


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
