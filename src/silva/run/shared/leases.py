"""Arrays over buffers of Ray's object store, up to a limit in bytes.

The store cannot free a buffer while a batch uses it. Above the limit, buffers are copied, so that a
program may keep all batches (`list(loader)`).
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np


class Leases:
    """
    >>> leases = Leases(most=8)
    >>> (kept,) = leases.take([np.arange(8, dtype=np.uint8)])
    >>> kept[0] = 7  # nobody else reads it
    >>> leases.nbytes
    8
    >>> del kept
    >>> leases.nbytes
    0
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._returned: deque[int] = deque()
        """Sizes of returned buffers; appended by the thread that drops the last array, without a
        lock."""

    @property
    def nbytes(self) -> int:
        """Bytes of buffers in use."""
        while self._returned:
            self._taken -= self._returned.popleft()
        return self._taken

    def take(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """The buffers as writable arrays without a copy; copies if too much is in use."""
        wanted = sum(buffer.nbytes for buffer in buffers)
        if self.nbytes + wanted > self._most:
            return [buffer.copy() for buffer in buffers]
        self._taken += wanted
        return [self._lent(buffer) for buffer in buffers]

    def _lent(self, buffer: np.ndarray) -> np.ndarray:
        whole = _Whole(buffer)
        weakref.finalize(whole, self._returned.append, buffer.nbytes).atexit = False
        return np.asarray(whole)


class _Whole:
    """Makes a read-only buffer writable: it has no other reader."""

    def __init__(self, buffer: np.ndarray) -> None:
        self._buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The address for numpy, marked as writable."""
        buffer = self._buffer
        where = {"data": (buffer.ctypes.data, False), "shape": buffer.shape}
        return {**where, "typestr": "|u1", "version": 3}
