"""Shared memory that one process writes and another reads where it lies.

Shared buffers are anonymous (memfd): nothing has a name in the file system, so nothing is left
behind when a process is killed. The writer has an `Arena` of them and the reader maps each once
(`Mapped`). A shared buffer is used again when every array over it is gone; the reader then names it
to the writer. Until then its pages are the reader's to give back to the system.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from silva.columns.allocation import empty

SMALL = 64 * 1024
"""Bytes of all buffers of a message below which no shared buffer is used."""
_ALIGN = 64
_LOOSE_USES = 2
"""Uses in a row of half a buffer at most, after which its other pages are released."""
_SPARE = 8
_SPARE_BYTES = 64 << 20
"""A buffer larger than this, and more than `_SPARE` times as large as the messages that are sent
now, is freed: one huge row must not hold its memory for ever."""


class FreeBuffer(NamedTuple):
    """A shared buffer that its writer may use again."""

    number: int
    emptied: bool
    """Whether its pages went back to the system."""


class SharedBuffer:
    """Shared memory that one process writes; it grows and never shrinks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.fd = os.memfd_create("silva", os.MFD_CLOEXEC)
        self.size = 0
        self.used = 0
        self.pages = 0
        """Bytes from its beginning that have memory: less than its size after it was emptied."""
        self.announced = 0
        """The size that the reader knows of."""
        self._loose = 0
        self._memory: mmap.mmap | None = None
        self._maps: list[tuple[int, np.ndarray]] = []

    def grow(self, size: int) -> None:
        """Makes room for `size` bytes; raises OSError if the system has none, instead of a bus
        error later."""
        if size <= self.pages:
            return
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.posix_fallocate(self.fd, self.pages, size - self.pages)
        self.pages = size
        if size <= self.size:
            return
        self._memory = mmap.mmap(self.fd, size)
        view = np.frombuffer(self._memory, dtype=np.uint8)
        self._maps.append((view.ctypes.data, view))
        self.size = size

    def empty(self) -> None:
        """Gives its pages back to the system; nobody reads it any more."""
        if self._memory is not None and _remove_pages(self._memory):
            self.pages = 0

    def fit(self, size: int) -> None:
        """Gives the pages beyond `size` back to the system if half of them were enough
        several times in a row: blocks have become smaller."""
        self._loose = self._loose + 1 if SMALL < 2 * size <= self.pages else 0
        if self._loose == _LOOSE_USES and self._memory is not None:
            end = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            if _remove_pages(self._memory, end):
                self.pages = end
            self._loose = 0

    def reset(self) -> None:
        self.used = 0
        del self._maps[:-1]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array in the buffer if it is large and the system has memory, else on the heap."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        try:
            self.grow(self.used + size)
        except OSError:
            return np.empty(shape, dtype)
        start = self.used
        self.used = -(-(start + size) // _ALIGN) * _ALIGN
        view = self._maps[-1][1][start : start + size]
        return view.view(dtype).reshape(shape)

    def offset_of(self, address: int, size: int) -> int | None:
        """The offset of the memory at `address` in the buffer; None if it lies elsewhere."""
        for base, view in self._maps:
            if base <= address and address + size <= base + len(view):
                return address - base
        return None

    def write(self, data: Any, start: int) -> None:
        view = self._maps[-1][1]
        view[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def close(self) -> None:
        os.close(self.fd)


class Arena:
    """The shared buffers that one process writes into."""

    def __init__(self) -> None:
        self._buffers: dict[int, SharedBuffer] = {}
        self._free: list[SharedBuffer] = []
        self._taking = threading.Lock()
        """Held while the list of free buffers is used: another thread may release them."""
        self._expected = 0

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory that this process holds."""
        return sum(buffer.pages for buffer in self._buffers.values())

    def take(self) -> SharedBuffer | None:
        """A free buffer, as large as the last message needed; None if the system has no memory."""
        try:
            with self._taking:
                buffer = self._unused()
        except OSError:
            return None
        buffer.reset()
        buffer.fit(self._expected)
        with contextlib.suppress(OSError):
            buffer.grow(self._expected)
        return buffer

    def _unused(self) -> SharedBuffer:
        if not self._free:
            buffer = SharedBuffer(len(self._buffers) + 1)
            self._buffers[buffer.number] = buffer
            return buffer
        buffer = max(self._free, key=lambda s: (s.pages, s.size))
        if buffer.size > max(_SPARE * self._expected, _SPARE_BYTES):
            fresh = SharedBuffer(buffer.number)
            buffer.close()
            self._buffers[buffer.number] = fresh
            self._free.remove(buffer)
            return fresh
        self._free.remove(buffer)
        return buffer

    def place(
        self, buffer: SharedBuffer, views: list[memoryview], sizes: list[int]
    ) -> list[int] | None:
        """Copies the views that are not in the buffer yet into it; returns the offsets, or None if
        there is no room."""
        offsets: list[int | None] = []
        end = buffer.used
        for view, size in zip(views, sizes, strict=True):
            at = buffer.offset_of(_address(view), size) if size else 0
            if at is None:
                end = -(-(end + size) // _ALIGN) * _ALIGN
            offsets.append(at)
        try:
            buffer.grow(end)
        except OSError:
            return None
        placed: list[int] = []
        for view, size, at in zip(views, sizes, offsets, strict=True):
            if at is None:
                at = buffer.used
                buffer.write(view, at)
                buffer.used = -(-(at + size) // _ALIGN) * _ALIGN
            placed.append(at)
        self._expected = buffer.used
        return placed

    def put_back(self, number: int, emptied: bool = False) -> None:
        buffer = self._buffers[number]
        if emptied:
            buffer.pages = 0
        with self._taking:
            self._free.append(buffer)

    def free_bytes(self) -> int:
        """Bytes of the free buffers."""
        with self._taking:
            return sum(buffer.pages for buffer in self._free)

    def release_free(self, most: float) -> None:
        """Gives the pages of free buffers back to the system until the others have at most so many
        bytes."""
        with self._taking:
            kept = sum(buffer.pages for buffer in self._free)
            for buffer in self._free:
                if kept <= most:
                    return
                kept -= buffer.pages
                buffer.empty()

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.close()
        self._buffers.clear()
        self._free.clear()


class Mapped:
    """The shared buffers that another process writes into, mapped for reading."""

    def __init__(self) -> None:
        self.leased: set[int] = set()
        """The shared buffers that arrays of this process lie in."""
        self._maps: dict[int, mmap.mmap] = {}
        self._pages: dict[int, int] = {}
        """For each buffer, the bytes from its beginning that the latest message has used; 0 after
        it was emptied."""
        self._released: deque[int] = deque()
        """The buffers that are free again and were not named to their writer yet. No lock: any
        thread may drop the last array over one."""
        self._emptied: deque[int] = deque()
        """The same, without pages."""

    def __len__(self) -> int:
        return len(self._maps)

    def attach(self, number: int, size: int, fd: int) -> None:
        """Maps a buffer that is new or has grown; the descriptor may be closed afterwards."""
        self._maps[number] = mmap.mmap(fd, size)

    def views(self, number: int, sizes: list[int], offsets: list[int]) -> list[memoryview]:
        """Views of arrays in a shared buffer, free again when all arrays over them are gone."""
        lease = np.frombuffer(self._maps[number], dtype=np.uint8)
        self.leased.add(number)
        self._use(number, sizes, offsets)
        weakref.finalize(lease, self._release, number).atexit = False
        view = memoryview(lease)  # type: ignore[arg-type]
        return [view[o : o + n] for o, n in zip(offsets, sizes, strict=True)]

    def copies(self, number: int, sizes: list[int], offsets: list[int]) -> list[Any]:
        """Copies of arrays in a shared buffer, which is free at once."""
        whole = np.frombuffer(self._maps[number], dtype=np.uint8)
        copies = []
        for offset, size in zip(offsets, sizes, strict=True):
            copies.append(empty((size,), np.uint8))
            copies[-1][:] = whole[offset : offset + size]
        self._use(number, sizes, offsets)
        self._released.append(number)
        return copies

    def _use(self, number: int, sizes: list[int], offsets: list[int]) -> None:
        self._pages[number] = max(map(sum, zip(offsets, sizes, strict=True)), default=0)

    def _release(self, number: int) -> None:
        """Called by the thread that drops the last array."""
        self.leased.discard(number)
        self._released.append(number)

    def name_free(self, most: int | None = None) -> list[FreeBuffer]:
        """Shared buffers that are free again, to be named to their writer; at most so many, those
        with pages first."""
        found: list[FreeBuffer] = []
        for emptied, numbers in ((False, self._released), (True, self._emptied)):
            while numbers and (most is None or len(found) < most):
                with contextlib.suppress(IndexError):  # `release_free` was first
                    found.append(FreeBuffer(numbers.pop(), emptied))
        return found

    def free_bytes(self) -> int:
        """Bytes of the shared buffers that are free and were not named to their writer yet."""
        total = 0
        for at in range(len(self._released)):
            with contextlib.suppress(IndexError, KeyError):  # named, or cleared, just now
                total += self._pages[self._released[at]]
        return total

    def release_free(self, most: float) -> None:
        """Gives the pages of free buffers back to the system until the others have at most so many
        bytes."""
        while self.free_bytes() > most:
            try:
                number = self._released.popleft()
            except IndexError:  # named just now
                return
            memory = self._maps.get(number)
            if memory is None:  # cleared just now
                return
            if not _remove_pages(memory):
                self._released.append(number)
                return
            self._pages[number] = 0
            self._emptied.append(number)

    def clear(self) -> None:
        self._maps.clear()


def _remove_pages(memory: mmap.mmap, start: int = 0) -> bool:
    """Gives the pages of a shared buffer, from `start` on, back to the system; False where the
    system cannot."""
    try:
        memory.madvise(mmap.MADV_REMOVE, start)
    except OSError:
        return False
    return True


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)
