"""Values of key columns as numbers: equal values have equal codes, whatever holds them.

Whole numbers are equal by value, whatever their width, also to floats; text to text, bytes to
bytes, times to times of any unit. A null, NaN or NaT equals nothing. Anything else is compared as
Python compares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from silva.columns import Array, Column, Grouped, Strings, Values
from silva.errors import ColumnError
from silva.operators._join.times import converted, moments, ticks_of

_MOST = (1 << 63) - 1
_KINDS = {"b": "bool", "i": "number", "u": "number", "f": "number", "M": "time", "m": "duration"}
_PYTHON = {bool: "bool", int: "number", float: "number", str: "text", bytes: "bytes"}


def kind_of_type(short: str | None) -> str | None:
    """What values of a type can be equal to; None where that is not known beforehand.

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


@dataclass(frozen=True, eq=False)
class Codes:
    """A column's values as numbers of their own: -1 where there is none."""

    kind: str | None
    """None where no row has a value."""
    values: Any
    """Sorted numbers, or a dict from value to code."""
    tick: int = 0
    """Of times: the attoseconds in one tick."""

    @staticmethod
    def of(name: str, column: Column) -> tuple[Codes, np.ndarray]:
        """The codes of a key column, and what it has in each row."""
        plain = _plain(name, column)
        if plain.kind in _BY_BISECTION:
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
        return len(self.values)

    def find(self, name: str, column: Column) -> np.ndarray:
        """The code of each row; -1 where the value is not among them."""
        if isinstance(column, Grouped):
            found: np.ndarray = self.find(name, column.unique)[column.inverse]
            return found
        if isinstance(column, Values) and column.kinds >= {int, float}:
            return self._find_each(name, column)
        plain = _plain(name, column)
        if plain.kind is None or self.kind is None:
            return np.full(len(column), -1, dtype=np.int64)
        if plain.kind != self.kind:
            raise ColumnError(
                f"join: the key {name!r} is a {plain.kind} here and a {self.kind} on the other "
                "side: give both one type, e.g. derive(key=sv.col('key').cast('int64'))"
            )
        if plain.tick != self.tick:
            low, high = converted(plain.data, plain.tick, self.tick)
            return _bisect(self.values, low, plain.valid & (low == high))
        if self.kind in _BY_BISECTION:
            return _bisect(self.values, plain.data, plain.valid)
        codes = map(self.values.get, plain.data, repeat(-1))
        return np.fromiter(codes, np.int64, len(column))

    def _find_each(self, name: str, column: Values) -> np.ndarray:
        """Whole numbers apart from floats: together they would be floats, and large ones others."""
        floats = np.array([isinstance(x, float) for x in column.items])
        codes = np.full(len(column), -1, dtype=np.int64)
        for picked in (np.flatnonzero(floats), np.flatnonzero(~floats)):
            codes[picked] = self.find(name, column.take(picked))
        return codes


@dataclass(frozen=True, eq=False)
class Keys:
    """Values of several columns together."""

    names: tuple[str, ...]
    """On the side that looks: they stand in errors."""
    columns: tuple[Codes, ...]
    pairs: tuple[np.ndarray, ...]
    """For each column but the first: which pairs (code so far, own code) there are, sorted."""

    @staticmethod
    def of(names: tuple[str, ...], columns: Sequence[Column]) -> tuple[Keys, np.ndarray]:
        """The keys of a table, and which key each row has."""
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
        """The key of each row; -1 where the table has none like it."""
        first, *rest = zip(self.names, self.columns, columns, strict=True)
        codes = first[1].find(first[0], first[2])
        for known, (name, own, column) in zip(self.pairs, rest, strict=True):
            found = own.find(name, column)
            codes = _bisect(known, codes * len(own) + found, (codes >= 0) & (found >= 0))
        return codes


_BY_BISECTION = ("bool", "number", "time", "duration")


@dataclass(frozen=True, eq=False)
class _Plain:
    kind: str | None
    data: Any
    """An array of numbers, or a list in which None is null."""
    valid: np.ndarray
    tick: int = 0


def _plain(name: str, column: Column) -> _Plain:
    column = (column.expand() if isinstance(column, Grouped) else column).settled()
    if isinstance(column, Strings):
        return _text(column)
    if isinstance(column, Values):
        return _python(name, column)
    if isinstance(column, Array) and column.data.ndim == 1 and column.data.dtype.kind in _KINDS:
        valid = np.ones(len(column), dtype=bool) if column.valid is None else column.valid
        return _numbers(column.data, valid)
    raise ColumnError(f"join: {name!r} holds lists or arrays, and cannot be a key")


def _numbers(data: np.ndarray, valid: np.ndarray) -> _Plain:
    kind = _KINDS[data.dtype.kind]
    if kind in ("time", "duration"):
        ticks, tick = ticks_of(data)
        return _Plain(kind, ticks, valid & ~np.isnat(data), tick)
    if data.dtype.kind == "f":
        return _Plain(kind, data.astype(np.float64), valid & ~np.isnan(data))
    if data.dtype == np.uint64 and len(data) and int(data.max()) > _MOST:
        return _Plain(kind, data, valid)
    return _Plain(kind, data.astype(np.int64), valid)


def _text(column: Strings) -> _Plain:
    import pyarrow as pa

    kind = (
        "text"
        if pa.types.is_string(t := column.data.type) or pa.types.is_large_string(t)
        else ("bytes")
    )
    valid = np.ones(len(column), dtype=bool)
    return _Plain(kind, column.data.to_pylist(), valid)


def _python(name: str, column: Values) -> _Plain:
    items = column.rows()
    kinds = {_kind(item) for item in items if item is not None}
    if not kinds:
        return _Plain(None, items, np.zeros(len(items), dtype=bool))
    if len(kinds) > 1:
        raise ColumnError(f"join: the key {name!r} holds {' and '.join(sorted(kinds))} at once")
    (kind,) = kinds
    valid = np.array([x is not None for x in items], dtype=bool)
    if kind in ("number", "bool"):
        numbers = np.array([0 if x is None else x for x in items])
        if numbers.dtype == object:
            raise ColumnError(f"join: the key {name!r} holds numbers beyond 64 bits")
        return _numbers(numbers, valid)
    if kind == "value":
        return _values(name, column, valid)
    return _Plain(kind, items, valid)


def _kind(item: Any) -> str:
    return next((kind for python, kind in _PYTHON.items() if isinstance(item, python)), "value")


def _values(name: str, column: Values, valid: np.ndarray) -> _Plain:
    """Dates as times; anything else that can be hashed as it is."""
    import datetime

    if all(issubclass(k, datetime.date | np.datetime64) or k is type(None) for k in column.kinds):
        return _numbers(moments(column.rows()), valid)
    items = column.rows()
    try:
        hash(tuple(items))
    except TypeError:
        raise ColumnError(f"join: {name!r} holds lists or arrays, and cannot be a key") from None
    return _Plain("value", items, valid)


def _bisect(known: np.ndarray, wanted: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """The place of each value among sorted ones; -1 where it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    wanted, fits = _as(wanted, known.dtype, valid)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(fits & (known[place] == wanted), place, -1)


def _as(data: np.ndarray, dtype: np.dtype, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as another dtype, and which of them it can hold exactly."""
    if data.dtype == dtype:
        return data, valid
    with np.errstate(invalid="ignore", over="ignore"):
        made = data.astype(dtype)
        back = made.astype(data.dtype)
    top = 2.0 ** (64 if dtype == np.uint64 else 63)
    inside = (
        (data < top) & (data >= (0 if dtype == np.uint64 else -top))
        if dtype.kind in "iu"
        else (made < top)
    )
    return made, valid & inside & (back == data)
