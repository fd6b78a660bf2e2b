"""Rows kept in files on a shelf, for later epochs, runs and other processes.

In memory there is an index (24 bytes a row), the pages read last, and what is not written yet. Any
number of processes may fill one shelf: each writes files of its own, and a row that is there twice
does no harm. What is killed leaves whole files, and on a disk one unfinished file that a later run
removes. Any process may remove files to make room: their rows are then computed again.

Files are written by the shelf: at once, or beside the consumer where that takes long. Then at most
a part of the memory is on its way; rows that do not fit are not kept, so that nobody waits.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from silva.columns.recycle import empty
from silva.errors import PlanError
from silva.run.about import About
from silva.run.entries import Entries, Parts
from silva.run.eviction import shrink
from silva.run.kept import ending, remove_stale
from silva.run.rowfiles import DamagedError, NewFile, Page, decode_page, new_page, read_headers
from silva.run.rowindex import NOWHERE, RowIndex
from silva.run.rowstore import Room, lend, only_new
from silva.run.shelf import SUFFIX, Item, Shelf, UnreachableError
from silva.run.uploads import Uploads

_PAGE_BYTES = 256 << 10
"""Read for a single row: small enough for shuffled epochs, large enough to be worth a read."""
_SLAB_BYTES = 8 << 20
_WRITE_SECONDS = 30.0
"""What was computed is on disk after this long, however slowly it comes."""
_TOUCH_SECONDS = 60.0
"""How exactly the folder says when it was last used."""
_FULL_SECONDS = 3600.0
"""A folder that was full may have room after this long: other rows are worth less by then."""
_ENTRY_BITS = 24
"""A place is a page's number and, in this many bits, the entry within it."""


class FileStore:
    def __init__(
        self, shelf: Shelf, fingerprint: str, about: About, room: Room, limit: int | None
    ) -> None:
        """`limit` is what the whole shelf may hold, in bytes; None for what the storage has."""
        self._shelf = shelf
        self._fingerprint = fingerprint
        self._room = room
        self._limit = limit
        share = room.size // 8 if limit is None else min(room.size // 8, limit // 16)
        self._file_bytes = min(shelf.file_bytes, max(share, 1 << 16))
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
        self._uploads = Uploads(shelf, fingerprint, about, limit)
        self._slab = memoryview(b"")
        """Memory for the next pages."""
        self._lock = threading.Lock()
        """A loader may be closed, which writes, on another thread than the one that reads."""
        self._touched = -_TOUCH_SECONDS
        self._warned = False
        self._writes_from = 0.0
        """Nothing is written before this time: the storage is full, or takes nothing."""
        self.nbytes = 0
        try:
            shelf.prepare()
            remove_stale(shelf, shelf.items(fingerprint))
            if limit is not None:
                with shelf.locked():
                    shrink(shelf, limit)
        except OSError as error:
            raise PlanError(f"cache({shelf.shown!r}) cannot be used: {error}") from error

    def __len__(self) -> int:
        return len(self._index)

    # What is there.

    def refresh(self) -> None:
        """Takes in the files that are new, later ones counting where a row is in several, and
        forgets those that are gone."""
        with self._lock:
            self._settle()
            try:
                found = {i.name: i for i in ending(self._shelf.items(self._fingerprint), SUFFIX)}
            except UnreachableError as error:
                self._leave(error)
                return
            for name in self._files.keys() - found.keys():
                self._forget(self._files.pop(name))
            new = [found[name] for name in found.keys() - self._files.keys()]
            self._take_in(sorted(new, key=lambda item: (item.written, item.name)))
            self._touch()

    def _take_in(self, items: list[Item]) -> None:
        for item, contents in read_headers(self._shelf, items):
            if isinstance(contents, UnreachableError):
                self._leave(contents)
                return
            numbers = self._files.setdefault(item.name, [])
            if isinstance(contents, tuple):
                pages, keys = contents
                numbers += range(len(self._pages), len(self._pages) + len(pages))
                self._index.add(keys, self._places(pages))
            else:
                self._warn(f"{contents}; its rows are computed again")

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

    def _leave(self, error: UnreachableError) -> None:
        """Does without the shelf until the next epoch: waiting for it page by page takes longer
        than computing."""
        self._warn(f"{error}; rows that are kept there are computed again")
        for numbers in self._files.values():
            self._forget(numbers)
        self._files.clear()

    def _touch(self) -> None:
        now = time.monotonic()
        if self._files and now - self._touched >= _TOUCH_SECONDS:
            self._touched = now
            self._shelf.touch(self._fingerprint)

    # Reading.

    def has(self, keys: np.ndarray) -> np.ndarray:
        known: np.ndarray = self._index.find(keys) != NOWHERE
        return known

    def expect(self, keys: np.ndarray) -> None:
        numbers = np.unique(self._index.find(keys) >> _ENTRY_BITS).tolist()
        pages = [self._pages[n] for n in numbers if n >= 0 and n not in self._read]
        self._shelf.expect([page.part for page in pages if page.data is None])

    def read(self, keys: np.ndarray) -> Parts:
        with self._lock:
            self._settle()
            self._touch()
            return self._read_parts(keys)

    def _read_parts(self, keys: np.ndarray) -> Parts:
        places = self._index.find(keys)
        owner, entry = places >> _ENTRY_BITS, places & ((1 << _ENTRY_BITS) - 1)
        order = np.argsort(owner, kind="stable")
        borders = np.flatnonzero(np.diff(owner[order])) + 1
        wanted = {}
        for which in np.split(order, borders) if len(keys) else []:
            number = int(owner[which[0]])  # negative where a damaged page was dropped just now
            if number >= 0 and number not in self._gone:
                wanted[number] = which
        parts: Parts = []
        for number, entries in self._entries(list(wanted)):
            which = wanted[number]
            parts.append((which, lend(entries.take(entry[which]))))
        return parts

    def _entries(self, numbers: list[int]) -> Iterator[tuple[int, Entries]]:
        """The pages that can be read, with their entries."""
        there = []
        for number in numbers:
            page = self._pages[number]
            if number in self._read:
                self._read.move_to_end(number)
                yield number, self._read[number][0]
            elif page.data is not None:
                yield number, decode_page(page.data)
            else:
                there.append(number)
        found = self._shelf.read([self._pages[number].part for number in there])
        for number, data in zip(there, found, strict=True):
            page = self._pages[number]
            try:
                if isinstance(data, OSError):
                    raise data
                page.check(page.part[0].name, data)
            except UnreachableError as error:
                self._leave(error)
                return
            except (DamagedError, OSError) as error:
                self._warn(f"{error}; its rows are computed again")
                gone = isinstance(error, FileNotFoundError)
                self._forget(self._file_of(number) if gone else [number])
                continue
            entries = decode_page(data)
            self._hold(number, entries)
            yield number, entries

    def _hold(self, number: int, entries: Entries) -> None:
        """Keeps a page in memory, in the place of those that were read before it."""
        size = max(self._pages[number].size, entries.nbytes)
        while self._read and self._room.left < size <= self._room.size:
            self._room.give_back(self._read.popitem(last=False)[1][1])
        if self._room.take(size):
            self._read[number] = (entries, size)

    def _file_of(self, number: int) -> list[int]:
        """All pages of the file that holds this one."""
        return next(pages for pages in self._files.values() if number in pages)

    # Writing.

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        with self._lock:
            self._settle()
            self._add(keys, entries, seconds)

    def _add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        if time.monotonic() < self._writes_from or self._is_behind():
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

    def _is_behind(self) -> bool:
        """Whether so much is on its way that nothing more may be added."""
        if self._uploads.under_way < max(self._room.size // 4, 2 * self._file_bytes):
            return False
        self._warn(
            f"rows come faster than {self._shelf.shown} takes them; those that come meanwhile are "
            "not kept, and computed again in the next epoch"
        )
        return True

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

    def close(self) -> None:
        self.flush()
        self._shelf.close()
        with self._lock:
            self._settle()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        seconds, self._unwritten_seconds = self._unwritten_seconds, 0.0
        self._slab = memoryview(b"")
        numbers = [number for number, _ in unwritten]
        pages = [self._pages[number] for number in numbers]
        keys = np.concatenate([keys for _, keys in unwritten])
        new = NewFile(self._fingerprint, pages, keys, seconds)
        self._uploads.begin(new, numbers)
        self._settle()

    def _settle(self) -> None:
        """Takes note of the files that were written since."""
        for upload in self._uploads.ended():
            try:
                item = upload.done.result()
                if item is not None:
                    upload.new.stored(item)
                    self._files[item.name] = upload.numbers
                    continue
                self._writes_from = time.monotonic() + _FULL_SECONDS
                full = "its disk is" if self._limit is None else "it is"
                self._warn(
                    f"{self._shelf.shown} keeps no more rows: {full} full, and others are worth as "
                    "much"
                )
            except OSError as error:
                self._writes_from = math.inf
                self._warn(f"{error}; rows from here on are not kept")
            for number in upload.numbers:
                self._pages[number].data = None
            self._forget(upload.numbers)

    def _warn(self, problem: str) -> None:
        """Once a store: what follows is usually the same again."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"cache: {problem}", stacklevel=2)
