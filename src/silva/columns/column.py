"""What every kind of column can do, and the plain kinds: arrays, text and bytes, and parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from silva.columns.allocation import empty

if TYPE_CHECKING:
    import pyarrow as pa

Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]
"""Allocates an array: on the heap, or in shared memory."""


class Column(Protocol):
    """The values of some rows under one name. Columns are never changed in place."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes held, accurate enough to bound memory."""

    def take(self, indices: np.ndarray) -> Column:
        """The rows at `indices`, in that order."""

    def slice(self, start: int, stop: int) -> Column:
        """Rows `start` to `stop`, without a copy where that is possible."""

    def rows(self) -> list[Any]:
        """One value per row, as a per-row function receives it: plain numbers, str, bytes,
        read-only arrays, or None."""

    def batch(self) -> Any:
        """The value that a batch of exactly these rows holds."""

    def settled(self, allocate: Allocate = np.empty) -> Column:
        """The same rows in the densest kind that keeps every value and the type of every batch."""


@dataclass(frozen=True, eq=False, slots=True)
class Array:
    """A column of one numpy array."""

    data: np.ndarray
    """One row per index of the first axis."""
    valid: np.ndarray | None = None
    """False where the row is null; None where no row is."""

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def take(self, indices: np.ndarray) -> Array:
        return Array(self.data[indices], None if self.valid is None else self.valid[indices])

    def slice(self, start: int, stop: int) -> Array:
        return Array(self.data[start:stop], None if self.valid is None else self.valid[start:stop])

    def rows(self) -> list[Any]:
        if self.data.ndim == 1 and self.data.dtype.kind in "biufc":
            items: list[Any] = self.data.tolist()
        elif self.data.ndim == 1:
            items = list(self.data)  # dates stay numpy scalars: tolist() would lose their unit
        else:
            view = self.data.view()
            view.flags.writeable = False
            items = list(view)
        return with_nulls(items, self.valid)

    def batch(self) -> Any:
        if self.valid is None or self.valid.all():
            return self.data
        if 0 in self.data.shape[1:]:  # such rows have no element that a mask could cover
            return np.fromiter(self.rows(), object, len(self))
        return np.ma.MaskedArray(self.data, mask=_broadcast(~self.valid, self.data))

    def settled(self, allocate: Allocate = np.empty) -> Array:
        return self


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Array):
    """A literal of an expression, as an operator gets it: one number, the same in each row. It is
    weak, as Python numbers are in numpy, and a column of equal numbers is not; so it is known by
    its class, and no expression returns it."""

    @staticmethod
    def of(value: object, count: int) -> Constant:
        return Constant(np.broadcast_to(np.asarray(value), (count,)))

    def take(self, indices: np.ndarray) -> Constant:
        return self.slice(0, len(indices))

    def slice(self, start: int, stop: int) -> Constant:
        return Constant(self.data[start:stop])


def _broadcast(mask: np.ndarray, data: np.ndarray) -> np.ndarray:
    return np.broadcast_to(mask.reshape(-1, *[1] * (data.ndim - 1)), data.shape).copy()


def with_nulls(rows: list[Any], valid: np.ndarray | None) -> list[Any]:
    """The rows, with None where they are not valid."""
    if valid is None:
        return rows
    return [row if ok else None for row, ok in zip(rows, valid.tolist(), strict=True)]


def masked_batch(present: np.ndarray, valid: np.ndarray) -> Any:
    """The value of a batch whose valid rows are `present` and whose other rows are null."""
    data = np.zeros((len(valid), *present.shape[1:]), dtype=present.dtype)
    data[valid] = present
    return Array(data, valid).batch()


def is_masked_array(value: object) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Whether a value is one of numpy's masked arrays. There can be none before somebody has
    imported `numpy.ma`, which takes 10 ms that most programs need not spend.

    >>> is_masked_array(np.zeros(3)), is_masked_array(np.ma.zeros(3))
    (False, True)
    """
    return "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


@dataclass(frozen=True, eq=False, slots=True)
class Strings:
    """A column of text or of bytes."""

    data: pa.Array
    """A string, binary, large_string or large_binary array."""

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def take(self, indices: np.ndarray) -> Strings:
        return Strings(self.data.take(indices))

    def slice(self, start: int, stop: int) -> Strings:
        start, stop, _ = slice(start, stop).indices(len(self))
        return Strings(self.data.slice(start, max(stop - start, 0)))

    def rows(self) -> list[Any]:
        items: list[Any] = self.data.to_pylist()
        return items

    def batch(self) -> Any:
        return self.data.to_numpy(zero_copy_only=False)

    def settled(self, allocate: Allocate = np.empty) -> Strings:
        return self


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """A column of rows in several parts."""

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def take(self, indices: np.ndarray) -> Parts:
        return Parts(tuple(column.take(indices) for column in self.columns))

    def slice(self, start: int, stop: int) -> Parts:
        return Parts(tuple(column.slice(start, stop) for column in self.columns))

    def rows(self) -> list[Any]:
        return list(zip(*(column.rows() for column in self.columns), strict=True))

    def batch(self) -> Any:
        return tuple(column.batch() for column in self.columns)

    def settled(self, allocate: Allocate = empty) -> Parts:
        return Parts(tuple(column.settled(allocate) for column in self.columns))
