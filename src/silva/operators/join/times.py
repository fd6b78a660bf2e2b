"""Times as numbers that can be compared: ticks of some length, or plain numbers.

Two sides of a join may count in different units. Ticks of one unit are then turned into ticks of
the other twice, rounded down and rounded up, and whoever compares takes the one that keeps the
answer exact: `a <= t` is `a <= floor(t)` and `t <= a` is `ceil(t) <= a` for any whole `a`. What
would not fit is the largest number there is: later than everything, as it should be.

Numbers are compared by value in the same way: a float among whole numbers is rounded down and up to
a whole one, and a whole number among floats to the floats beside it. Where neither int64 nor
float64 holds all numbers of a column, they are Python's own, which compares them exactly.
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
SIZES = {
    "W": 7 * 86_400 * _SECOND, "D": 86_400 * _SECOND, "h": 3_600 * _SECOND, "m": 60 * _SECOND,
    "s": _SECOND, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
"""Attoseconds in a tick, by numpy's names of units."""
MOST = (1 << 63) - 1
LEAST = -MOST - 1
EXACT = 1 << 53
"""Up to here float64 holds every whole number."""


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a column."""

    data: np.ndarray
    """int64 ticks; or, where `tick` is None, numbers: int64, float64, or Python's own (object)."""
    tick: int | None
    """In attoseconds."""
    valid: np.ndarray

    @staticmethod
    def of(name: str, column: Column) -> Times:
        column = (column.expand() if isinstance(column, Dictionary) else column).settled()
        if isinstance(column, Union):
            column = Values(column.rows())
        if isinstance(column, Values):
            return _from_rows(name, column)
        if not isinstance(column, Array) or not _may_be_times(column.data):
            raise ColumnError(f"{name!r} must hold times: numbers or dates, one a row")
        valid = np.ones(len(column), dtype=bool) if column.valid is None else column.valid
        return _from_array(column.data, valid)

    def bounds(self, tick: int | None, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """The times in ticks of another length, or as numbers of `dtype`, rounded down and up.

        Beyond int64 is its largest number, or its least, which no table of times has.
        """
        if self.tick is not None and tick is not None:
            return converted(self.data, self.tick, tick)
        if self.data.dtype == dtype and not dtype.hasobject:
            return self.data, self.data
        if dtype.hasobject or self.data.dtype.hasobject:
            items = [exact(x) if ok else 0 for x, ok in zip(self.data, self.valid, strict=True)]
            if dtype.hasobject:
                made = objects(items)
                return made, made
            around = _around_whole if dtype == np.int64 else _around_float
            low, high = np.array([around(x) for x in items], dtype).reshape(-1, 2).T
            return low, high
        if dtype == np.int64:
            return _whole(np.floor(self.data), self.valid), _whole(np.ceil(self.data), self.valid)
        return _floats_around(self.data)


def _may_be_times(data: np.ndarray) -> bool:
    return data.ndim == 1 and data.dtype.kind in "iufM"


def _from_array(data: np.ndarray, valid: np.ndarray) -> Times:
    if data.dtype.kind == "M":
        ticks, tick = ticks_of(data)
        return Times(ticks, tick, valid & ~np.isnat(data))
    if data.dtype.kind == "f":
        data = wide_float(data)
        return Times(data, None, valid & ~np.isnan(data))
    if data.dtype == np.uint64 and (data[valid] > MOST).any():
        return Times(data.astype(object), None, valid)
    return Times(data.astype(np.int64, copy=False), None, valid)


def wide_float(data: np.ndarray) -> np.ndarray:
    """Floats as float64; those that it cannot hold are refused."""
    made = data.astype(np.float64, copy=False)
    if data.dtype.itemsize > 8 and ((made != data) & ~np.isnan(data)).any():
        raise ColumnError(
            f"numbers of the type {data.dtype} are not compared: give them another one, e.g. "
            "derive(t=sv.col('t').cast('float64'))"
        )
    return made


def exact(number: Any) -> Any:
    """A number that Python adds to and compares with others exactly; infinity stays a float."""
    if isinstance(number, float):
        if math.isinf(number):
            return float(number)
        return int(number) if number.is_integer() else Fraction(number)
    return number if isinstance(number, Fraction) else int(number)


def objects(items: Sequence[Any]) -> np.ndarray:
    """Python's numbers as an array."""
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


def ticks_of(data: np.ndarray) -> tuple[np.ndarray, int]:
    """Dates, or spans of time, as int64, and the attoseconds of one."""
    unit, count = np.datetime_data(data.dtype)
    if unit in ("Y", "M") and data.dtype.kind == "M":
        data, unit, count = data.astype("datetime64[D]"), "D", 1
    if unit not in SIZES:
        raise ColumnError(f"times of the unit {unit!r} cannot be compared: give them another one")
    return data.view(np.int64) if data.dtype.isnative else data.astype(np.int64), (
        SIZES[unit] * count
    )


def converted(ticks: np.ndarray, tick: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Ticks as ticks of another length, rounded down and rounded up.

    >>> [part.tolist() for part in converted(np.array([1500, -1]), SIZES["ms"], SIZES["s"])]
    [[1, -1], [2, 0]]
    """
    if tick == to:
        return ticks, ticks
    common = math.gcd(tick, to)
    factor, divisor = tick // common, to // common
    limit = MOST // factor
    large = np.clip(ticks, -limit, limit) * factor
    large = np.where(ticks > limit, MOST, np.where(ticks < -limit, -MOST, large))
    if divisor == 1:
        return large, large
    return large // divisor, -(-large // divisor)


def span(what: str, value: Any, dates: bool) -> int | float | None:
    """A length of time: in attoseconds beside dates, a plain number beside numbers."""
    if value is None:
        return None
    wanted = "a timedelta" if dates else "a number"
    found: int | float | None = None
    if dates and isinstance(value, datetime.timedelta):
        found = (value // datetime.timedelta(microseconds=1)) * SIZES["us"]
    elif dates and isinstance(value, np.timedelta64) and not np.isnat(value):
        ticks, tick = ticks_of(np.array([value]))
        found = int(ticks[0]) * tick
    elif not dates and isinstance(value, np.integer | np.floating):
        found = value.item()
    elif not dates and isinstance(value, int | float) and not isinstance(value, bool):
        found = value
    if found is None or not found >= 0:
        raise PlanError(f"{what} is {wanted} from 0 up where times are {_kinds(dates)}: {value!r}")
    return found


def _kinds(dates: bool) -> str:
    return "dates" if dates else "numbers"


def _whole(data: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Whole floats as int64; what does not fit as the largest or least."""
    inside = valid & (np.abs(np.where(valid, data, 0)) < 2.0**63)
    small = np.where(inside, data, 0).astype(np.int64)
    return np.where(inside, small, np.where(data > 0, MOST, LEAST))


def _floats_around(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest float up to each int64, and the smallest from there."""
    floats = data.astype(np.float64)
    if not len(data) or (data.max() <= EXACT and data.min() >= -EXACT):
        return floats, floats
    above = floats >= 2.0**63  # rounded up, to what int64 cannot hold
    back = np.where(above, 0, floats).astype(np.int64)
    low = np.where(above | (back > data), np.nextafter(floats, -np.inf), floats)
    high = np.where(~above & (back < data), np.nextafter(floats, np.inf), floats)
    return low, high


def _around_whole(number: Any) -> tuple[int, int]:
    if isinstance(number, float) or not LEAST < number <= MOST:
        return (MOST, MOST) if number > 0 else (LEAST, LEAST)
    return math.floor(number), math.ceil(number)


def _around_float(number: Any) -> tuple[float, float]:
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    low = near if near <= number else math.nextafter(near, -math.inf)
    return low, near if near >= number else math.nextafter(near, math.inf)


def _from_rows(name: str, column: Values) -> Times:
    """Rows of Python's own numbers or dates, with None among them."""
    items = column.rows()
    if column.kinds <= {int, type(None)}:
        with contextlib.suppress(OverflowError):
            whole = np.array([0 if x is None else x for x in items], dtype=np.int64)
            return Times(whole, None, np.array([x is not None for x in items], dtype=bool))
    valid = np.array([x is not None and x == x for x in items], dtype=bool)  # NaN: x != x
    present = [x for x in items if x is not None]
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in present):
        return Times(_number_array(items, valid), None, valid)
    if all(isinstance(x, datetime.date | np.datetime64) for x in present):
        return _from_array(moments(items), valid)
    raise ColumnError(f"{name!r} must hold times: numbers or dates, one a row")


def _number_array(items: Sequence[Any], valid: np.ndarray) -> np.ndarray:
    """Numbers as int64 or float64, whichever holds them all as they are, or else as objects."""
    numbers = [exact(x) if ok else 0 for x, ok in zip(items, valid.tolist(), strict=True)]
    fractions = any(not isinstance(x, int) for x in numbers)
    if not fractions and all(LEAST < x <= MOST for x in numbers):
        return np.array(numbers, dtype=np.int64)
    if all(isinstance(x, float) or not ok for x, ok in zip(items, valid.tolist(), strict=True)):
        return np.array([x if ok else 0 for x, ok in zip(items, valid, strict=True)], np.float64)
    if all(isinstance(x, float | Fraction) or abs(x) <= EXACT for x in numbers):
        return np.array([float(x) for x in numbers], dtype=np.float64)
    return objects(numbers)


def moments(items: list[Any]) -> np.ndarray:
    """Python's dates and times as numpy's; those with a time zone as UTC, None as NaT."""

    def one(item: Any) -> Any:
        if isinstance(item, datetime.datetime) and item.tzinfo is not None:
            item = item.astimezone(datetime.UTC).replace(tzinfo=None)
        return np.datetime64("NaT", "us") if item is None else np.datetime64(item)

    return _one_unit([one(item) for item in items])


def _one_unit(dates: list[np.datetime64]) -> np.ndarray:
    """Dates in the finest of their units, into which numpy would turn them with an overflow."""
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
        f"join: a column holds dates of several units ({units}), too far apart to be counted in "
        "the finest of them: give them one unit"
    )
