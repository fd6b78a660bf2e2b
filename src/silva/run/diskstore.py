"""Rows kept in a folder, for later epochs, runs and other processes.

In memory there is an index (24 bytes a row), the pages read last, and what is not written yet. Any
number of processes may fill one folder: each writes files of its own, and a row that is there twice
does no harm. What is killed leaves whole files, and one unfinished file that a later run removes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path

import numpy as np

from silva.errors import PlanError
from silva.run.entries import Entries, Parts
from silva.run.rowfiles import (
    SUFFIX,
    UNFINISHED,
    DamagedError,
    Page,
    new_page,
    read_header,
    write_file,
)
from silva.run.rowindex import NOWHERE, RowIndex
from silva.run.rowstore import Room, lend, only_new

_PAGE_BYTES = 256 << 10
"""Read for a single row: small enough for shuffled epochs, large enough to be worth a read."""
_FILE_BYTES = 64 << 20
_WRITE_SECONDS = 30.0
"""What was computed is on disk after this long, however slowly it comes."""
_STALE_SECONDS = 3600.0
"""An unfinished file that is older was left by a process that is gone."""
_ENTRY_BITS = 24
"""A place is a page's number and, in this many bits, the entry within it."""


class DiskStore:
    def __init__(self, folder: Path, fingerprint: str, room: Room) -> None:
        self._folder = folder / fingerprint
        self._fingerprint = fingerprint
        self._room = room
        self._file_bytes = min(_FILE_BYTES, max(room.size // 8, 1 << 16))
        self._index = RowIndex()
        self._pages: list[Page] = []
        self._read: OrderedDict[int, tuple[Entries, int]] = OrderedDict()
        """Pages read last, with the room that they take."""
        self._unwritten: list[tuple[int, np.ndarray]] = []
        self._unwritten_bytes = 0
        self._unwritten_since = 0.0
        self._lock = threading.Lock()
        """A loader may be closed, which writes, on another thread than the one that reads."""
        self._known: set[str] = set()
        self._warned = False
        self._writes = True
        self.nbytes = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(f"cache({str(folder)!r}): no folder can be made: {error}") from error
        self._clean()

    def __len__(self) -> int:
        return len(self._index)

    # What is there.

    def refresh(self) -> None:
        """Takes in the files that are new; later ones count where a row is in several."""
        found: list[tuple[int, str]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as listing:
            new = (e for e in listing if e.name.endswith(SUFFIX) and e.name not in self._known)
            found.extend((entry.stat().st_mtime_ns, entry.name) for entry in new)
        for _, name in sorted(found):
            self._known.add(name)
            try:
                pages, keys = read_header(self._folder / name, self._fingerprint)
            except (DamagedError, OSError) as error:
                self._warn(f"{error}; its rows are computed again")
                continue
            for page in pages:
                self._index.add(keys[: page.entries], self._place(page))
                keys = keys[page.entries :]

    def _place(self, page: Page) -> np.ndarray:
        """Gives a page its number; returns the places of its entries."""
        number = len(self._pages)
        self._pages.append(page)
        self.nbytes += page.size
        return (number << _ENTRY_BITS) + np.arange(page.entries)

    def _clean(self) -> None:
        oldest = time.time() - _STALE_SECONDS
        for path in self._folder.glob(f"*{UNFINISHED}"):
            try:
                if path.stat().st_mtime < oldest:
                    path.unlink()
            except OSError:
                continue  # another process was faster, or the folder is read-only

    # Reading.

    def has(self, keys: np.ndarray) -> np.ndarray:
        known: np.ndarray = self._index.find(keys) != NOWHERE
        return known

    def read(self, keys: np.ndarray) -> Parts:
        places = self._index.find(keys)
        owner, entry = places >> _ENTRY_BITS, places & ((1 << _ENTRY_BITS) - 1)
        order = np.argsort(owner, kind="stable")
        borders = np.flatnonzero(np.diff(owner[order])) + 1
        parts: Parts = []
        for which in np.split(order, borders) if len(keys) else []:
            number = int(owner[which[0]])  # negative where a damaged page was dropped just now
            entries = self._page(number) if number >= 0 else None
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
            self._index.forget(number << _ENTRY_BITS, (number + 1) << _ENTRY_BITS)
            return None
        size = max(page.size, entries.nbytes)
        while self._read and self._room.left < size <= self._room.size:
            self._room.give_back(self._read.popitem(last=False)[1][1])
        if self._room.take(size):
            self._read[number] = (entries, size)
        return entries

    # Writing.

    def add(self, keys: np.ndarray, entries: Entries) -> None:
        with self._lock:
            self._add(keys, entries)

    def _add(self, keys: np.ndarray, entries: Entries) -> None:
        fresh = only_new(self, keys)
        if not self._writes or not len(fresh):
            return
        step = max(1, len(keys) * _PAGE_BYTES // max(entries.nbytes, 1))
        step = min(step, 1 << _ENTRY_BITS)
        if not self._unwritten:
            self._unwritten_since = time.monotonic()
        for start in range(0, len(fresh), step):
            picked = fresh[start : start + step]
            page = new_page(entries.take(picked))
            self._unwritten.append((len(self._pages), keys[picked]))
            self._unwritten_bytes += page.size
            self._index.add(keys[picked], self._place(page))
        waited = time.monotonic() - self._unwritten_since
        if self._unwritten_bytes >= self._file_bytes or waited > _WRITE_SECONDS:
            self._write()

    def flush(self) -> None:
        with self._lock:
            if self._unwritten:
                self._write()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        pages = [self._pages[number] for number, _ in unwritten]
        keys = np.concatenate([keys for _, keys in unwritten])
        try:
            path = write_file(self._folder, self._fingerprint, pages, keys)
        except OSError as error:
            self._writes = False
            self._warn(f"{error}; rows from here on are not kept")
            for page in pages:
                page.data = None
            first, last = unwritten[0][0], unwritten[-1][0] + 1
            self._index.forget(first << _ENTRY_BITS, last << _ENTRY_BITS)
        else:
            self._known.add(path.name)

    def _warn(self, problem: str) -> None:
        """Once a store: what follows is usually the same again."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"cache: {problem}", stacklevel=2)
