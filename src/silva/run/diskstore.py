"""Rows kept in a folder, for later epochs, runs and other processes.

In memory there is an index (24 bytes a row), the pages read last, and what is not written yet. Any
number of processes may fill one folder: each writes files of its own, and a row that is there twice
does no harm. What is killed leaves whole files, and one unfinished file that a later run removes.
Any process may remove files to make room: their rows are then computed again.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np

from silva.columns.recycle import empty
from silva.errors import PlanError
from silva.run.about import About, touch, write_about
from silva.run.entries import Entries, Parts
from silva.run.eviction import locked, make_room, shrink
from silva.run.kept import remove_stale
from silva.run.rowfiles import SUFFIX, DamagedError, NewFile, Page, new_page, read_header
from silva.run.rowindex import NOWHERE, RowIndex
from silva.run.rowstore import Room, lend, only_new

_PAGE_BYTES = 256 << 10
"""Read for a single row: small enough for shuffled epochs, large enough to be worth a read."""
_FILE_BYTES = 64 << 20
_SLAB_BYTES = 8 << 20
_WRITE_SECONDS = 30.0
"""What was computed is on disk after this long, however slowly it comes."""
_TOUCH_SECONDS = 60.0
"""How exactly the folder says when it was last used."""
_FULL_SECONDS = 3600.0
"""A folder that was full may have room after this long: other rows are worth less by then."""
_ENTRY_BITS = 24
"""A place is a page's number and, in this many bits, the entry within it."""


class DiskStore:
    def __init__(
        self, folder: Path, fingerprint: str, about: About, room: Room, limit: int | None
    ) -> None:
        """`limit` is what the whole folder may hold, in bytes; None for what the disk has."""
        self._all = folder
        self._folder = folder / fingerprint
        self._fingerprint = fingerprint
        self._about = about
        self._room = room
        self._limit = limit
        share = room.size // 8 if limit is None else min(room.size // 8, limit // 16)
        self._file_bytes = min(_FILE_BYTES, max(share, 1 << 16))
        self._index = RowIndex()
        self._pages: list[Page] = []
        self._files: dict[str, list[int]] = {}
        """The numbers of each file's pages."""
        self._gone: set[int] = set()
        """The numbers of pages that cannot be read any more."""
        self._read: OrderedDict[int, tuple[Entries, int]] = OrderedDict()
        """Pages read last, with the room that they take."""
        self._unwritten: list[tuple[int, np.ndarray]] = []
        self._unwritten_bytes = 0
        self._unwritten_seconds = 0.0
        self._unwritten_since = 0.0
        self._slab = memoryview(b"")
        """Memory for the next pages."""
        self._lock = threading.Lock()
        """A loader may be closed, which writes, on another thread than the one that reads."""
        self._touched = -_TOUCH_SECONDS
        self._warned = False
        self._writes_from = 0.0
        """Nothing is written before this time: the disk or the folder is full."""
        self.nbytes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(f"cache({str(folder)!r}): no folder can be made: {error}") from error
        self._touch()
        remove_stale(self._folder)
        if limit is not None:
            with locked(folder):
                shrink(folder, limit)

    def __len__(self) -> int:
        return len(self._index)

    # What is there.

    def refresh(self) -> None:
        """Takes in the files that are new, later ones counting where a row is in several, and
        forgets those that are gone."""
        self._touch()
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as listing:
            for entry in listing:
                if entry.name.endswith(SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        found[entry.name] = entry.stat().st_mtime_ns
        for name in self._files.keys() - found.keys():
            self._forget(self._files.pop(name))
        for name in sorted(found.keys() - self._files.keys(), key=lambda n: (found[n], n)):
            self._take_in(name)

    def _take_in(self, name: str) -> None:
        numbers = self._files.setdefault(name, [])
        try:
            pages, keys = read_header(self._folder / name, self._fingerprint)
        except (DamagedError, OSError) as error:
            self._warn(f"{error}; its rows are computed again")
            return
        numbers += range(len(self._pages), len(self._pages) + len(pages))
        self._index.add(keys, self._places(pages))

    def _places(self, pages: list[Page]) -> np.ndarray:
        """Gives pages their numbers; returns the places of their entries."""
        first = len(self._pages)
        self._pages += pages
        self.nbytes += sum(page.size for page in pages)
        places = [(first + i << _ENTRY_BITS) + np.arange(p.entries) for i, p in enumerate(pages)]
        return np.concatenate(places) if places else np.zeros(0, np.int64)

    def _forget(self, numbers: list[int]) -> None:
        """Drops pages that cannot be read any more."""
        self.nbytes -= sum(self._pages[n].size for n in numbers if n not in self._gone)
        self._gone.update(numbers)
        self._index.forget(lambda places: np.isin(places >> _ENTRY_BITS, numbers))

    def _touch(self) -> None:
        now = time.monotonic()
        if now - self._touched >= _TOUCH_SECONDS:
            self._touched = now
            touch(self._folder)

    # Reading.

    def has(self, keys: np.ndarray) -> np.ndarray:
        known: np.ndarray = self._index.find(keys) != NOWHERE
        return known

    def read(self, keys: np.ndarray) -> Parts:
        self._touch()
        places = self._index.find(keys)
        owner, entry = places >> _ENTRY_BITS, places & ((1 << _ENTRY_BITS) - 1)
        order = np.argsort(owner, kind="stable")
        borders = np.flatnonzero(np.diff(owner[order])) + 1
        parts: Parts = []
        for which in np.split(order, borders) if len(keys) else []:
            number = int(owner[which[0]])  # negative where a damaged page was dropped just now
            entries = self._page(number) if number >= 0 and number not in self._gone else None
            if entries is not None:
                parts.append((which, lend(entries.take(entry[which]))))
        return parts

    def _page(self, number: int) -> Entries | None:
        if number in self._read:
            self._read.move_to_end(number)
            return self._read[number][0]
        page = self._pages[number]
        try:
            entries = page.read()
        except DamagedError as error:
            self._warn(f"{error}; its rows are computed again")
            gone = page.path is not None and not page.path.exists()
            self._forget(self._file_of(number) if gone else [number])
            return None
        size = max(page.size, entries.nbytes)
        while self._read and self._room.left < size <= self._room.size:
            self._room.give_back(self._read.popitem(last=False)[1][1])
        if self._room.take(size):
            self._read[number] = (entries, size)
        return entries

    def _file_of(self, number: int) -> list[int]:
        """All pages of the file that holds this one."""
        return next(pages for pages in self._files.values() if number in pages)

    # Writing.

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        with self._lock:
            self._add(keys, entries, seconds)

    def _add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        if time.monotonic() < self._writes_from:
            return
        fresh = only_new(self, keys)
        if not len(fresh):
            return
        seconds *= len(fresh) / len(keys)
        keys, entries = keys[fresh], entries.take(fresh)
        step = max(1, len(keys) * _PAGE_BYTES // max(entries.nbytes, 1))
        step = min(step, 1 << _ENTRY_BITS)
        if not self._unwritten:
            self._unwritten_since = time.monotonic()
        starts = range(0, len(keys), step)
        pages = [new_page(entries.slice(i, i + step), self._allocate) for i in starts]
        numbers = range(len(self._pages), len(self._pages) + len(pages))
        self._unwritten += [(n, keys[i : i + step]) for n, i in zip(numbers, starts, strict=True)]
        self._index.add(keys, self._places(pages))
        self._unwritten_bytes += sum(page.size for page in pages)
        self._unwritten_seconds += seconds
        waited = time.monotonic() - self._unwritten_since
        if self._unwritten_bytes >= self._file_bytes or waited > _WRITE_SECONDS:
            self._write()

    def _allocate(self, size: int) -> memoryview:
        """Memory for a page: a piece of a slab, which is used again when all its pages are gone."""
        if len(self._slab) < size:
            slab = empty((max(size, min(_SLAB_BYTES, self._file_bytes)),), np.uint8)
            self._slab = slab.data
        piece, self._slab = self._slab[:size], self._slab[size:]
        return piece

    def flush(self) -> None:
        with self._lock:
            if self._unwritten:
                self._write()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        seconds, self._unwritten_seconds = self._unwritten_seconds, 0.0
        self._slab = memoryview(b"")
        numbers = [number for number, _ in unwritten]
        pages = [self._pages[number] for number in numbers]
        keys = np.concatenate([keys for _, keys in unwritten])
        try:
            new = self._reserved(pages, keys, seconds)
            if new is not None:
                new.write()
                self._files[new.path.name] = numbers
                return
            self._writes_from = time.monotonic() + _FULL_SECONDS
            full = "its disk is" if self._limit is None else "it is"
            self._warn(f"{self._all} keeps no more rows: {full} full, and others are worth as much")
        except OSError as error:
            self._writes_from = math.inf
            self._warn(f"{error}; rows from here on are not kept")
        for page in pages:
            page.data = None
        self._forget(numbers)

    def _reserved(self, pages: list[Page], keys: np.ndarray, seconds: float) -> NewFile | None:
        """A file that fits into the folder; None where there is no room for it."""
        new = NewFile(self._folder, self._fingerprint, pages, keys, seconds)
        self._all.mkdir(parents=True, exist_ok=True)
        with locked(self._all):
            if not make_room(self._all, new.size, seconds, self._fingerprint, self._limit):
                return None
            write_about(self._folder, self._about)
            new.reserve()
        return new

    def _warn(self, problem: str) -> None:
        """Once a store: what follows is usually the same again."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"cache: {problem}", stacklevel=2)
