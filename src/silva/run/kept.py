"""What a shelf holds: for each fingerprint, files of rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from silva.run.about import About, decode_about
from silva.run.rowfiles import Start, read_starts
from silva.run.shelf import ABOUT, SUFFIX, UNFINISHED, USED, Item, Shelf

STALE_SECONDS = 3600.0
"""An unfinished file that is older was left by a process that is gone."""
_TOGETHER = 1000
"""Files that are removed by one request, where that can be."""


@dataclass(frozen=True)
class Removed:
    """How many files went, and their bytes.

    >>> Removed(1, 10) + Removed(2, 5)
    Removed(files=3, size=15)
    """

    files: int = 0
    size: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.files + other.files, self.size + other.size)


@dataclass(frozen=True)
class KeptFile:
    item: Item
    entries: int
    seconds: float
    """What computing the entries took."""

    @property
    def size(self) -> int:
        return self.item.size


@dataclass(frozen=True)
class Kept:
    """The rows of one fingerprint."""

    shelf: Shelf
    fingerprint: str
    files: tuple[KeptFile, ...]
    damaged: tuple[Item, ...]
    """Named as files of rows, but not begun as one."""
    items: tuple[Item, ...]
    """All that is silva's there."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Input rows that were computed; one that two processes computed counts twice."""
        return sum(file.entries for file in self.files)

    @property
    def seconds(self) -> float:
        return sum(file.seconds for file in self.files)

    @property
    def used(self) -> float:
        """When somebody last used them, in seconds since 1970."""
        told = [item.written for item in self.items if item.name in (ABOUT, USED)]
        return max(told or [item.written for item in self.items] or [0.0])

    @property
    def about(self) -> About | None:
        """None where nobody said, or where it cannot be read."""
        said = [(item, 0, item.size) for item in self.items if item.name == ABOUT]
        for data in self.shelf.read(said):
            return None if isinstance(data, OSError) else decode_about(data)
        return None


def list_kept(shelf: Shelf) -> list[Kept]:
    """All that is kept; reads the first bytes of every file."""
    return [_kept(shelf, fingerprint) for fingerprint in shelf.fingerprints()]


def _kept(shelf: Shelf, fingerprint: str) -> Kept:
    items = shelf.items(fingerprint)
    files, damaged = [], []
    rows = ending(items, SUFFIX)
    for item, start in zip(rows, read_starts(shelf, rows), strict=True):
        if isinstance(start, Start):
            files.append(KeptFile(item, start.entries, start.seconds))
        elif not isinstance(start, OSError):  # another was faster, or does not want it read
            damaged.append(item)
    return Kept(shelf, fingerprint, tuple(files), tuple(damaged), tuple(items))


def ending(items: Iterable[Item], *endings: str) -> list[Item]:
    """The files with one of these endings."""
    return [item for item in items if item.name.endswith(endings)]


def bytes_held(shelf: Shelf) -> int:
    """Bytes of all files of rows, also of those that are being written."""
    return sum(
        item.size
        for fingerprint in shelf.fingerprints()
        for item in ending(shelf.items(fingerprint), SUFFIX, UNFINISHED)
    )


def remove_files(shelf: Shelf, items: Iterable[Item], enough: float = math.inf) -> Removed:
    """Removes files, in this order, until so many bytes were freed."""
    gone, waiting = Removed(), iter(items)
    while gone.size < enough:
        some = _first(waiting, enough - gone.size)
        if not some:
            break
        went = shelf.remove(some)
        gone += Removed(len(went), sum(item.size for item in went))
    return gone


def _first(items: Iterable[Item], enough: float) -> list[Item]:
    """As many as hold so many bytes, or as go together."""
    found: list[Item] = []
    held = 0
    for item in islice(items, _TOGETHER):
        found.append(item)
        held += item.size
        if held >= enough:
            break
    return found


def remove_stale(shelf: Shelf, items: Sequence[Item]) -> Removed:
    """Removes, of these, unfinished files whose writers are gone."""
    oldest = time.time() - STALE_SECONDS
    return remove_files(
        shelf, [item for item in ending(items, UNFINISHED) if item.written < oldest]
    )
