"""Times as comparable numbers: ticks of a unit of time, or plain numbers.

The two sides of a join may have different units. Ticks are converted from one unit to the other
twice, rounded down and rounded up; each comparison uses the one that keeps it exact: for an integer
`a`, `a <= t` is `a <= floor(t)`, and `t <= a` is `ceil(t) <= a`. A time that does not fit into
int64 becomes the largest int64, which is later than every other time.

Plain numbers are compared by value in the same way: a float is rounded down and up to an integer,
an integer to the two nearest floats. Where neither int64 nor float64 holds all numbers of a column
exactly, they stay Python objects, which Python compares exactly.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Union, Values
from silva.errors import ColumnError, PlanError

_SECOND = 10**18
ATTOSECONDS = {
    "W": 7 * 86_400 * _SECOND, "D": 86_400 * _SECOND, "h": 3_600 * _SECOND, "m": 60 * _SECOND,
    "s": _SECOND, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
"""Attoseconds per tick, by the unit's name in numpy."""
INT64_MAX = (1 << 63) - 1
INT64_MIN = -INT64_MAX - 1
FLOAT64_EXACT = 1 << 53
"""Float64 holds every integer up to this one."""


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a column."""

    data: np.ndarray
    """Int64 ticks; or, where `tick` is None, numbers of dtype int64, float64 or object."""
    tick: int | None
    """The length of a tick in attoseconds; None for plain numbers."""
    valid: np.ndarray

    @staticmethod
    def of(name: str, column: Column) -> Times:
        column = settle(column)
        if isinstance(column, Values):
            return _from_rows(name, column)
        if isinstance(column, Array) and column.data.ndim == 1 and column.data.dtype.kind in "iufM":
            return _from_array(column.data, valid_rows(column))
        raise _not_times(name)

    def bounds(self, tick: int | None, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """The times in ticks of another length, or as numbers of `dtype`, rounded down and up.

        A number beyond int64 becomes the largest or smallest int64, which no table of times holds.
        """
        if self.tick is not None and tick is not None:
            return convert_ticks(self.data, self.tick, tick)
        if self.data.dtype == dtype and not dtype.hasobject:
            return self.data, self.data
        if dtype.hasobject or self.data.dtype.hasobject:
            items = [to_exact(x) if ok else 0 for x, ok in zip(self.data, self.valid, strict=True)]
            if dtype.hasobject:
                made = object_array(items)
                return made, made
            around = _neighbouring_int64 if dtype == np.int64 else _neighbouring_float
            low, high = np.array([around(x) for x in items], dtype).reshape(-1, 2).T
            return low, high
        if dtype == np.int64:
            low, high = np.floor(self.data), np.ceil(self.data)
            return _to_int64(low, self.valid), _to_int64(high, self.valid)
        return _neighbouring_floats(self.data)


def settle(column: Column) -> Column:
    """The column without a dictionary or a union of types."""
    column = (column.expand() if isinstance(column, Dictionary) else column).settled()
    return Values(column.rows()) if isinstance(column, Union) else column


def valid_rows(column: Array) -> np.ndarray:
    """For each row, whether it is not null."""
    return np.ones(len(column), dtype=bool) if column.valid is None else column.valid


def _not_times(name: str) -> ColumnError:
    return ColumnError(f"{name!r} must hold times: one number or date per row")


def _from_array(data: np.ndarray, valid: np.ndarray) -> Times:
    if data.dtype.kind == "M":
        ticks, tick = to_ticks(data)
        return Times(ticks, tick, valid & ~np.isnat(data))
    if data.dtype.kind == "f":
        data = to_float64(data)
        return Times(data, None, valid & ~np.isnan(data))
    if data.dtype == np.uint64 and (data[valid] > INT64_MAX).any():
        return Times(data.astype(object), None, valid)
    return Times(data.astype(np.int64, copy=False), None, valid)


def to_float64(data: np.ndarray) -> np.ndarray:
    """Floats as float64; raises for floats that it cannot hold exactly."""
    made = data.astype(np.float64, copy=False)
    if data.dtype.itemsize > 8 and ((made != data) & ~np.isnan(data)).any():
        raise ColumnError(
            f"numbers of type {data.dtype} are not compared, because float64 would round them: "
            "cast them first, e.g. derive(t=sv.col('t').cast('float64'))"
        )
    return made


def to_exact(number: Any) -> Any:
    """The number as an int or a Fraction, with which Python calculates exactly; infinity stays a
    float."""
    if isinstance(number, float):
        if math.isinf(number):
            return float(number)
        return int(number) if number.is_integer() else Fraction(number)
    return number if isinstance(number, Fraction) else int(number)


def object_array(items: Sequence[Any]) -> np.ndarray:
    """The items as an array of objects."""
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


def to_ticks(data: np.ndarray) -> tuple[np.ndarray, int]:
    """Dates or durations as int64 ticks, and the length of a tick in attoseconds."""
    unit, count = np.datetime_data(data.dtype)
    if unit in ("Y", "M") and data.dtype.kind == "M":
        data, unit, count = data.astype("datetime64[D]"), "D", 1
    if unit not in ATTOSECONDS:
        raise ColumnError(f"times of unit {unit!r} cannot be compared: cast them to another unit")
    ticks = data.view(np.int64) if data.dtype.isnative else data.astype(np.int64)
    return ticks, ATTOSECONDS[unit] * count


def convert_ticks(ticks: np.ndarray, tick: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Ticks as ticks of another length, rounded down and rounded up.

    >>> millisecond, second = ATTOSECONDS["ms"], ATTOSECONDS["s"]
    >>> [part.tolist() for part in convert_ticks(np.array([1500, -1]), millisecond, second)]
    [[1, -1], [2, 0]]
    """
    if tick == to:
        return ticks, ticks
    common = math.gcd(tick, to)
    factor, divisor = tick // common, to // common
    limit = INT64_MAX // factor
    large = np.clip(ticks, -limit, limit) * factor
    large = np.where(ticks > limit, INT64_MAX, np.where(ticks < -limit, -INT64_MAX, large))
    if divisor == 1:
        return large, large
    return large // divisor, -(-large // divisor)


def parse_span(what: str, value: Any, dates: bool) -> int | float | None:
    """Checks a duration: returns attoseconds where times are dates, else a plain number."""
    if value is None:
        return None
    found: int | float | None = None
    if dates and isinstance(value, datetime.timedelta):
        found = (value // datetime.timedelta(microseconds=1)) * ATTOSECONDS["us"]
    elif dates and isinstance(value, np.timedelta64) and not np.isnat(value):
        ticks, tick = to_ticks(np.array([value]))
        found = int(ticks[0]) * tick
    elif not dates and isinstance(value, np.integer | np.floating):
        found = value.item()
    elif not dates and isinstance(value, int | float) and not isinstance(value, bool):
        found = value
    if found is None or not found >= 0:
        wanted, kinds = ("a timedelta", "dates") if dates else ("a number", "numbers")
        raise PlanError(
            f"{what} must be {wanted} that is not negative, because the times are {kinds}; it is "
            f"{value!r}"
        )
    return found


def _to_int64(data: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Integral floats as int64; those beyond it as the largest or smallest int64."""
    inside = valid & (np.abs(np.where(valid, data, 0)) < 2.0**63)
    small = np.where(inside, data, 0).astype(np.int64)
    return np.where(inside, small, np.where(data > 0, INT64_MAX, INT64_MIN))


def _neighbouring_floats(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest float that is not above each int64, and the smallest that is not below it."""
    floats = data.astype(np.float64)
    if not len(data) or (data.max() <= FLOAT64_EXACT and data.min() >= -FLOAT64_EXACT):
        return floats, floats
    above = floats >= 2.0**63  # rounded up, to what int64 cannot hold
    back = np.where(above, 0, floats).astype(np.int64)
    low = np.where(above | (back > data), np.nextafter(floats, -np.inf), floats)
    high = np.where(~above & (back < data), np.nextafter(floats, np.inf), floats)
    return low, high


def _neighbouring_int64(number: Any) -> tuple[int, int]:
    if isinstance(number, float) or not INT64_MIN < number <= INT64_MAX:
        return (INT64_MAX, INT64_MAX) if number > 0 else (INT64_MIN, INT64_MIN)
    return math.floor(number), math.ceil(number)


def _neighbouring_float(number: Any) -> tuple[float, float]:
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    low = near if near <= number else math.nextafter(near, -math.inf)
    return low, near if near >= number else math.nextafter(near, math.inf)


def _from_rows(name: str, column: Values) -> Times:
    """The times of rows that are Python numbers or dates, or None."""
    items = column.rows()
    if column.kinds <= {int, type(None)}:
        with contextlib.suppress(OverflowError):
            whole = np.array([0 if x is None else x for x in items], dtype=np.int64)
            return Times(whole, None, np.array([x is not None for x in items], dtype=bool))
    valid = np.array([x is not None and x == x for x in items], dtype=bool)  # NaN: x != x
    present = [x for x in items if x is not None]
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in present):
        return Times(_numbers_from_rows(items, valid), None, valid)
    if all(isinstance(x, datetime.date | np.datetime64) for x in present):
        return _from_array(to_datetime64(items), valid)
    raise _not_times(name)


def _numbers_from_rows(items: Sequence[Any], valid: np.ndarray) -> np.ndarray:
    """Numbers as int64 or float64, whichever holds them all exactly, or else as objects."""
    numbers = [to_exact(x) if ok else 0 for x, ok in zip(items, valid.tolist(), strict=True)]
    fractions = any(not isinstance(x, int) for x in numbers)
    if not fractions and all(INT64_MIN < x <= INT64_MAX for x in numbers):
        return np.array(numbers, dtype=np.int64)
    if all(isinstance(x, float) or not ok for x, ok in zip(items, valid.tolist(), strict=True)):
        return np.array([x if ok else 0 for x, ok in zip(items, valid, strict=True)], np.float64)
    if all(isinstance(x, float | Fraction) or abs(x) <= FLOAT64_EXACT for x in numbers):
        return np.array([float(x) for x in numbers], dtype=np.float64)
    return object_array(numbers)


def to_datetime64(items: list[Any]) -> np.ndarray:
    """Python dates and times as datetime64; times with a time zone in UTC, None as NaT."""

    def one(item: Any) -> Any:
        if isinstance(item, datetime.datetime) and item.tzinfo is not None:
            item = item.astimezone(datetime.UTC).replace(tzinfo=None)
        return np.datetime64("NaT", "us") if item is None else np.datetime64(item)

    return _in_finest_unit([one(item) for item in items])


def _in_finest_unit(dates: list[np.datetime64]) -> np.ndarray:
    """Dates in the finest of their units; raises where numpy would overflow."""
    dtypes = {date.dtype for date in dates}
    if len(dtypes) < 2:
        return np.array(dates)
    try:
        made = np.array(dates, dtype=functools.reduce(np.promote_types, dtypes))
        pairs = zip(dates, made, strict=True)
        if all(np.isnat(x) or y.astype(x.dtype) == x for x, y in pairs):
            return made
    except OverflowError:
        pass
    units = ", ".join(sorted(str(dtype) for dtype in dtypes))
    raise ColumnError(
        f"join: a column holds dates of several units ({units}), and int64 cannot count all of "
        "them in the finest: cast them to one unit"
    )
