"""An array in an object: rows are fetched when they are picked, neighbours together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from silva.io.objects.stream import HOLE, Range


class ObjectArray:
    """Picks rows like an array, by a slice or by positions.

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
