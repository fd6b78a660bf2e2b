"""Large arrays from memory that was used before.

Fresh memory costs a page fault for every 4 KiB, which for a batch of images or embeddings is more
than computing it. `empty` hands out a buffer that an array had before which nobody holds any more:
the last view of it, in whatever library, gives it back.
"""

from __future__ import annotations

import math
import mmap
from collections import deque
from typing import Any

import numpy as np

_LEAST_BYTES = 1 << 20
"""Below this, malloc recycles well enough."""
_MOST_FREE_BYTES = 256 << 20
"""Buffers that wait for their next use; what comes back beyond this is freed."""

_free: dict[int, deque[mmap.mmap]] = {}
# No lock: `__del__` may run anywhere, also while this thread holds one. The deques' own operations
# are atomic, and what waits is counted each time: a running sum would drift.


class _Lease(np.ndarray):
    """All of a buffer. Arrays given out are views of it, so it goes when the last of them does."""

    _buffer: mmap.mmap | None = None

    def __del__(self) -> None:
        buffer = self._buffer
        if buffer is not None and free_bytes() + len(buffer) <= _MOST_FREE_BYTES:
            _free.setdefault(len(buffer), deque()).append(buffer)


def free_bytes() -> int:
    """Bytes that wait for their next use."""
    return sum(size * len(buffers) for size, buffers in list(_free.items()))


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """As `np.empty`, but large arrays may lie in recycled memory.

    >>> empty((2, 3), np.float32).shape
    (2, 3)
    """
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _LEAST_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    lease = _lease(_rounded(nbytes))
    array: np.ndarray = lease.view(np.ndarray)[:nbytes].view(dtype)
    return array.reshape(shape)


def _lease(size: int) -> _Lease:
    buffer = _take(size)
    if buffer is None:
        _drop_one(size)
        buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        buffer.madvise(mmap.MADV_HUGEPAGE)  # a fifth of the time for the first touch
    lease = _Lease((len(buffer),), np.uint8, buffer=buffer)
    lease._buffer = buffer
    return lease


def _take(size: int) -> mmap.mmap | None:
    """The smallest free buffer that will do; one that is twice too large is kept for others."""
    for found in sorted(s for s, buffers in list(_free.items()) if buffers and s < 2 * size):
        if found >= size:
            try:
                return _free[found].popleft()
            except IndexError:  # another thread was first
                continue
    return None


def _drop_one(wanted: int) -> None:
    """Frees a buffer of another size than is wanted now: that one may never be wanted again."""
    for size, buffers in list(_free.items()):
        if size != wanted and buffers:
            try:
                buffers.popleft()
            except IndexError:
                continue
            return


def _rounded(nbytes: int) -> int:
    """The next of eight sizes between two powers of two, so that few sizes serve all."""
    step = 1 << max((nbytes - 1).bit_length() - 3, 0)
    return -(-nbytes // step) * step
