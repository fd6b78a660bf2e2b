"""An object as a file that prefetches what is read next, or as an array.

Where reads follow each other, the window that is fetched ahead doubles with each of them, up to
`AHEAD` bytes, in requests that run in parallel. A jump of less than `GAP` bytes is still following:
fetching what lies between costs less than another request. Where it is known beforehand which parts
will be read (the columns of a row group), these are fetched, and at most `HOLE` bytes in between.
Small scattered reads (units of lines) fetch whole blocks, and a source caches a few of them.
"""

from __future__ import annotations

import bisect
import io
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

REQUEST_BYTES = 2 << 20
AHEAD = 16 << 20
FIRST = 256 << 10
GAP = 256 << 10
HOLE = 8 << 10
BUFFER = 64 << 10
BLOCK = 256 << 10
BLOCKS_KEPT = 64

Range = tuple[int, int]
"""The first byte, and the one after the last."""


@dataclass(frozen=True)
class _InFlight:
    start: int
    stop: int
    data: Future[list[bytes]]


Fetch = Callable[[int, int], Future[list[bytes]]]
"""Starts to fetch a range."""


class BlockCache:
    """The most recently used blocks of all files of a source; thread-safe."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[int, int], Future[list[bytes]]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, file: int, size: int, fetch: Fetch, start: int, stop: int) -> bytes:
        """The bytes of a range within the file."""
        first, last = start // BLOCK, (stop - 1) // BLOCK
        with self._lock:
            found = [self._get(file, size, fetch, number) for number in range(first, last + 1)]
        data = b"".join(future.result()[0] for future in found)
        return data[start - first * BLOCK : stop - first * BLOCK]

    def _get(self, file: int, size: int, fetch: Fetch, number: int) -> Future[list[bytes]]:
        block = self._cached.pop((file, number), None)
        if block is None or (block.done() and block.exception() is not None):
            block = fetch(number * BLOCK, min((number + 1) * BLOCK, size))
        self._cached[file, number] = block
        while len(self._cached) > BLOCKS_KEPT:
            self._cached.popitem(last=False)
        return block


class RangeReader:
    """Reads ranges of one object: fetches ahead, and keeps what has arrived and is not read yet."""

    def __init__(
        self,
        size: int,
        fetch: Fetch,
        planned: Sequence[Range],
        small: Callable[[int, int], bytes] | None = None,
    ) -> None:
        """`small` reads a small range; without it, just the range itself is fetched."""
        self._size = size
        self._fetch = fetch
        self._small = small
        self._planned = deque(cut for part in joined(planned) for cut in cuts(*part))
        self._follows = not planned
        """Whether to prefetch what follows, since the ranges are not known beforehand."""
        self._cached: list[_InFlight] = []
        self._at = self._window = 0

    def read(self, start: int, stop: int) -> bytes:
        """The bytes of a range within the object."""
        if self._follows:
            follows = 0 <= start - self._at <= (GAP if self._at else 0)
            self._window = min(max(2 * self._window, FIRST), AHEAD) if follows else 0
            self._drop(lambda part: part.stop <= start or (not follows and part.start > stop))
        self._at = stop
        if self._small is not None and not self._window and stop - start <= BLOCK:
            return self._small(start, stop)
        self._cover(start, stop)
        self._look_ahead(stop)
        parts = []
        for part in self._cached:
            if part.start < stop and start < part.stop:
                (data,) = part.data.result()
                first, last = max(start - part.start, 0), min(stop, part.stop) - part.start
                parts.append(data if last - first == len(data) else data[first:last])
        self._drop(lambda part: start < part.stop <= stop)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._planned.clear()
        self._drop(lambda part: True)

    def _cover(self, start: int, stop: int) -> None:
        """Starts to fetch the parts of a range that are not in flight."""
        at = start
        for part in [*self._cached, _InFlight(stop, stop, Future())]:
            if part.start > at:
                for cut in cuts(at, min(part.start, stop)):
                    self._start(*cut)
            at = max(at, part.stop)
            if at >= stop:
                return

    def _look_ahead(self, stop: int) -> None:
        while self._planned and sum(p.stop - p.start for p in self._cached) < AHEAD:
            first, last = self._planned.popleft()
            if not any(p.start < last and first < p.stop for p in self._cached):
                self._start(first, last)
        if self._follows:
            reached = max([stop, *(part.stop for part in self._cached)])
            until = min(stop + self._window, self._size)
            # few requests at once, but not too few
            step = min(max(self._window // 4, FIRST), REQUEST_BYTES)
            while reached + step <= until or reached < until == self._size:
                self._start(reached, min(reached + step, self._size))
                reached += step

    def _start(self, start: int, stop: int) -> None:
        part = _InFlight(start, stop, self._fetch(start, stop))
        bisect.insort(self._cached, part, key=lambda each: each.start)

    def _drop(self, which: Callable[[_InFlight], bool]) -> None:
        for part in self._cached:
            if which(part):
                part.data.cancel()
        self._cached = [part for part in self._cached if not which(part)]


def cuts(start: int, stop: int) -> list[Range]:
    """A range as requests that run in parallel.

    >>> cuts(0, 5 << 20)
    [(0, 2097152), (2097152, 4194304), (4194304, 5242880)]
    """
    return [(at, min(at + REQUEST_BYTES, stop)) for at in range(start, stop, REQUEST_BYTES)]


def joined(ranges: Sequence[Range]) -> list[Range]:
    """Sorts ranges, and joins those with at most `HOLE` bytes between them.

    >>> joined([(50_000, 60_000), (0, 100), (200, 300)])
    [(0, 300), (50000, 60000)]
    """
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start - found[-1][1] <= HOLE:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


class ObjectStream(io.RawIOBase):
    """A file over an object; `read` returns the bytes without another copy."""

    def __init__(self, size: int, ranges: RangeReader) -> None:
        self._size = size
        self._ranges = ranges
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._place = base + offset
        return self._place

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._place + size, self._size)
        if end <= self._place:
            return b""
        data = self._ranges.read(self._place, end)
        self._place = end
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._ranges.close()
        super().close()


class ObjectArray:
    """An array in an object: rows are fetched when they are picked, neighbours together.

    >>> data = np.arange(12, dtype=np.int32).reshape(6, 2)
    >>> def read(file, ranges):
    ...     return [data.tobytes()[first:last] for first, last in ranges]
    >>> array = ObjectArray(read, data.nbytes, 0, data.dtype, data.shape, 0)
    >>> array[np.array([4, 1, 4])].tolist()
    [[8, 9], [2, 3], [8, 9]]
    """

    def __init__(
        self,
        read: Callable[[int, Sequence[Range]], list[bytes]],
        size: int,
        file: int,
        dtype: np.dtype,
        shape: tuple[int, ...],
        offset: int,
    ) -> None:
        if offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize > size:
            raise ValueError("EOF: the array is longer than the file")
        self._read, self._file, self._offset = read, file, offset
        self.dtype, self.shape, self.ndim = dtype, shape, len(shape)
        self._row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def whole(self, order: Literal["C", "F"] = "C") -> np.ndarray:
        stop = self._offset + int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        (data,) = self._read(self._file, [(self._offset, stop)])
        return np.frombuffer(data, self.dtype).reshape(self.shape, order=order)

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        places, inverse = np.unique(rows, return_inverse=True)
        if not len(places) or not self._row:
            return np.empty((len(rows), *self.shape[1:]), self.dtype)
        breaks = np.flatnonzero(np.diff(places) > 1 + HOLE // self._row) + 1
        runs = np.split(places, breaks)
        ranges = [
            (self._offset + int(run[0]) * self._row, self._offset + (int(run[-1]) + 1) * self._row)
            for run in runs
        ]
        parts = [
            np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])[run - run[0]]
            for data, run in zip(self._read(self._file, ranges), runs, strict=True)
        ]
        picked: np.ndarray = np.concatenate(parts)[inverse]
        return picked
