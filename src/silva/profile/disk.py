"""How fast files come from where they lie, when the system does not have them in memory.

Pieces of the very files are read past the system's memory, several at once, as workers would: so
the answer is about this disk and about files of this size, whether it turns them or answers many at
once. Nothing is written, and nothing that the system remembers is lost. It is asked once a process
for each disk, beside the run, and not known until then.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import threading
import time

import numpy as np

from silva.io.paths import LocalFiles

_PIECE = 1 << 20
_PIECES = 48
_READERS = 8
_ALIGN = 4096
_SECONDS = 1.0
"""At most."""

_known: dict[int | None, float] = {}
"""By disk: seconds a byte."""
_asked: dict[int | None, object] = {}
"""By disk: who asked first."""


class Disk:
    """
    >>> import tempfile
    >>> from silva.io.paths import local_files
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes(1 << 20))
    ...     file.flush()
    ...     0 <= Disk(local_files(file.name)).measured() < 1
    True
    """

    def __init__(self, files: LocalFiles) -> None:
        self._files = files

    @property
    def seconds(self) -> float:
        """That a byte takes; 0 while that is not known. Who asks first has it measured."""
        me = object()
        if _asked.setdefault(self._device, me) is me:
            with contextlib.suppress(RuntimeError):  # no thread to be had: it stays unknown
                threading.Thread(target=self._measure, name="silva-disk", daemon=True).start()
        return _known.get(self._device, 0.0)

    @functools.cached_property
    def _device(self) -> int | None:
        try:
            return os.stat(self._path(0)).st_dev
        except (OSError, IndexError):
            return None

    def _measure(self) -> None:
        _known[self._device] = self.measured()

    def measured(self) -> float:
        """Seconds a byte, now; 0 where files cannot be read so."""
        if not hasattr(os, "O_DIRECT"):
            return 0.0
        pieces = self._pieces()
        done = [0] * _READERS
        began = time.perf_counter()

        def read(number: int) -> None:
            room = memoryview(mmap.mmap(-1, _PIECE))  # which begins where a page does
            with contextlib.suppress(OSError):
                for path, start, length in pieces[number::_READERS]:
                    if time.perf_counter() - began > _SECONDS:
                        return
                    done[number] += _read(path, start, room[:length])

        threads = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(_READERS)]
        started = []
        with contextlib.suppress(RuntimeError):  # as many as can be had
            for thread in threads:
                thread.start()
                started.append(thread)
        for thread in started:
            thread.join()
        return (time.perf_counter() - began) / sum(done) if sum(done) else 0.0

    def _path(self, file: int) -> str:
        return os.path.join(self._files.folder, self._files.listing.paths[file])

    def _pieces(self) -> list[tuple[str, int, int]]:
        """(path, first byte, length): here and there, of large files more than of small ones."""
        sizes = self._files.listing.sizes
        ends = np.cumsum(sizes)
        if not len(ends) or not ends[-1]:
            return []
        found = []
        for place in np.random.default_rng(0).integers(0, ends[-1], _PIECES).tolist():
            file = int(np.searchsorted(ends, place, side="right"))
            size = int(sizes[file])
            latest = max(size - _PIECE, 0)
            start = min(place - (int(ends[file]) - size), latest) // _ALIGN * _ALIGN
            length = min(-(-(size - start) // _ALIGN) * _ALIGN, _PIECE)
            found.append((self._path(file), start, length))
        return list(dict.fromkeys(found))


def _read(path: str, start: int, room: memoryview) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        return os.preadv(descriptor, [room], start)
    finally:
        os.close(descriptor)
