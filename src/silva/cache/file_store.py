"""Rows kept in files on a shelf, for later epochs, runs and other processes.

The store holds an index (24 bytes per row), the pages read last, and what is not written yet. Any
number of processes may fill one shelf: each writes files of its own, and a row that is kept twice
does no harm. A killed process leaves whole files, and on a disk one unfinished file, which a later
run removes. Any process may remove files to make room: their rows are then computed again.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from silva.cache.entries import Entries, FoundEntries
from silva.cache.eviction import shrink
from silva.cache.file_writer import FileWriter
from silva.cache.row_files import ENTRY_BITS, DamagedError, Page, read_headers
from silva.cache.row_store import NOWHERE, CacheBudget, RowIndex, lend, select_new
from silva.cache.shelf import SUFFIX, Item, Shelf, UnreachableError
from silva.cache.shelf_index import About, remove_stale, with_suffix
from silva.errors import PlanError

_TOUCH_SECONDS = 60.0
"""How precisely the folder records when it was last used."""
_FULL_SECONDS = 3600.0
"""A folder that was full may have room after this long: other rows are worth less by then."""


class FileStore:
    def __init__(
        self,
        shelf: Shelf,
        fingerprint: str,
        about: About,
        budget: CacheBudget,
        limit: int | None,
        explodes: int = 0,
    ) -> None:
        """`limit` is what the whole shelf may hold, in bytes; None for what the storage has.
        `explodes` is the number of steps that make several rows of one."""
        self._shelf = shelf
        self._fingerprint = fingerprint
        self._budget = budget
        self._limit = limit
        self._names, self._explodes = set(about.columns), explodes
        self._index = RowIndex()
        self._pages: list[Page] = []
        self._files: dict[str, list[int]] = {}
        """The numbers of each file's pages."""
        self._unreadable: set[int] = set()
        """The numbers of pages that can no longer be read."""
        self._recent: OrderedDict[int, tuple[Entries, int]] = OrderedDict()
        """The pages read last, with the memory that they take."""
        self._writer = FileWriter(shelf, fingerprint, about, limit, budget.size)
        self._lock = threading.Lock()
        """A loader may be closed, which writes, on another thread than the one that reads."""
        self._touched = -_TOUCH_SECONDS
        self._warned = False
        self._writes_from = 0.0
        """Nothing is written before this time: the storage is full, or refuses writes."""
        self.nbytes = 0
        try:
            shelf.prepare()
            remove_stale(shelf, shelf.items(fingerprint))
            if limit is not None:
                with shelf.locked():
                    shrink(shelf, limit)
        except OSError as error:
            raise PlanError(
                f"cache({shelf.shown!r}) cannot be used: {error}. Give a place that this user may "
                "read and write"
            ) from error

    def __len__(self) -> int:
        return len(self._index)

    # The files on the shelf.

    def refresh(self) -> None:
        """Adds the rows of new files and removes those of files that are gone. Where a row is in
        several files, the latest counts."""
        with self._lock:
            self._settle()
            try:
                items = with_suffix(self._shelf.items(self._fingerprint), SUFFIX)
            except UnreachableError as error:
                self._leave(error)
                return
            found = {item.name: item for item in items}
            for name in self._files.keys() - found.keys():
                self._drop(self._files.pop(name))
            new = [found[name] for name in found.keys() - self._files.keys()]
            self._add_files(sorted(new, key=lambda item: (item.written, item.name)))
            self._touch()

    def _add_files(self, items: list[Item]) -> None:
        for item, contents in read_headers(self._shelf, items):
            if isinstance(contents, UnreachableError):
                self._leave(contents)
                return
            self._files[item.name] = []
            if isinstance(contents, tuple):
                self._files[item.name] = self._number(*contents)
            else:
                self._warn(f"{contents}; its rows are computed again")

    def _number(self, pages: list[Page], keys: np.ndarray) -> list[int]:
        """Gives pages their numbers, and adds the rows of their entries to the index."""
        numbers = list(range(len(self._pages), len(self._pages) + len(pages)))
        self._pages += pages
        self.nbytes += sum(page.size for page in pages)
        found = [
            (number << ENTRY_BITS) + np.arange(page.entries)
            for number, page in zip(numbers, pages, strict=True)
        ]
        self._index.add(keys, np.concatenate(found) if found else np.zeros(0, np.int64))
        return numbers

    def _drop(self, numbers: list[int]) -> None:
        """Drops pages that can no longer be read."""
        self.nbytes -= sum(self._pages[n].size for n in numbers if n not in self._unreadable)
        self._unreadable.update(numbers)
        self._index.remove(lambda locations: np.isin(locations >> ENTRY_BITS, numbers))

    def _leave(self, error: UnreachableError) -> None:
        """Gives up the shelf until the next epoch: waiting for it page by page takes longer than
        computing."""
        self._warn(f"{error}; the rows kept there are computed again until the next epoch")
        for numbers in self._files.values():
            self._drop(numbers)
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
        numbers = np.unique(self._index.find(keys) >> ENTRY_BITS).tolist()
        pages = [self._pages[n] for n in numbers if n >= 0 and n not in self._recent]
        self._shelf.expect([page.span for page in pages if page.data is None])

    def read(self, keys: np.ndarray) -> FoundEntries:
        with self._lock:
            self._settle()
            self._touch()
            return self._read(keys)

    def _read(self, keys: np.ndarray) -> FoundEntries:
        locations = self._index.find(keys)
        owner, entry = locations >> ENTRY_BITS, locations & ((1 << ENTRY_BITS) - 1)
        order = np.argsort(owner, kind="stable")
        borders = np.flatnonzero(np.diff(owner[order])) + 1
        wanted = {}
        for which in np.split(order, borders) if len(keys) else []:
            number = int(owner[which[0]])  # negative where a damaged page was dropped just now
            if number >= 0 and number not in self._unreadable:
                wanted[number] = which
        found: FoundEntries = []
        for number, entries in self._entries(list(wanted)):
            which = wanted[number]
            try:
                found.append((which, lend(entries.take(entry[which]))))
            except RecursionError:  # values nested deeper than any that silva writes
                self._warn("a page is nested too deeply; its rows are computed again")
                self._drop([number])
        return found

    def _entries(self, numbers: list[int]) -> Iterator[tuple[int, Entries]]:
        """The pages that can be read, with their entries."""
        stored = []
        for number in numbers:
            page = self._pages[number]
            if number in self._recent:
                self._recent.move_to_end(number)
                yield number, self._recent[number][0]
            elif page.data is not None:
                yield number, page.decode(page.data)
            else:
                stored.append(number)
        found = self._shelf.read([self._pages[number].span for number in stored])
        for number, data in zip(stored, found, strict=True):
            page = self._pages[number]
            try:
                if isinstance(data, OSError):
                    raise data
                entries = page.decode(data)
                if entries.columns.keys() != self._names or len(entries.subs) != self._explodes:
                    raise DamagedError(f"{page.span[0].name}: a page holds other columns")
            except UnreachableError as error:
                self._leave(error)
                return
            except (DamagedError, OSError) as error:
                self._warn(f"{error}; its rows are computed again")
                dropped = [number]
                if isinstance(error, FileNotFoundError):  # with all other pages of its file
                    dropped = next(pages for pages in self._files.values() if number in pages)
                self._drop(dropped)
                continue
            self._remember(number, entries)
            yield number, entries

    def _remember(self, number: int, entries: Entries) -> None:
        """Keeps a page in memory; those used least recently make room for it."""
        size = max(self._pages[number].size, entries.nbytes)
        while self._recent and self._budget.left < size <= self._budget.size:
            self._budget.give_back(self._recent.popitem(last=False)[1][1])
        if self._budget.take(size):
            self._recent[number] = (entries, size)

    # Writing.

    def add(self, keys: np.ndarray, entries: Entries, seconds: float) -> None:
        with self._lock:
            self._settle()
            if time.monotonic() < self._writes_from:
                return
            if self._writer.is_behind:
                self._warn(
                    f"rows come faster than {self._shelf.shown} takes them; those that come "
                    "meanwhile are not kept, and computed again in the next epoch"
                )
                return
            fresh = select_new(self, keys)
            if not len(fresh):
                return
            seconds *= len(fresh) / len(keys)
            pages = self._writer.encode(entries.take(fresh))
            numbers = self._number(pages, keys[fresh])
            self._writer.add(numbers, pages, keys[fresh], seconds)
            self._settle()

    def flush(self) -> None:
        with self._lock:
            self._writer.flush()
            self._settle()

    def close(self) -> None:
        self.flush()
        self._shelf.close()
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        """Takes note of the files whose writing has ended."""
        for upload in self._writer.finished():
            try:
                item = upload.done.result()
                if item is not None:
                    upload.file.stored(item)
                    self._files[item.name] = upload.pages
                    continue
                self._writes_from = time.monotonic() + _FULL_SECONDS
                full, cure = "it is", "raise cache(limit=…)"
                if self._limit is None:
                    full, cure = "its disk is", "free space on the disk"
                self._warn(
                    f"{self._shelf.shown} keeps no more rows: {full} full, and the rows in it are "
                    f"worth as much. To keep more, {cure}, or remove rows with `silva cache rm`"
                )
            except OSError as error:
                self._writes_from = math.inf
                self._warn(f"{error}; rows from here on are not kept")
            for number in upload.pages:
                self._pages[number].data = None
            self._drop(upload.pages)

    def _warn(self, problem: str) -> None:
        """Warns once per store: what follows is usually the same again."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"cache: {problem}", stacklevel=2)
