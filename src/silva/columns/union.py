"""Rows of several types in one column, each type held by a column of its own.

A batch's type depends on its rows alone, so a row must keep what its column knows of it: that it is
a list of float32, or a null among int64. A Python list of rows cannot hold that. Where columns
are joined whose rows would lose it, each type stays a column, and an index maps rows to columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.allocation import empty
from silva.columns.column import Allocate, Array, Column, Parts, Strings, masked_batch, with_nulls
from silva.columns.lists import Lists
from silva.columns.number_runs import offsets_of
from silva.columns.ragged import Ragged
from silva.columns.values import Values, batch_of_rows, common_dtype, object_array


@dataclass(frozen=True, eq=False, slots=True)
class Union:
    """A column of rows of several types."""

    parts: tuple[Column, ...]
    """At least two columns of different types, none of them empty."""
    which: np.ndarray
    """int32: the part that holds each row; the rows of a part are in order."""

    def __len__(self) -> int:
        return len(self.which)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts) + int(self.which.nbytes)

    def places(self) -> list[np.ndarray]:
        """The rows that each part holds."""
        return [np.flatnonzero(self.which == part) for part in range(len(self.parts))]

    def take(self, indices: np.ndarray) -> Column:
        at = np.empty(len(self), dtype=np.int64)
        for rows in self.places():
            at[rows] = np.arange(len(rows))
        which, at = self.which[indices], at[indices]
        parts = [part.take(at[which == i]) for i, part in enumerate(self.parts)]
        return union(parts, which)

    def slice(self, start: int, stop: int) -> Column:
        start, stop, _ = slice(start, stop).indices(len(self))
        which = self.which[start : max(start, stop)]
        count = len(self.parts)
        before = np.bincount(self.which[:start], minlength=count).tolist()
        held = np.bincount(which, minlength=count).tolist()
        bounds = zip(self.parts, before, held, strict=True)
        return union([part.slice(a, a + n) for part, a, n in bounds], which)

    def rows(self) -> list[Any]:
        return self.merged(lambda part: part.rows())

    def typed_rows(self) -> list[Any]:
        return self.merged(typed_rows)

    def merged(self, rows_of: Callable[[Column], Sequence[Any]]) -> list[Any]:
        following = [iter(rows_of(part)) for part in self.parts]
        return [next(following[part]) for part in self.which.tolist()]

    def batch(self) -> Any:
        rows = self.typed_rows()
        missing = np.array([x is None for x in rows])
        if missing.any():
            return self._with_nulls(missing)
        if not any(isinstance(part, Lists) for part in self.parts):
            return batch_of_rows(rows)
        lists = [items for items in row_items(self) if items is not None]
        return self._ragged(lists) if len(lists) == len(self) else object_array(rows)

    def _ragged(self, lists: list[Column]) -> Ragged:
        from silva.columns.block import concat

        return Ragged(concat(lists).batch(), offsets_of([len(items) for items in lists]))

    def _with_nulls(self, missing: np.ndarray) -> Any:
        """A masked array where the rows that are not null make one array. Where all are null, the
        arrays that they come from decide the type."""
        arrays = [part.data[:0] for part in self.parts if isinstance(part, Array)]
        inner: Any = None
        if not missing.all():
            inner = self.take(np.flatnonzero(~missing)).batch()
        elif len({array.shape for array in arrays}) == 1:
            inner = np.empty(arrays[0].shape, common_dtype({array.dtype for array in arrays}))
        if type(inner) is not np.ndarray or inner.dtype == object:
            return object_array(self.typed_rows())
        return masked_batch(inner, ~missing)

    def settled(self, allocate: Allocate = empty) -> Union:
        return self


def union(parts: Sequence[Column], which: np.ndarray) -> Column:
    """The rows of all parts in the order of `which`; one part alone where only it has rows."""
    used = [i for i, part in enumerate(parts) if len(part)]
    if len(used) < 2:
        return parts[used[0] if used else 0]
    if len(used) < len(parts):
        number = np.zeros(len(parts), dtype=np.int32)
        number[used] = np.arange(len(used))
        which = number[which]
    return Union(tuple(parts[i] for i in used), which)


def typed_rows(column: Column) -> list[Any]:
    """Rows that keep their dtype: a float32 beside an int64 does not become a Python float."""
    if isinstance(column, Values):
        return column.items
    if isinstance(column, Union):
        return column.typed_rows()
    if not isinstance(column, Array) or column.data.ndim > 1:
        return column.rows()
    data = column.data
    if data.dtype in (np.int64, np.float64, np.bool_):
        return column.rows()
    rows = list(data) if _in_scalars(data.dtype) else [data[i, ...] for i in range(len(data))]
    return with_nulls(rows, column.valid)


def rows_show_types(column: Column) -> bool:
    """Whether the rows alone determine their types: no nulls, no arrays that are lists, and no
    parts, whose types would be lost in a tuple."""
    if isinstance(column, Array):
        if column.valid is not None and not column.valid.all():
            return False
        return column.data.ndim > 1 or _in_scalars(column.data.dtype)
    if isinstance(column, Strings):
        return not column.data.null_count
    return not isinstance(column, Lists | Union | Parts)


def _in_scalars(dtype: np.dtype) -> bool:
    """Whether a scalar has the dtype of the array that it comes from."""
    return dtype.kind in "biufcmM" and dtype.isnative


def row_items(column: Column) -> list[Column | None]:
    """The items of each row as a column: an empty one for a null, None for a row that is not a
    list."""
    if isinstance(column, Union):
        return column.merged(row_items)
    if isinstance(column, Lists):
        bounds, valid = column.offsets, column.valid
        ends = bounds[1:] if valid is None else np.where(valid, bounds[1:], bounds[:-1])
        runs = zip(bounds.tolist(), ends.tolist(), strict=False)
        return [column.values.slice(a, b) for a, b in runs]
    return [_items(row) for row in typed_rows(column)]


def _items(row: Any) -> Column | None:
    if row is None:
        return Values([])
    if type(row) in (np.ndarray, np.memmap) and row.ndim and row.dtype != object:
        return Array(row)
    if isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim):
        return Values(list(row))
    return None
