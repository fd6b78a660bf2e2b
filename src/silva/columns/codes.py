"""Rows as whole numbers that are equal exactly where the rows are, byte for byte.

Floats are compared by their bits: a NaN equals itself, and -0.0 is not 0.0.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silva.columns.array import Array
from silva.columns.column import Column
from silva.columns.grouped import Grouped
from silva.columns.lists import Lists
from silva.columns.runs import Runs, appearance
from silva.columns.strings import Strings
from silva.errors import ColumnError

_NULL = -1
_BY_VALUE = (bool, int, str, bytes, type(None))
_BY_TEXT = (decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)


def codes(column: Column) -> np.ndarray:
    """One whole number a row.

    >>> codes(Lists(Array(np.array([5, 6, 5, 6, 7])), np.array([0, 2, 4, 5]))).tolist()
    [0, 0, 1]
    """
    match column:
        case Grouped():
            if column.distinct:
                return column.inverse
            return np.take(codes(column.unique), column.inverse)
        case Array():
            return _with_nulls(_array(column.data), column.valid)
        case Strings():
            found = column.data.dictionary_encode().indices
            return np.asarray(found.fill_null(_NULL).to_numpy(zero_copy_only=False))
        case Lists():
            return _with_nulls(list_runs(column).numbers(), column.valid)
    known: dict[Any, int] = {}
    return np.fromiter(
        (known.setdefault(_key(row), len(known)) for row in column.rows()), np.int64, len(column)
    )


def together(columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """The rows at which a combination of these columns appears first, and for each row the number
    of its combination. Where all columns are grouped, only distinct values are compared, and those
    that are known to be distinct not at all."""
    if all(isinstance(c, Grouped) for c in columns):
        groups = [c for c in columns if isinstance(c, Grouped)]
        first, number = joined(g.inverse for g in groups)
        if all(g.distinct for g in groups):
            return first, number
        if len(first) < len(number):
            ordered = sorted(groups, key=lambda g: not g.distinct)
            inner, combined = joined(_codes_at(g, first) for g in ordered)
            return first[inner], combined[number]
    return joined(codes(c) for c in columns)


def _codes_at(column: Grouped, rows: np.ndarray) -> np.ndarray:
    if len(column.unique) > len(rows) and not column.distinct:
        return codes(column.at(rows))
    return codes(replace(column, inverse=column.inverse[rows]))


def rows_at(column: Column, rows: np.ndarray) -> Column:
    """Rows that differ, one by one: an index to them would be no shorter."""
    return column.at(rows) if isinstance(column, Grouped) else column.take(rows)


def joined(keys: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """`appearance` of several numbers a row, taken together; once every row differs, no more of
    them are asked for."""
    first, number, last = np.zeros(0, np.int64), np.zeros(0, np.int64), None
    for key in keys:
        if last is None:
            first, number = appearance(key)
        elif not np.array_equal(key, last):  # columns of one group mostly have one index
            _, other = appearance(key)
            first, number = appearance(number * (int(other.max(initial=0)) + 1) + other)
        if len(first) == len(number):
            break
        last = key
    return first, number


def list_runs(column: Lists) -> Runs:
    """The lists as runs of their items' codes; a null is a run of none."""
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    lengths = np.diff(column.offsets)
    if column.valid is not None:
        lengths = np.where(column.valid, lengths, 0)
    items = codes(column.values.slice(first, last))
    return Runs(items, column.offsets[:-1] - first, lengths)


def _array(data: np.ndarray) -> np.ndarray:
    data = np.ascontiguousarray(data)
    size = data.dtype.itemsize * int(np.prod(data.shape[1:]))
    if data.dtype.hasobject:
        raise ColumnError("rows that are Python objects cannot be compared byte by byte")
    if not data.nbytes:
        return np.zeros(len(data), dtype=np.int64)
    width = next(w for w in (8, 4, 2, 1) if size % w == 0)
    words = data.reshape(len(data), -1).view(f"u{width}").reshape(len(data), size // width)
    if size == width:
        return words[:, 0]
    starts = np.arange(len(data), dtype=np.int64) * (size // width)
    return Runs(words.reshape(-1), starts, np.full(len(data), size // width)).numbers()


def _with_nulls(numbers: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    if valid is None or valid.all():
        return numbers
    _, ranked = appearance(numbers)
    return np.where(valid, ranked, _NULL)


def _key(item: Any) -> Any:
    """What stands for an item among others: equal keys, equal types and bytes."""
    kind = type(item)
    if kind in _BY_VALUE:
        return (kind, item)
    if isinstance(item, np.ndarray | np.generic) and not item.dtype.hasobject:
        return (kind, item.dtype.str, item.shape, item.tobytes())
    if kind is float or kind is complex:
        return (kind, np.array(item).tobytes())
    if isinstance(item, _BY_TEXT):
        return (kind, repr(item))
    if isinstance(item, list | tuple):
        return (kind, tuple(_key(x) for x in item))
    if isinstance(item, dict):
        return (kind, tuple((_key(k), _key(v)) for k, v in item.items()))
    raise ColumnError(f"rows of type {kind.__name__} cannot be compared byte by byte")
