"""The contents of a shelf: for each fingerprint, files of rows and an `about.json` for people."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from silva.cache.row_files import Start, read_starts
from silva.cache.shelf import ABOUT, SUFFIX, UNFINISHED, USED, Data, Item, Shelf

STALE_SECONDS = 3600.0
"""An unfinished file that is older was left by a process that is gone."""
_AT_ONCE = 1000
"""Files that are removed by one request, where the storage allows it."""


class About(msgspec.Struct, frozen=True):
    """What the rows of a fingerprint are: `about.json`, written once by the first process."""

    steps: list[str]
    """As `explain` shows them, in the order in which they run; functions by name, file and line."""
    source: str
    columns: list[str]
    silva: str
    """The version that wrote the first rows."""
    created: str
    """The time of creation in ISO 8601."""


def encode_about(about: About) -> bytes:
    return msgspec.json.format(msgspec.json.encode(about), indent=2) + b"\n"


def decode_about(data: Data) -> About | None:
    """None where the bytes cannot be decoded."""
    try:
        return msgspec.json.decode(data, type=About)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class RemovedRows:
    """The number of files removed, and their bytes.

    >>> RemovedRows(1, 10) + RemovedRows(2, 5)
    RemovedRows(files=3, size=15)
    """

    files: int = 0
    size: int = 0

    def __add__(self, other: RemovedRows) -> RemovedRows:
        return RemovedRows(self.files + other.files, self.size + other.size)


@dataclass(frozen=True)
class KeptFile:
    item: Item
    entries: int
    seconds: float
    """The time it took to compute the entries."""

    @property
    def size(self) -> int:
        return self.item.size


@dataclass(frozen=True)
class KeptRows:
    """The rows of one fingerprint."""

    shelf: Shelf
    fingerprint: str
    files: tuple[KeptFile, ...]
    damaged: tuple[Item, ...]
    """Files that are named like files of rows but do not start like one."""
    items: tuple[Item, ...]
    """All of silva's files of this fingerprint."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Input rows that were computed; a row that two processes computed counts twice."""
        return sum(file.entries for file in self.files)

    @property
    def seconds(self) -> float:
        return sum(file.seconds for file in self.files)

    @property
    def used(self) -> float:
        """When the rows were last used, in seconds since 1970."""
        marks = [item.written for item in self.items if item.name in (ABOUT, USED)]
        return max(marks or [item.written for item in self.items] or [0.0])

    @property
    def about(self) -> About | None:
        """None where there is no `about.json`, or where it cannot be read."""
        files = [(item, 0, item.size) for item in self.items if item.name == ABOUT]
        for data in self.shelf.read(files):
            return None if isinstance(data, OSError) else decode_about(data)
        return None


def list_kept(shelf: Shelf) -> list[KeptRows]:
    """The rows of every fingerprint; reads the first bytes of every file."""
    return [_kept(shelf, fingerprint) for fingerprint in shelf.fingerprints()]


def _kept(shelf: Shelf, fingerprint: str) -> KeptRows:
    items = shelf.items(fingerprint)
    files, damaged = [], []
    rows = with_suffix(items, SUFFIX)
    for item, start in zip(rows, read_starts(shelf, rows), strict=True):
        if isinstance(start, Start):
            files.append(KeptFile(item, start.entries, start.seconds))
        elif not isinstance(start, OSError):  # removed by another process, or not readable
            damaged.append(item)
    return KeptRows(shelf, fingerprint, tuple(files), tuple(damaged), tuple(items))


def with_suffix(items: Iterable[Item], *suffixes: str) -> list[Item]:
    """The files with one of these suffixes."""
    return [item for item in items if item.name.endswith(suffixes)]


def bytes_held(shelf: Shelf) -> int:
    """Bytes of all files of rows, including those that are being written."""
    return sum(
        item.size
        for fingerprint in shelf.fingerprints()
        for item in with_suffix(shelf.items(fingerprint), SUFFIX, UNFINISHED)
    )


def remove_files(shelf: Shelf, items: Iterable[Item], enough: float = math.inf) -> RemovedRows:
    """Removes files in this order until `enough` bytes are free."""
    removed, waiting = RemovedRows(), iter(items)
    while removed.size < enough:
        some = _first(waiting, enough - removed.size)
        if not some:
            break
        gone = shelf.remove(some)
        removed += RemovedRows(len(gone), sum(item.size for item in gone))
    return removed


def _first(items: Iterable[Item], enough: float) -> list[Item]:
    """The next files: as many as hold `enough` bytes, or as one request may remove."""
    found: list[Item] = []
    held = 0
    for item in islice(items, _AT_ONCE):
        found.append(item)
        held += item.size
        if held >= enough:
            break
    return found


def remove_stale(shelf: Shelf, items: Sequence[Item]) -> RemovedRows:
    """Removes those of the files that are unfinished and whose writers are gone."""
    oldest = time.time() - STALE_SECONDS
    unfinished = with_suffix(items, UNFINISHED)
    return remove_files(shelf, [item for item in unfinished if item.written < oldest])
