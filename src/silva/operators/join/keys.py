"""Values of key columns as numbers: equal values have equal codes, whatever holds them.

Numbers are equal by value, exactly, whatever their type; text to text, bytes to bytes, times to
times of any unit. A null, NaN or NaT equals nothing. Anything else is compared as Python compares
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from silva.columns import Array, Column, Dictionary, Strings, Union, Values
from silva.errors import ColumnError
from silva.operators.join.times import MOST, converted, moments, ticks_of, wide_float
from silva.plan.identity import tagged

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


@tagged("Codes", "kind values tick")
@dataclass(frozen=True, eq=False)
class Codes:
    """A column's values as numbers of their own: -1 where there is none."""

    kind: str | None
    """None where no row has a value."""
    values: Any
    """Sorted times, a `_Numbers` of sorted arrays, or a dict from value to code."""
    tick: int = 0
    """Of times: the attoseconds in one tick."""

    @staticmethod
    def of(name: str, column: Column) -> tuple[Codes, np.ndarray]:
        """The codes of a key column, and what it has in each row."""
        plain = _plain(name, column)
        if isinstance(plain.data, _Numbers):
            return _codes_of_numbers(plain, len(column))
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
        """The code of each row; -1 where the value is not among them."""
        if isinstance(column, Dictionary):
            found: np.ndarray = self.find(name, column.unique)[column.inverse]
            return found
        plain = _plain(name, column)
        if plain.kind is None or self.kind is None:
            return np.full(len(column), -1, dtype=np.int64)
        if plain.kind != self.kind:
            raise ColumnError(
                f"join: the key {name!r} is a {plain.kind} here and a {self.kind} on the other "
                "side: give both one type, e.g. derive(key=sv.col('key').cast('int64'))"
            )
        if isinstance(plain.data, _Numbers):
            return self._find_numbers(plain, len(column))
        if plain.tick != self.tick:
            low, high = converted(plain.data, plain.tick, self.tick)
            return _bisect(self.values, low, plain.valid & (low == high))
        if self.kind in _OF_TIME:
            return _bisect(self.values, plain.data, plain.valid)
        codes = map(self.values.get, plain.data, repeat(-1))
        return np.fromiter(codes, np.int64, len(column))

    def _find_numbers(self, plain: _Plain, count: int) -> np.ndarray:
        codes = np.full(count, -1, dtype=np.int64)
        base = 0
        for known, wanted, places in zip(self.values, plain.data, plain.places, strict=True):
            if len(known) and len(wanted):
                found = _bisect(known, wanted, np.ones(len(wanted), dtype=bool))
                codes[places] = np.where(found >= 0, found + base, -1)
            base += len(known)
        return codes


def _codes_of_numbers(plain: _Plain, count: int) -> tuple[Codes, np.ndarray]:
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


_OF_TIME = ("time", "duration")
_DTYPES = (np.int64, np.uint64, np.float64)
_NONE = np.empty(0, dtype=np.int64)


class _Numbers(NamedTuple):
    """Numbers, each where its value belongs, so that equal ones are found in one place, and none
    is rounded."""

    whole: np.ndarray
    """int64: whole numbers that int64 can hold, whatever held them."""
    large: np.ndarray
    """uint64: whole numbers from 2**63 up to 2**64."""
    rest: np.ndarray
    """float64: fractions, and what is beyond."""


@dataclass(frozen=True, eq=False)
class _Plain:
    kind: str | None
    data: Any
    """`_Numbers`, int64 ticks of time, or a list in which None is null."""
    valid: np.ndarray
    tick: int = 0
    places: tuple[np.ndarray, ...] = ()
    """The rows of each part of `_Numbers`."""


def _plain(name: str, column: Column) -> _Plain:
    column = (column.expand() if isinstance(column, Dictionary) else column).settled()
    if isinstance(column, Strings):
        return _text(column)
    if isinstance(column, Union):
        column = Values(column.rows())
    if isinstance(column, Values):
        return _python(name, column)
    if isinstance(column, Array) and column.data.ndim == 1 and column.data.dtype.kind in _KINDS:
        valid = np.ones(len(column), dtype=bool) if column.valid is None else column.valid
        return _numbers(column.data, valid)
    raise ColumnError(f"join: {name!r} holds lists or arrays, and cannot be a key")


def _numbers(data: np.ndarray, valid: np.ndarray) -> _Plain:
    kind = _KINDS[data.dtype.kind]
    if kind in _OF_TIME:
        ticks, tick = ticks_of(data)
        return _Plain(kind, ticks, valid & ~np.isnat(data), tick)
    if data.dtype.kind == "f":
        return _floats(wide_float(data), valid & ~np.isnan(data))
    large = data > MOST if data.dtype == np.uint64 else np.zeros(len(data), dtype=bool)
    places = (np.flatnonzero(valid & ~large), np.flatnonzero(valid & large), _NONE)
    parts = data[places[0]].astype(np.int64), data[places[1]].astype(np.uint64), np.empty(0)
    return _Plain(kind, _Numbers(*parts), valid, places=places)


def _floats(data: np.ndarray, valid: np.ndarray) -> _Plain:
    whole = valid & (np.trunc(data) == data)
    fits = whole & (data >= -(2.0**63)) & (data < 2.0**63)
    large = whole & (data >= 2.0**63) & (data < 2.0**64)
    places = tuple(np.flatnonzero(part) for part in (fits, large, valid & ~fits & ~large))
    parts = data[places[0]].astype(np.int64), data[places[1]].astype(np.uint64), data[places[2]]
    return _Plain("number", _Numbers(*parts), valid, places=places)


def _mixed(name: str, items: list[Any], valid: np.ndarray) -> _Plain:
    """Whole numbers and floats one by one: in one array they would be rounded."""
    parts: tuple[list[Any], ...] = ([], [], [])
    places: tuple[list[int], ...] = ([], [], [])
    for row in np.flatnonzero(valid).tolist():
        value = items[row]
        if value != value:  # NaN
            continue
        number = int(value) if not isinstance(value, float) or value.is_integer() else value
        part = 2 if isinstance(number, float) or not -MOST - 1 <= number < 1 << 64 else 0
        if part == 2 and not isinstance(value, float):
            raise ColumnError(f"join: the key {name!r} holds numbers beyond 64 bits")
        part = part or int(number > MOST)
        parts[part].append(value if part == 2 else number)
        places[part].append(row)
    numbers = (np.array(x, t) for x, t in zip(parts, _DTYPES, strict=True))
    rows = tuple(np.array(x, dtype=np.int64) for x in places)
    return _Plain("number", _Numbers(*numbers), valid, places=rows)


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
        floats = numbers.dtype.kind == "f" and column.kinds <= {float, type(None)}
        alike = floats or numbers.dtype.kind in "biu"
        return _numbers(numbers, valid) if alike else _mixed(name, items, valid)
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
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(valid & (known[place] == wanted), place, -1)
