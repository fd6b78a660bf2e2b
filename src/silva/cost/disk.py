"""The speed at which files are read from their disk, when they are not in the page cache.

Pieces of the files themselves are read past the page cache (O_DIRECT), several at once, as workers
do: so the figure holds for this disk and for files of this size, on rotating disks and on those
that serve many requests at once. Nothing is written, and the page cache stays as it is. Each disk
is measured once per process, on another thread beside the run, and again when what a row costs has
changed; until then its speed is not known.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import threading
import time

import numpy as np

from silva.cost.costs import ENOUGH_BLOCKS
from silva.cost.experiment import SECONDS
from silva.io.paths import LocalFiles
from silva.lifetime import Thread, join_all

_PIECE = 1 << 20
"""Bytes that are read at once: more than most files of a dataset have."""
_READERS = 8
"""Readers at the same time, as many as a disk needs to be busy."""

_known: dict[int | None, float] = {}
"""Seconds per byte, by disk."""
_asked: dict[int | None, object] = {}
"""A token of the `Disk` that measures, by disk."""


class Disk:
    """The disk that holds the files of a source.

    >>> import tempfile
    >>> from silva.io.file_source import files_at
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes(1 << 20))
    ...     file.flush()
    ...     0 <= Disk(files_at(file.name)).measured() < 1
    True
    """

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self._measuring: Thread | None = None
        self._closed = threading.Event()

    @property
    def seconds(self) -> float:
        """Seconds per byte; 0 while that is not known. The first use starts the measurement."""
        me = object()
        if _asked.setdefault(self._device, me) is me:
            self._closed.clear()
            self._measuring = Thread(self._measure, "disk")
            with contextlib.suppress(RuntimeError):  # without a thread it stays unknown
                self._measuring.start()
        return _known.get(self._device, 0.0)

    def measure_again(self) -> None:
        """The next use starts another measurement: others may use the disk now, or no longer. Until
        it is done, the latest one holds."""
        if self._device in _known:
            _asked.pop(self._device, None)

    @functools.cached_property
    def _device(self) -> int | None:
        try:
            return os.stat(self._path(0)).st_dev
        except (OSError, IndexError):
            return None

    def _measure(self) -> None:
        seconds = self.measured()
        if self._closed.is_set():
            _asked.pop(self._device, None)  # another run may measure it
        else:
            _known[self._device] = seconds

    def close(self) -> None:
        """Cancels a measurement."""
        measuring, self._measuring = self._measuring, None
        if measuring is not None:
            self._closed.set()
            join_all([measuring])

    def measured(self) -> float:
        """Measures the seconds per byte; 0 if the files cannot be read past the page cache."""
        if not hasattr(os, "O_DIRECT"):
            return 0.0
        pieces = self._pieces()
        done = [0] * _READERS
        began = time.perf_counter()

        def read(number: int) -> None:
            room = memoryview(mmap.mmap(-1, _PIECE))  # aligned to a page, as O_DIRECT requires
            with contextlib.suppress(OSError):
                for path, start, length in pieces[number::_READERS]:
                    if self._closed.is_set() or time.perf_counter() - began > SECONDS:
                        return
                    done[number] += _read(path, start, room[:length])

        threads = [Thread(read, f"disk-{n}", (n,)) for n in range(_READERS)]
        started = []
        with contextlib.suppress(RuntimeError):  # as many as are available
            for thread in threads:
                thread.start()
                started.append(thread)
        for thread in started:
            thread.join()
        return (time.perf_counter() - began) / sum(done) if sum(done) else 0.0

    def _path(self, file: int) -> str:
        return os.path.join(self._files.folder, self._files.listing.paths[file])

    def _pieces(self) -> list[tuple[str, int, int]]:
        """Random pieces (path, first byte, length), by size: more of large files than of small
        ones."""
        sizes = self._files.listing.sizes
        ends = np.cumsum(sizes)
        if not len(ends) or not ends[-1]:
            return []
        found = []
        rng, count = np.random.default_rng(0), _READERS * ENOUGH_BLOCKS
        for place in rng.integers(0, ends[-1], count).tolist():
            file = int(np.searchsorted(ends, place, side="right"))
            size = int(sizes[file])
            latest = max(size - _PIECE, 0)
            start = min(place - (int(ends[file]) - size), latest) // mmap.PAGESIZE * mmap.PAGESIZE
            length = min(-(-(size - start) // mmap.PAGESIZE) * mmap.PAGESIZE, _PIECE)
            found.append((self._path(file), start, length))
        return list(dict.fromkeys(found))


def _read(path: str, start: int, room: memoryview) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        return os.preadv(descriptor, [room], start)
    finally:
        os.close(descriptor)
