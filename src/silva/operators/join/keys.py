"""Values of key columns as integer codes: equal values have equal codes, whatever their type.

Numbers of any type are equal if their values are exactly equal, times of any unit likewise; text
equals text, and bytes equal bytes. Null, NaN and NaT equal nothing. Other values are compared as
Python compares them.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from silva.columns import Array, Column, Dictionary, Strings, Values
from silva.errors import ColumnError
from silva.operators.join.times import (
    INT64_MAX,
    convert_ticks,
    settle,
    to_datetime64,
    to_float64,
    to_ticks,
    valid_rows,
)
from silva.plan.class_tags import tagged

_KINDS = {"b": "bool", "i": "number", "u": "number", "f": "number", "M": "time", "m": "duration"}
_PYTHON = {bool: "bool", int: "number", float: "number", str: "text", bytes: "bytes"}


def kind_of_type(short: str | None) -> str | None:
    """The kind of a type, given its short name: only values of one kind can be equal. None where
    the kind is known only from the rows.

    >>> kind_of_type("int32"), kind_of_type("str"), kind_of_type("datetime64[ms]")
    ('number', 'text', 'time')
    """
    if short is None:
        return None
    if short in ("str", "bytes", "bool"):
        return {"str": "text"}.get(short, short)
    try:
        return _KINDS.get(np.dtype(short).kind)
    except TypeError:
        return None


@tagged("Codes", "kind values tick")
@dataclass(frozen=True, eq=False)
class Codes:
    """The distinct values of a key column, and the code of each; a null has the code -1."""

    kind: str | None
    """None where no row has a value."""
    values: Any
    """Sorted times, a `_Numbers` of sorted arrays, or a dict from value to code."""
    tick: int = 0
    """The length of a tick in attoseconds, for times."""

    @staticmethod
    def of(name: str, column: Column) -> tuple[Codes, np.ndarray]:
        """The distinct values of a key column, and the code of each row."""
        plain = _normalize(name, column)
        if isinstance(plain.data, _Numbers):
            return _number_codes(plain, len(column))
        if plain.kind in _OF_TIME:
            values, own = np.unique(plain.data[plain.valid], return_inverse=True)
            codes = np.full(len(column), -1, dtype=np.int64)
            codes[plain.valid] = own
            return Codes(plain.kind, values, plain.tick), codes
        found: dict[Any, int] = {}
        codes = np.fromiter(
            (-1 if x is None else found.setdefault(x, len(found)) for x in plain.data),
            np.int64,
            len(column),
        )
        return Codes(plain.kind, found), codes

    def __len__(self) -> int:
        if isinstance(self.values, _Numbers):
            return sum(map(len, self.values))
        return len(self.values)

    def find(self, name: str, column: Column) -> np.ndarray:
        """The code of each row; -1 where the value has none."""
        if isinstance(column, Dictionary):
            found: np.ndarray = self.find(name, column.unique)[column.inverse]
            return found
        plain = _normalize(name, column)
        if plain.kind is None or self.kind is None:
            return np.full(len(column), -1, dtype=np.int64)
        if plain.kind != self.kind:
            raise ColumnError(
                f"join: the key {name!r} is a {plain.kind} here and a {self.kind} on the other "
                "side: cast both to one type, e.g. derive(key=sv.col('key').cast('int64'))"
            )
        if isinstance(plain.data, _Numbers):
            return self._find_numbers(plain, len(column))
        if plain.tick != self.tick:
            low, high = convert_ticks(plain.data, plain.tick, self.tick)
            return _search(self.values, low, plain.valid & (low == high))
        if self.kind in _OF_TIME:
            return _search(self.values, plain.data, plain.valid)
        codes = map(self.values.get, plain.data, repeat(-1))
        return np.fromiter(codes, np.int64, len(column))

    def _find_numbers(self, plain: _KeyColumn, count: int) -> np.ndarray:
        codes = np.full(count, -1, dtype=np.int64)
        base = 0
        for known, wanted, places in zip(self.values, plain.data, plain.places, strict=True):
            if len(known) and len(wanted):
                found = _search(known, wanted, np.ones(len(wanted), dtype=bool))
                codes[places] = np.where(found >= 0, found + base, -1)
            base += len(known)
        return codes


def _number_codes(plain: _KeyColumn, count: int) -> tuple[Codes, np.ndarray]:
    codes = np.full(count, -1, dtype=np.int64)
    values: list[np.ndarray] = []
    for numbers, places in zip(plain.data, plain.places, strict=True):
        known, own = np.unique(numbers, return_inverse=True)
        codes[places] = own + sum(map(len, values))
        values.append(known)
    return Codes(plain.kind, _Numbers(*values)), codes


@tagged("Keys", "names columns pairs")
@dataclass(frozen=True, eq=False)
class Keys:
    """The distinct keys of a table; a key is made of one or more columns."""

    names: tuple[str, ...]
    """The names of the columns on the left side, for errors."""
    columns: tuple[Codes, ...]
    pairs: tuple[np.ndarray, ...]
    """For each column but the first: the sorted pairs (code of the columns before, own code) that
    occur, each as one number."""

    @staticmethod
    def of(names: tuple[str, ...], columns: Sequence[Column]) -> tuple[Keys, np.ndarray]:
        """The distinct keys of a table, and the number of each row's key."""
        made = [Codes.of(name, column) for name, column in zip(names, columns, strict=True)]
        codes, pairs = made[0][1], []
        for own, rows in made[1:]:
            there = (codes >= 0) & (rows >= 0)
            known, place = np.unique((codes * len(own) + rows)[there], return_inverse=True)
            pairs.append(known)
            codes = np.full(len(rows), -1, dtype=np.int64)
            codes[there] = place
        return Keys(names, tuple(own for own, _ in made), tuple(pairs)), codes

    def __len__(self) -> int:
        return len(self.pairs[-1]) if self.pairs else len(self.columns[0])

    def find(self, columns: Sequence[Column]) -> np.ndarray:
        """The number of each row's key; -1 where the table does not have the key."""
        first, *rest = zip(self.names, self.columns, columns, strict=True)
        codes = first[1].find(first[0], first[2])
        for known, (name, own, column) in zip(self.pairs, rest, strict=True):
            found = own.find(name, column)
            codes = _search(known, codes * len(own) + found, (codes >= 0) & (found >= 0))
        return codes


_OF_TIME = ("time", "duration")
_DTYPES = (np.int64, np.uint64, np.float64)


class _Numbers(NamedTuple):
    """Numbers divided by value, not by type: equal numbers are in the same array, and none is
    rounded."""

    whole: np.ndarray
    """int64: integers that int64 can hold."""
    large: np.ndarray
    """uint64: integers from 2**63 to 2**64 - 1."""
    rest: np.ndarray
    """float64: all other numbers."""


@dataclass(frozen=True, eq=False)
class _KeyColumn:
    """A key column in the form in which values are compared."""

    kind: str | None
    data: Any
    """`_Numbers`, int64 ticks of time, or a list in which None is null."""
    valid: np.ndarray
    tick: int = 0
    places: tuple[np.ndarray, ...] = ()
    """For each array of `_Numbers`, the rows that its numbers are in."""


def _normalize(name: str, column: Column) -> _KeyColumn:
    column = settle(column)
    if isinstance(column, Strings):
        return _from_strings(column)
    if isinstance(column, Values):
        return _from_objects(name, column)
    if isinstance(column, Array) and column.data.ndim == 1 and column.data.dtype.kind in _KINDS:
        return _from_array(column.data, valid_rows(column))
    raise _no_key(name)


def _no_key(name: str) -> ColumnError:
    return ColumnError(f"join: {name!r} holds lists or arrays, which cannot be keys")


def _from_array(data: np.ndarray, valid: np.ndarray) -> _KeyColumn:
    kind = _KINDS[data.dtype.kind]
    if kind in _OF_TIME:
        ticks, tick = to_ticks(data)
        return _KeyColumn(kind, ticks, valid & ~np.isnat(data), tick)
    if data.dtype.kind == "f":
        data = to_float64(data)
        valid = valid & ~np.isnan(data)
        whole = valid & (np.trunc(data) == data)
        fits = whole & (data >= -(2.0**63)) & (data < 2.0**63)
        large = whole & (data >= 2.0**63) & (data < 2.0**64)
    else:
        large = valid & (data > INT64_MAX) if data.dtype == np.uint64 else np.zeros_like(valid)
        fits = valid & ~large
    places = tuple(np.flatnonzero(part) for part in (fits, large, valid & ~fits & ~large))
    parts = (data[rows].astype(dtype) for rows, dtype in zip(places, _DTYPES, strict=True))
    return _KeyColumn(kind, _Numbers(*parts), valid, places=places)


def _from_mixed_numbers(name: str, items: list[Any], valid: np.ndarray) -> _KeyColumn:
    """Integers and floats in one column, which numpy would round in one array."""
    parts: tuple[list[Any], ...] = ([], [], [])
    places: tuple[list[int], ...] = ([], [], [])
    for row in np.flatnonzero(valid).tolist():
        value = items[row]
        if value != value:  # NaN
            continue
        number = int(value) if not isinstance(value, float) or value.is_integer() else value
        part = 2 if isinstance(number, float) or not -INT64_MAX - 1 <= number < 1 << 64 else 0
        if part == 2 and not isinstance(value, float):
            raise ColumnError(f"join: the key {name!r} holds numbers beyond 64 bits")
        part = part or int(number > INT64_MAX)
        parts[part].append(value if part == 2 else number)
        places[part].append(row)
    numbers = (np.array(x, t) for x, t in zip(parts, _DTYPES, strict=True))
    rows = tuple(np.array(x, dtype=np.int64) for x in places)
    return _KeyColumn("number", _Numbers(*numbers), valid, places=rows)


def _from_strings(column: Strings) -> _KeyColumn:
    import pyarrow as pa

    is_text = column.data.type in (pa.string(), pa.large_string())
    valid = np.ones(len(column), dtype=bool)
    return _KeyColumn("text" if is_text else "bytes", column.data.to_pylist(), valid)


def _from_objects(name: str, column: Values) -> _KeyColumn:
    items = column.rows()
    kinds = {_kind(item) for item in items if item is not None}
    if not kinds:
        return _KeyColumn(None, items, np.zeros(len(items), dtype=bool))
    if len(kinds) > 1:
        raise ColumnError(f"join: the key {name!r} mixes {' and '.join(sorted(kinds))}")
    (kind,) = kinds
    valid = np.array([x is not None for x in items], dtype=bool)
    if kind in ("number", "bool"):
        numbers = np.array([0 if x is None else x for x in items])
        floats = numbers.dtype.kind == "f" and column.kinds <= {float, type(None)}
        alike = floats or numbers.dtype.kind in "biu"
        return _from_array(numbers, valid) if alike else _from_mixed_numbers(name, items, valid)
    if kind == "value":
        return _from_hashable(name, column, valid)
    return _KeyColumn(kind, items, valid)


def _kind(item: Any) -> str:
    return next((kind for python, kind in _PYTHON.items() if isinstance(item, python)), "value")


def _from_hashable(name: str, column: Values, valid: np.ndarray) -> _KeyColumn:
    """Dates as times; other values as they are, if they can be hashed."""
    if all(issubclass(k, datetime.date | np.datetime64) or k is type(None) for k in column.kinds):
        return _from_array(to_datetime64(column.rows()), valid)
    items = column.rows()
    try:
        hash(tuple(items))
    except TypeError:
        raise _no_key(name) from None
    return _KeyColumn("value", items, valid)


def _search(known: np.ndarray, wanted: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The index of each value in a sorted array; -1 where it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(valid & (known[place] == wanted), place, -1)
