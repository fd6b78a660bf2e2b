"""Where large arrays come from: recycled memory, or their part of a batch.

Fresh memory costs a page fault for every 4 KiB, which for a batch of images or embeddings is more
than computing it. `empty` reuses the buffer of an array that is gone: the last view of it, in
whatever library, gives the buffer back.

Where a row takes long, blocks are smaller than batches, and their results would be copied into the
batch once more. So a task may be given its *slot* in a batch (`filling`): an operator that makes
one large array for the rows of its block (`empty_rows`) then gets that part of the batch's array.
Joining neighbours only compares their addresses (`join_adjacent`).

While a service has readers on this machine (`begin_sharing`), new buffers are anonymous files
(memfd), which another process can read where they lie: a batch is made in shared memory and not
copied there.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_LEAST_BYTES = 1 << 20
"""Below this, malloc recycles well enough."""
MOST_FREE_BYTES = 256 << 20
"""Free buffers that are kept for their next use; beyond this they are released."""
_MOST_TIMES = 4
"""How many times as large as an array a free buffer may be that is used for it: batches that are
padded to their longest row differ by less, and share their buffers."""
_LOOSE_USES = 2
"""Uses in a row by arrays of at most half its size, after which a buffer gives back the memory that
they leave: blocks have become smaller."""
_FILLED = 1.25
"""Bytes of a buffer per byte of an array that fills it; sizes are rounded up by at most 1/8."""
_MOST_SHARED = 512
"""Buffers that are files at a time; each needs two file descriptors."""


class _Buffer:
    """Memory that arrays use in turn."""

    def __init__(self, size: int, file: int | None) -> None:
        """`file`: the memfd in which the memory lies, if it is shared."""
        self.file, self.recyclable = file, True
        self._loose = 0
        if file is None:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self.memory = mmap.mmap(file, size)
            _shared.add(self)
        self.memory.madvise(mmap.MADV_HUGEPAGE)  # a fifth of the time for the first touch

    def __len__(self) -> int:
        return len(self.memory)

    def fit(self, size: int) -> None:
        """Notes that an array of this size will use it."""
        if self.file is not None:  # its memory was reserved; readers map all of it
            return
        self._loose = self._loose + 1 if 2 * size <= len(self) else 0
        if self._loose == _LOOSE_USES:
            self.memory.madvise(mmap.MADV_DONTNEED, size, len(self) - size)  # whole pages
            self._loose = 0

    def __del__(self) -> None:
        if self.file is not None:
            os.close(self.file)


_free: dict[int, deque[_Buffer]] = {}
# No lock: `__del__` may run anywhere, also while this thread holds one. The deques' own operations
# are atomic, and free bytes are counted each time: a running sum would drift.
_shared: weakref.WeakSet[_Buffer] = weakref.WeakSet()
"""The buffers that are files."""
_sharers: list[object] = []
"""Those who asked for buffers that are files."""


class _Lease(np.ndarray):
    """All of a buffer. Arrays handed out are views of it, so it dies with the last of them."""

    _buffer: _Buffer | None = None

    def __del__(self) -> None:
        buffer = self._buffer
        if buffer is None or not buffer.recyclable:
            return
        if free_bytes() + len(buffer) <= MOST_FREE_BYTES:
            _free.setdefault(len(buffer), deque()).append(buffer)


def free_bytes() -> int:
    """Bytes of the free buffers."""
    return sum(size * len(buffers) for size, buffers in list(_free.items()))


def release_free(most: float) -> None:
    """Releases free buffers until the others have at most so many bytes."""
    for buffers in list(_free.values()):
        while buffers and free_bytes() > most:
            with contextlib.suppress(IndexError):  # another thread was first
                buffers.popleft()


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
        buffer = _Buffer(size, _new_file(size) if _sharers else None)
    buffer.fit(size)
    lease = _Lease((len(buffer),), np.uint8, buffer=buffer.memory)
    lease._buffer = buffer
    return lease


def _new_file(size: int) -> int | None:
    """A memfd of this size; None if the system has none left."""
    most = min(_MOST_SHARED, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8)
    if len(_shared) >= most:
        return None
    try:
        file = os.memfd_create("silva", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    try:
        os.posix_fallocate(file, 0, size)  # without memory: an error here, no bus error later
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(file)
        return None
    return file


def _take(size: int) -> _Buffer | None:
    """The smallest free buffer that is large enough, but not too large."""
    most = _MOST_TIMES * size
    for found in sorted(s for s, buffers in list(_free.items()) if buffers and s < most):
        if found >= size:
            try:
                return _free[found].popleft()
            except (IndexError, KeyError):  # another thread was first
                continue
    return None


def _drop_one(wanted: int) -> None:
    """Releases a buffer of another size than is wanted now: it may never be wanted again."""
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


class SharedPlace(NamedTuple):
    """Where an array lies in a file that another process may read."""

    file: int
    offset: int


def begin_sharing(owner: object) -> None:
    """Makes new buffers files, until `owner` ends it; does nothing where there are no memfds."""
    if hasattr(os, "memfd_create"):
        _sharers.append(owner)
        _free.clear()


def end_sharing(owner: object) -> None:
    with contextlib.suppress(ValueError):  # it never began
        _sharers.remove(owner)
        _free.clear()


def is_sharing() -> bool:
    return bool(_sharers)


def shared_place(array: np.ndarray) -> SharedPlace | None:
    """The place of a contiguous array in a file; None for other memory."""
    lease = _lease_of(array)
    if lease is None or lease._buffer is None or lease._buffer.file is None:
        return None
    start = array.__array_interface__["data"][0] - lease.__array_interface__["data"][0]
    return SharedPlace(lease._buffer.file, start)


def never_recycle(array: np.ndarray) -> None:
    """Frees the buffer of an array after its last use, since another process may still read it."""
    lease = _lease_of(array)
    if lease is not None and lease._buffer is not None:
        lease._buffer.recyclable = False


def fills_buffer(array: np.ndarray) -> bool:
    """Whether an array takes up most of a recycled buffer: to keep it then costs little more memory
    than a copy."""
    lease = _lease_of(array)
    return lease is not None and lease.nbytes <= _FILLED * array.nbytes


def _lease_of(array: np.ndarray) -> _Lease | None:
    found: Any = array
    while found is not None and not isinstance(found, _Lease):
        found = getattr(found, "base", None)
    return found


class BatchBuffer:
    """The arrays of one batch, allocated when the first block asks for them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def part(
        self, number: int, slot: BatchSlot, shape: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray | None:
        """The rows of a slot in the batch's array of that number; None where they do not fit."""
        with self._lock:
            whole = self._arrays.get(number)
            if whole is None:
                whole = self._arrays[number] = empty((self._rows, *shape), dtype)
        if whole.shape[1:] != shape or whole.dtype != dtype:
            return None
        return whole[slot.start : slot.start + slot.rows]


@dataclass(frozen=True)
class BatchSlot:
    """The rows of a batch that a block fills."""

    buffer: BatchBuffer
    start: int
    rows: int


class _Current(threading.local):
    """The slot that this thread fills, and how many arrays it has asked for."""

    slot: BatchSlot | None = None
    number = 0


_current = _Current()


@contextmanager
def filling(slot: BatchSlot | None) -> Iterator[None]:
    """While this is entered, large arrays for all rows of the block are parts of its batch."""
    _current.slot, _current.number = slot, 0
    try:
        yield
    finally:
        _current.slot = None


def empty_rows(rows: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array for so many rows of one shape: the part of the batch that the block fills, if any.

    >>> empty_rows(2, (3,), np.float32).shape
    (2, 3)
    """
    slot = _current.slot
    if slot is not None and slot.rows == rows:
        part = slot.buffer.part(_current.number, slot, shape, np.dtype(dtype))
        _current.number += 1
        if part is not None:
            return part
    return empty((rows, *shape), dtype)


def join_adjacent(arrays: list[np.ndarray]) -> np.ndarray | None:
    """One array over all of these where they lie one after the other in one buffer, else None.

    The strides of an array of one row, or of none, say nothing: those of a reversed view are
    negative, and would lead out of the buffer.
    """
    first = arrays[0]
    base, end = first.base, first.__array_interface__["data"][0]
    if base is None:
        return None
    for array in arrays:
        if array.base is not base or not array.flags.c_contiguous:
            return None
        if array.__array_interface__["data"][0] != end:
            return None
        end += array.nbytes
    shape = (sum(map(len, arrays)), *first.shape[1:])
    strides = [first.itemsize * math.prod(shape[axis:]) for axis in range(1, len(shape) + 1)]
    return np.lib.stride_tricks.as_strided(first, shape, strides)
