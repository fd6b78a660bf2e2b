"""Times as numbers that can be compared: ticks of some length, or plain numbers.

Two sides of a join may count in different units. Ticks of one unit are then turned into ticks of
the other twice, rounded down and rounded up, and whoever compares takes the one that keeps the
answer exact: `a <= t` is `a <= floor(t)` and `t <= a` is `ceil(t) <= a` for any whole `a`. What
would not fit is the largest number there is: later than everything, as it should be.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Column, Grouped, Values
from silva.errors import ColumnError, PlanError

_SECOND = 10**18
SIZES = {
    "W": 7 * 86_400 * _SECOND, "D": 86_400 * _SECOND, "h": 3_600 * _SECOND, "m": 60 * _SECOND,
    "s": _SECOND, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
"""Attoseconds in a tick, by numpy's names of units."""
MOST = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a column."""

    data: np.ndarray
    """int64 ticks; or, where `tick` is None, int64 or float64 numbers."""
    tick: int | None
    """In attoseconds."""
    valid: np.ndarray

    @staticmethod
    def of(name: str, column: Column) -> Times:
        column = (column.expand() if isinstance(column, Grouped) else column).settled()
        if isinstance(column, Values):
            column = _from_rows(name, column)
        if not isinstance(column, Array) or column.data.ndim != 1 or column.data.dtype.kind in "bm":
            raise ColumnError(f"{name!r} must hold times: numbers or dates, one a row")
        data = column.data
        valid = np.ones(len(column), dtype=bool) if column.valid is None else column.valid
        if data.dtype.kind == "M":
            ticks, tick = ticks_of(data)
            return Times(ticks, tick, valid & ~np.isnat(data))
        if data.dtype.kind == "f":
            data = data.astype(np.float64)
            return Times(data, None, valid & ~np.isnan(data))
        if data.dtype.kind == "u":
            data = np.minimum(data, MOST)
        return Times(data.astype(np.int64), None, valid)

    def bounds(self, tick: int | None, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """The times in ticks of another length, rounded down and up; as whole numbers or floats."""
        if self.tick is not None and tick is not None:
            return converted(self.data, self.tick, tick)
        if not whole:
            floats = self.data.astype(np.float64)
            return floats, floats
        if self.data.dtype == np.int64:
            return self.data, self.data
        return _whole(np.floor(self.data), self.valid), _whole(np.ceil(self.data), self.valid)


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
    """Whole floats as int64; what does not fit as the largest or smallest."""
    inside = valid & (np.abs(np.where(valid, data, 0)) < 2.0**63)
    small = np.where(inside, data, 0).astype(np.int64)
    return np.where(inside, small, np.where(data > 0, MOST, -MOST))


def _from_rows(name: str, column: Values) -> Array:
    """Rows of Python's own numbers or dates, with None among them."""
    items = column.rows()
    valid = np.array([x is not None for x in items], dtype=bool)
    present = [x for x in items if x is not None]
    if all(isinstance(x, int | float) and not isinstance(x, bool) for x in present):
        whole = all(isinstance(x, int) for x in present)
        data = np.array([0 if x is None else x for x in items], np.int64 if whole else np.float64)
        return Array(data, valid)
    if all(isinstance(x, datetime.date | np.datetime64) for x in present):
        return Array(moments(items), valid)
    raise ColumnError(f"{name!r} must hold times: numbers or dates, one a row")


def moments(items: list[Any]) -> np.ndarray:
    """Python's dates and times as numpy's; those with a time zone as UTC, None as NaT."""

    def one(item: Any) -> Any:
        if isinstance(item, datetime.datetime) and item.tzinfo is not None:
            item = item.astimezone(datetime.UTC).replace(tzinfo=None)
        return np.datetime64("NaT", "us") if item is None else np.datetime64(item)

    return np.array([one(item) for item in items])
