"""Buffers in the memory of somebody else's store, used where they lie; and how many are.

What a batch keeps cannot be used again by the store. So there is a bound, beyond which buffers are
copied: keeping batches (`list(loader)`) is allowed.
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
        """Sizes of what came back: by whatever thread dropped the last array, so without a lock."""

    @property
    def nbytes(self) -> int:
        """Bytes that arrays of ours lie in."""
        while self._returned:
            self._taken -= self._returned.popleft()
        return self._taken

    def take(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """The buffers as they are, to be written too; or copies, where too much is kept."""
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
    """A buffer marked as read-only, as an array that may be written: it has no other reader."""

    def __init__(self, buffer: np.ndarray) -> None:
        self._buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What numpy asks for: the place, and that it may be written."""
        buffer = self._buffer
        where = {"data": (buffer.ctypes.data, False), "shape": buffer.shape}
        return {**where, "typestr": "|u1", "version": 3}
