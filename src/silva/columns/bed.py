"""A batch that several blocks fill, each its own rows of it.

Blocks are smaller than batches where a row takes long: then their results would be copied into the
batch once more. Whoever runs a block says where in which batch it belongs (`lying`); an operator
that makes one large array for the rows of its block (`empty_rows`) gets that part of the batch.
Joining neighbours is then no more than a look at their addresses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.recycle import empty

_here = threading.local()


class Bed:
    """The arrays of one batch, made when the first block asks for them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def part(self, number: int, spot: Spot, shape: tuple[int, ...], dtype: Any) -> Any:
        """The rows of a spot in the batch's array of that number; None where they do not fit."""
        with self._lock:
            whole = self._arrays.get(number)
            if whole is None:
                whole = self._arrays[number] = empty((self._rows, *shape), dtype)
        if whole.shape[1:] != shape or whole.dtype != dtype:
            return None
        return whole[spot.start : spot.start + spot.rows]


@dataclass(frozen=True)
class Spot:
    """Where in a batch the rows of a block lie."""

    bed: Bed
    start: int
    rows: int


@contextmanager
def lying(spot: Spot | None) -> Iterator[None]:
    """While this is entered, large arrays for all rows of the block are parts of its batch."""
    _here.spot, _here.number = spot, 0
    try:
        yield
    finally:
        _here.spot = None


def empty_rows(rows: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array for so many rows of one shape, where the block's batch has it if there is one.

    >>> empty_rows(2, (3,), np.float32).shape
    (2, 3)
    """
    spot = getattr(_here, "spot", None)
    if spot is not None and spot.rows == rows:
        part = spot.bed.part(_here.number, spot, shape, np.dtype(dtype))
        _here.number += 1
        if part is not None:
            found: np.ndarray = part
            return found
    return empty((rows, *shape), dtype)


def joined(arrays: list[np.ndarray]) -> np.ndarray | None:
    """One array over all of these, where they lie one after the other in one buffer; else None."""
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
    return np.lib.stride_tricks.as_strided(first, shape, first.strides)
