"""New rows on their way to files: gathered in pages, and written once there are enough of them.

The shelf writes a file at once, or in the background where that takes long. Then at most a part of
the memory waits for it; rows that come meanwhile are not kept, so that nobody waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from silva.cache.entries import Entries
from silva.cache.eviction import make_room
from silva.cache.row_files import ENTRY_BITS, NewFile, Page, new_page
from silva.cache.shelf import Item, Shelf
from silva.cache.shelf_index import About, encode_about
from silva.columns.allocation import empty

_PAGE_BYTES = 256 << 10
"""Read for a single row: small enough for shuffled epochs, large enough to be worth a read."""
_SLAB_BYTES = 8 << 20
_LEAST_FILE_BYTES = 1 << 16
_WRITE_SECONDS = 30.0
"""Rows are written after this long, however slowly they come."""


@dataclass(frozen=True, eq=False)
class Upload:
    """A file that is being written."""

    file: NewFile
    pages: list[int]
    """The numbers of its pages in the store."""
    done: Future[Item | None]
    """The result is None where there is no room for the file."""


class FileWriter:
    """Gathers the new pages of one fingerprint and writes them to a shelf as files."""

    def __init__(
        self, shelf: Shelf, fingerprint: str, about: About, limit: int | None, memory: int
    ) -> None:
        """`limit` is what the whole shelf may hold, `memory` what all row stores may hold."""
        self._shelf = shelf
        self._fingerprint = fingerprint
        self._about = about
        self._limit = limit
        self._memory = memory
        share = memory // 8 if limit is None else min(memory // 8, limit // 16)
        self._file_bytes = min(shelf.file_bytes, max(share, _LEAST_FILE_BYTES))
        self._uploads: list[Upload] = []
        self._slab = memoryview(b"")
        """Memory for the next pages."""
        self._start_file()

    def _start_file(self) -> None:
        self._numbers: list[int] = []
        self._pages: list[Page] = []
        self._keys: list[np.ndarray] = []
        self._bytes = 0
        self._seconds = 0.0
        self._since = time.monotonic()

    @property
    def bytes_uploading(self) -> int:
        """Bytes of the files that are being written, or that `finished` has not returned yet."""
        return sum(upload.file.size for upload in self._uploads)

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the shelf that nothing may be added."""
        return self.bytes_uploading >= max(self._memory // 4, 2 * self._file_bytes)

    def encode(self, entries: Entries) -> list[Page]:
        """The entries as pages in memory."""
        step = max(1, len(entries) * _PAGE_BYTES // max(entries.nbytes, 1))
        step = min(step, 1 << ENTRY_BITS)
        starts = range(0, len(entries), step)
        return [new_page(entries.slice(i, i + step), self._allocate) for i in starts]

    def add(
        self, numbers: Iterable[int], pages: list[Page], keys: np.ndarray, seconds: float
    ) -> None:
        """Adds encoded pages to the next file; writes it if it is large or old enough."""
        if not self._pages:
            self._since = time.monotonic()
        self._numbers += numbers
        self._pages += pages
        self._keys.append(keys)
        self._bytes += sum(page.size for page in pages)
        self._seconds += seconds
        if self._bytes >= self._file_bytes or time.monotonic() - self._since > _WRITE_SECONDS:
            self.flush()

    def _allocate(self, size: int) -> memoryview:
        """Memory for a page: a piece of a slab, which is recycled when all its pages are gone."""
        if len(self._slab) < size:
            slab = empty((max(size, min(_SLAB_BYTES, self._file_bytes)),), np.uint8)
            self._slab = slab.data
        piece, self._slab = self._slab[:size], self._slab[size:]
        return piece

    def flush(self) -> None:
        """Starts to write what was added."""
        if not self._pages:
            return
        self._slab = memoryview(b"")
        file = NewFile(self._fingerprint, self._pages, np.concatenate(self._keys), self._seconds)
        done = self._shelf.submit(lambda: self._write(file))
        self._uploads.append(Upload(file, self._numbers, done))
        self._start_file()

    def _write(self, file: NewFile) -> Item | None:
        """Writes a file if the shelf has room for it. It may run in the background, so it touches
        nothing that changes."""
        shelf, fingerprint = self._shelf, self._fingerprint
        with shelf.locked():
            if not make_room(shelf, file.size, file.seconds, fingerprint, self._limit):
                return None
            shelf.write_about(fingerprint, encode_about(self._about))
            shelf.reserve(fingerprint, file.name, file.size)
        return shelf.write(fingerprint, file.name, file.parts)

    def finished(self) -> list[Upload]:
        """The files whose writing has ended since the last call."""
        found = [upload for upload in self._uploads if upload.done.done()]
        self._uploads = [upload for upload in self._uploads if upload not in found]
        return found
