"""Shared memory that one process writes and another reads where it lies.

Shared buffers are anonymous (memfd): nothing has a name in the file system, so nothing is left
behind when a process is killed. The writer has an `Arena` of them and the reader maps each once
(`Mapped`). A shared buffer is used again when every array over it is gone; the reader then names it
to the writer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from collections import deque
from typing import Any

import numpy as np

SMALL = 64 * 1024
"""Bytes of all buffers of a message below which no shared buffer is used."""
_ALIGN = 64
_SPARE = 8
_SPARE_BYTES = 64 << 20
"""A buffer larger than this, and more than `_SPARE` times as large as the messages that are sent
now, is freed: one huge row must not hold its memory for ever."""


class SharedBuffer:
    """Shared memory that one process writes; it grows and never shrinks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.fd = os.memfd_create("silva", os.MFD_CLOEXEC)
        self.size = 0
        self.used = 0
        self.announced = 0
        """The size that the reader knows of."""
        self._maps: list[tuple[int, np.ndarray]] = []

    def grow(self, size: int) -> None:
        """Makes room for `size` bytes; raises OSError if the system has none, instead of a bus
        error later."""
        if size <= self.size:
            return
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.posix_fallocate(self.fd, 0, size)
        view = np.frombuffer(mmap.mmap(self.fd, size), dtype=np.uint8)
        self._maps.append((view.ctypes.data, view))
        self.size = size

    def reset(self) -> None:
        self.used = 0
        del self._maps[:-1]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array in the buffer if there is room, else on the heap."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size < SMALL or self.used + size > self.size:
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
        self._expected = 0

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory that this process holds."""
        return sum(buffer.size for buffer in self._buffers.values())

    def take(self) -> SharedBuffer | None:
        """A free buffer, as large as the last message needed; None if the system has no memory."""
        try:
            buffer = self._unused()
        except OSError:
            return None
        buffer.reset()
        with contextlib.suppress(OSError):
            buffer.grow(self._expected)
        return buffer

    def _unused(self) -> SharedBuffer:
        if not self._free:
            buffer = SharedBuffer(len(self._buffers) + 1)
            self._buffers[buffer.number] = buffer
            return buffer
        buffer = max(self._free, key=lambda s: s.size)
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

    def put_back(self, number: int) -> None:
        self._free.append(self._buffers[number])

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
        self._maps: dict[int, np.ndarray] = {}
        self._released: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._maps)

    def attach(self, number: int, size: int, fd: int) -> None:
        """Maps a buffer that is new or has grown; the descriptor may be closed afterwards."""
        self._maps[number] = np.frombuffer(mmap.mmap(fd, size), dtype=np.uint8)

    def views(self, number: int, sizes: list[int], offsets: list[int]) -> list[memoryview]:
        """Views of arrays in a shared buffer, free again when all arrays over them are gone."""
        lease = self._maps[number][:]
        self.leased.add(number)
        weakref.finalize(lease, self._release, number).atexit = False
        view = memoryview(lease)  # type: ignore[arg-type]
        return [view[o : o + n] for o, n in zip(offsets, sizes, strict=True)]

    def copies(self, number: int, sizes: list[int], offsets: list[int]) -> list[Any]:
        """Copies of arrays in a shared buffer, which is free at once."""
        whole = self._maps[number]
        copies = [whole[o : o + n].copy() for o, n in zip(offsets, sizes, strict=True)]
        self._released.append(number)
        return copies

    def _release(self, number: int) -> None:
        """Called by the thread that drops the last array."""
        self.leased.discard(number)
        self._released.append(number)

    def released(self) -> list[int]:
        """The shared buffers that became free since the last call, to be named to their writer."""
        return [self._released.popleft() for _ in range(len(self._released))]

    def clear(self) -> None:
        self._maps.clear()


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)
