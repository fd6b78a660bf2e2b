"""Rows as whole numbers: equal where rows are equal byte for byte, or where their types are.

Floats are compared by their bits: a NaN equals itself, and -0.0 is not 0.0.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from silva.columns.column import Array, Column, Strings, is_masked_array
from silva.columns.dictionary import Dictionary
from silva.columns.lists import Lists
from silva.columns.number_runs import NumberRuns, appearance
from silva.columns.padding import bytes_of, without_padding
from silva.columns.union import Union, typed_rows
from silva.columns.values import Values, plain_item
from silva.errors import ColumnError

_NULL = -1
_BY_VALUE = (bool, int, str, bytes, type(None))
_BY_TEXT = (decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)


def codes(column: Column) -> np.ndarray:
    """One whole number per row, equal where rows are.

    >>> codes(Lists(Array(np.array([5, 6, 5, 6, 7])), np.array([0, 2, 4, 5]))).tolist()
    [0, 0, 1]
    """
    match column:
        case Dictionary():
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
    return _numbers([_key(plain_item(row)) for row in typed_rows(column)])


def together(columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """The rows at which a combination of these columns first appears, and the number of each row's
    combination. Where all columns are dictionaries, only their values are compared, and those that
    are known to be distinct not at all."""
    if all(isinstance(c, Dictionary) for c in columns):
        groups = [c for c in columns if isinstance(c, Dictionary)]
        first, number = joined(g.inverse for g in groups)
        if all(g.distinct for g in groups):
            return first, number
        if len(first) < len(number):
            ordered = sorted(groups, key=lambda g: not g.distinct)
            inner, combined = joined(_codes_at(g, first) for g in ordered)
            return first[inner], combined[number]
    return joined(codes(c) for c in columns)


def row_keys(columns: Sequence[Column]) -> np.ndarray:
    """A whole number for each row, equal where rows are equal in all these columns. The index of a
    dictionary is one already, and so are numbers."""
    first, *others = columns
    if isinstance(first, Dictionary) and first.distinct:
        alike = (isinstance(c, Dictionary) and c.inverse is first.inverse for c in others)
        if all(alike):
            return first.inverse
    if not others and _holds_numbers(first):
        found = codes(first)
        return found.view(np.int64) if found.dtype == np.uint64 else found
    return together(columns)[1]


def _holds_numbers(column: Column) -> bool:
    """Whether the bytes of a row are its code."""
    if isinstance(column, Dictionary):
        return len(column.unique) <= len(column) and _holds_numbers(column.unique)
    return isinstance(column, Array) and column.data.ndim == 1 and column.data.itemsize <= 8


def _codes_at(column: Dictionary, rows: np.ndarray) -> np.ndarray:
    if len(column.unique) > len(rows) and not column.distinct:
        return codes(column.at(rows))
    return codes(replace(column, inverse=column.inverse[rows]))


def rows_at(column: Column, rows: np.ndarray) -> Column:
    """The rows at these indices, which all differ: a dictionary of them would be no smaller."""
    return column.at(rows) if isinstance(column, Dictionary) else column.take(rows)


def joined(keys: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """`appearance` of several numbers per row, taken together; stops once every row differs."""
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


def list_runs(column: Lists) -> NumberRuns:
    """The lists as runs of their items' codes; a null is an empty run."""
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    lengths = np.diff(column.offsets)
    if column.valid is not None:
        lengths = np.where(column.valid, lengths, 0)
    items = codes(column.values.slice(first, last))
    return NumberRuns(items, column.offsets[:-1] - first, lengths)


def _array(data: np.ndarray) -> np.ndarray:
    data = without_padding(np.ascontiguousarray(data))
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
    return NumberRuns(words.reshape(-1), starts, np.full(len(data), size // width)).numbers()


def _with_nulls(numbers: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    if valid is None or valid.all():
        return numbers
    _, ranked = appearance(numbers)
    return np.where(valid, ranked, _NULL)


def _key(item: Any) -> Any:
    """A key of an item: keys are equal where types and bytes are."""
    kind = type(item)
    if kind in _BY_VALUE:
        return (kind, item)
    if is_masked_array(item) and not item.dtype.hasobject:
        missing = np.ma.getmaskarray(item)
        present = np.where(missing, np.zeros((), item.dtype), np.ma.getdata(item))
        return (kind, item.dtype.str, item.shape, bytes_of(present), missing.tobytes())
    if isinstance(item, np.ndarray | np.generic) and not item.dtype.hasobject:
        return (kind, item.dtype.str, item.shape, bytes_of(item))
    if kind is float or kind is complex:
        return (kind, np.array(item).tobytes())
    if isinstance(item, _BY_TEXT):
        return (kind, repr(item))
    if isinstance(item, list | tuple):
        return (kind, tuple(_key(x) for x in item))
    if isinstance(item, dict):
        return (kind, tuple((_key(k), _key(v)) for k, v in item.items()))
    raise ColumnError(f"rows of type {kind.__name__} cannot be compared byte by byte")


_LONG = 1 << 63
_ALIKE = frozenset({bool, float, str, bytes, list, tuple, type(None)})
"""Python types whose values all have one type in a batch."""


def type_numbers(column: Column, ragged: bool = False) -> np.ndarray | None:
    """A number for each row, equal where types are; None where all rows have one type. With
    `ragged`, arrays that differ only in length have one type, as lists and tuples do.

    >>> type_numbers(Values([1, 2.5, 3])).tolist()
    [0, 1, 0]
    >>> type_numbers(Values([1, 2]))
    """
    if isinstance(column, Union):
        parts = [type_numbers(part, ragged) for part in column.parts]
        if all(part is None for part in parts):
            return column.which
        return _numbers(_in_parts(column, parts))
    if not isinstance(column, Values) or not len(column):
        return None
    kinds = column.kinds
    if len(kinds) == 1 and (kinds <= _ALIKE or isinstance(column.settled(), Array)):
        return None
    if ragged and kinds == {np.ndarray} and _differ_in_length(column.items):
        return None
    numbers = _numbers([_type_of(item, ragged) for item in column.items])
    return numbers if numbers.any() else None


def rows_by_type(columns: Sequence[Column], ragged: bool = False) -> list[np.ndarray] | None:
    """Indices of rows, grouped so that each column has one type; None where all rows have."""
    found = (type_numbers(column, ragged) for column in columns)
    numbers = [number for number in found if number is not None]
    if not numbers:
        return None
    _, number = joined(numbers)
    return [np.flatnonzero(number == i) for i in range(int(number.max()) + 1)]


def _in_parts(column: Union, numbers: list[np.ndarray | None]) -> list[tuple[int, int]]:
    """The part of each row, and the number of its type there."""
    following = [
        iter([0] * len(part) if found is None else found.tolist())
        for part, found in zip(column.parts, numbers, strict=True)
    ]
    return [(part, next(following[part])) for part in column.which.tolist()]


def _differ_in_length(arrays: list[np.ndarray]) -> bool:
    """Whether arrays differ in length only, without computing the whole type of each."""
    first = arrays[0]
    if first.ndim != 1:
        return False
    dtype = first.dtype
    return all(x.ndim == 1 and x.dtype == dtype for x in arrays)


def _numbers(keys: Iterable[Hashable]) -> np.ndarray:
    """The number of each key, in the order in which keys first appear."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _type_of(item: Any, ragged: bool) -> Any:
    kind = type(item)
    if kind is int:
        return (int, -_LONG <= item < _LONG)
    if isinstance(item, np.ndarray):
        shape = item.shape[1:] if ragged and item.ndim else item.shape
        plain = np.ndarray if kind is np.memmap else kind
        return (plain, item.ndim, item.dtype, shape) if item.ndim else item.dtype
    if isinstance(item, np.generic):
        return item.dtype
    return "list" if kind in (list, tuple) else kind
