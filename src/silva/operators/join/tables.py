"""Lookup tables of joins: built once from the right side, then searched with whole columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Lists, Strings, Values, concat
from silva.errors import ColumnError, PlanError
from silva.operators.join.keys import Keys
from silva.operators.join.times import (
    FLOAT64_EXACT,
    INT64_MAX,
    INT64_MIN,
    Times,
    object_array,
    parse_span,
    to_exact,
)
from silva.plan.class_tags import tagged
from silva.plan.expr import Call, walk
from silva.plan.fingerprint import digest

_FRACTIONS = 1 << 32
"""An integer up to this one, as a float, keeps 20 bits of a fraction that is added to it."""


@tagged("Held", "made_of shown opaque")
@dataclass(frozen=True, repr=False)
class Held:
    """A lookup table as the parameter of a join's operator: compared and fingerprinted by what it
    was built from, and printed as in the plan."""

    made_of: str
    shown: str
    opaque: tuple[str, ...]
    """The parts of its plan that have no stable fingerprint."""

    @staticmethod
    def of(inside: Any, made_of: str, shown: str, opaque: tuple[str, ...]) -> Held:
        held = Held(made_of, shown, opaque)
        held.__dict__["inside"] = inside  # not a field, which would be hashed and compared
        return held

    def __repr__(self) -> str:
        return self.shown

    @property
    def table(self) -> Any:
        """A `KeyTable`, a `TimeTable`, or a dict of columns."""
        return self.__dict__["inside"]

    def contents(self) -> str:
        """A hash of its contents."""
        if not isinstance(self.table, dict):
            return digest(self.table)
        plain = {n: c.data if isinstance(c, Array) else c.rows() for n, c in self.table.items()}
        valid = [c.valid for c in self.table.values() if isinstance(c, Array)]
        return digest((plain, valid))


def held_in(term: Any) -> list[Held]:
    """The lookup tables of a term in a lowered plan."""
    if not isinstance(term, Call):
        return []
    calls = [part for part in walk(term) if isinstance(part, Call)]
    return [value for call in calls for _, value in call.params if isinstance(value, Held)]


@tagged("KeyTable", "keys rows")
@dataclass(frozen=True, eq=False)
class KeyTable:
    """Finds the row with a key; no two rows have the same key."""

    keys: Keys
    rows: np.ndarray
    """The row of each key."""

    @staticmethod
    def of(names: tuple[str, ...], columns: Sequence[Column]) -> KeyTable:
        keys, codes = Keys.of(names, columns)
        present = np.flatnonzero(codes >= 0)
        rows = np.full(len(keys), -1, dtype=np.int64)
        rows[codes[present]] = present
        twice = np.flatnonzero(rows[codes[present]] != present)
        if len(twice):
            row = int(present[twice[0]])
            shown = ", ".join(
                f"{name}={column.slice(row, row + 1).rows()[0]!r}"
                for name, column in zip(names, columns, strict=True)
            )
            raise PlanError(
                f"join: the other side has the key {shown} more than once, and a join does not "
                "multiply rows: keep one row per key there, or collect the values of a key in a "
                "list, join that, and explode it"
            )
        return KeyTable(keys, rows)

    def find(self, columns: Sequence[Column]) -> np.ndarray:
        """The number of the row with each key; -1 where there is none."""
        return _pick(self.rows, self.keys.find(columns))


@tagged("TimeTable", "keys time tick moments places starts best times ttl")
@dataclass(frozen=True, eq=False)
class TimeTable:
    """Finds the latest row of a key that was known by a given time.

    Rows are sorted by (key, time at which they became known). `best` is the row with the latest
    event time among the rows of the key up to that place; with late arrivals, it is not always the
    row that arrived last. Key and time are combined into one number (key × times + index of the
    time), so that one binary search finds both.
    """

    keys: Keys
    time: str
    tick: int | None
    moments: np.ndarray
    """The distinct times at which rows became known, sorted."""
    places: np.ndarray
    """The key and moment of each row as one number, sorted."""
    starts: np.ndarray
    """The place of the first row of each key, and at the end the number of rows."""
    best: np.ndarray
    """For each place, the row to return."""
    times: np.ndarray
    """The event time of that row."""
    ttl: int | float | None

    @staticmethod
    def of(
        names: tuple[str, ...],
        keys: Sequence[Column],
        time: Named,
        available: Named | None,
        lag: Any,
        ttl: Any,
    ) -> TimeTable:
        """Builds the table; `lag` and `ttl` are the user's arguments."""
        known, codes = Keys.of(names, keys)
        event, seen, lasts = _align_units(time, available, lag, ttl)
        rows = np.flatnonzero((codes >= 0) & seen.valid)
        code, at, visible = codes[rows], event.data[rows], seen.data[rows]
        moments, moment = np.unique(visible, return_inverse=True)
        ranked = np.unique(at, return_inverse=True)[1] if at.dtype == object else at
        by_time = np.lexsort((ranked, code))  # stable: among equal times, the last row stays last
        rank = np.empty(len(rows), dtype=np.int64)
        rank[by_time] = np.arange(len(rows))
        order = np.lexsort((moment, code))
        # ranks ascend with keys, so that a maximum never carries over to the next key
        best = by_time[np.maximum.accumulate(rank[order])] if len(rows) else order
        return TimeTable(
            known,
            time[0],
            event.tick,
            moments,
            code[order] * (len(moments) + 1) + moment[order],
            np.searchsorted(code[order], np.arange(len(known) + 1)),
            rows[best],
            at[best],
            lasts,
        )

    def find(self, columns: Sequence[Column]) -> np.ndarray:
        """The number of the row for each key and time; -1 where there is none."""
        *keys, time = columns
        times = Times.of(self.time, time)
        unlike = (times.tick is None) != (self.tick is None)
        if unlike and len(self.best) and times.valid.any():
            raise ColumnError(
                f"asof_join: {self.time!r} holds dates on one side and numbers on the other: use "
                "one kind on both sides"
            )
        low, high = times.bounds(self.tick, self.moments.dtype)
        if self.tick is not None:  # a row whose time plus lag overflowed is never visible
            low = np.minimum(low, INT64_MAX - 1)
        code = self.keys.find(keys)
        moment = np.searchsorted(self.moments, low, side="right") - 1
        place = np.searchsorted(self.places, code * (len(self.moments) + 1) + moment, "right") - 1
        found = (code >= 0) & times.valid & (moment >= 0) & (place >= self.starts[code])
        if self.ttl is not None:
            at = _pick(self.times, np.where(found, place, -1))
            found &= self._still_counts(at, high)
        return _pick(self.best, np.where(found, place, -1))

    def _still_counts(self, at: np.ndarray, now: np.ndarray) -> np.ndarray:
        if self.moments.dtype == np.float64:
            recent: np.ndarray = now - at <= self.ttl
            return recent
        return np.asarray(now <= _add(at, self.ttl), dtype=bool)

    def last(self, columns: Sequence[Column]) -> np.ndarray:
        """The number of the latest row of each key, at whatever time; -1 where there is none."""
        code = self.keys.find(columns)
        ends = np.where(code >= 0, self.starts[code + 1], 0)
        has = (code >= 0) & (ends > self.starts[code])
        return _pick(self.best, np.where(has, ends - 1, -1))


Named = tuple[str, Column]


def visible_from(time: Named, available: Named | None, lag: Any) -> Times:
    """The time from which each row is visible: its time plus the lag, or the time at which it
    became available if that is later."""
    return _align_units(time, available, lag, None)[1]


def _align_units(
    time: Named, available: Named | None, lag: Any, ttl: Any
) -> tuple[Times, Times, int | float | None]:
    """Event times, the times from which rows are visible, and the ttl, all in the finest of their
    units."""
    event = Times.of(*time)
    known = event if available is None else Times.of(*available)
    if not (event.valid & known.valid).any():  # no value: the kind of the times is unknown
        nothing = Times(np.zeros(len(event.data), np.int64), None, event.valid & known.valid)
        return nothing, nothing, None
    if available is not None and (event.tick is None) != (known.tick is None):
        raise ColumnError(
            f"asof_join: of {time[0]!r} and {available[0]!r}, one holds dates and the other "
            "numbers: use one kind for both"
        )
    dates = event.tick is not None
    late, lasts = parse_span("lag", lag, dates), parse_span("ttl", ttl, dates)
    spans = [x for x in (late, lasts) if x is not None]
    if event.tick is not None and known.tick is not None:
        tick = math.gcd(event.tick, known.tick, *map(int, spans))
        event = _in_ticks(tick, time[0], event)
        known = _in_ticks(tick, (available or time)[0], known)
        late, lasts = (None if x is None else int(x) // tick for x in (late, lasts))
    else:
        late, lasts = (_as_whole(x) for x in (late, lasts))
        event, known = _align_types((event, known), [x for x in (late, lasts) if x is not None])
    visible = np.maximum(_add(event.data, late), known.data)
    return event, Times(visible, event.tick, event.valid & known.valid), lasts


def _as_whole(span: int | float | None) -> int | float | None:
    return int(span) if isinstance(span, float) and span.is_integer() else span


def _align_types(columns: tuple[Times, Times], spans: list[int | float]) -> tuple[Times, Times]:
    """Numbers as int64 or float64, whichever holds them all exactly, also with the spans added; or
    else as objects."""
    most = sum(min(x, INT64_MAX) for x in spans if isinstance(x, int))
    broken = any(isinstance(x, float) for x in spans)
    dtype: np.dtype = np.dtype(object)
    if not broken and all(_fit_int64(times, most) for times in columns):
        dtype = np.dtype(np.int64)
    elif all(_fit_float64(times, most, broken, bool(spans)) for times in columns):
        dtype = np.dtype(np.float64)
    first, second = (Times(t.bounds(None, dtype)[0], None, t.valid) for t in columns)
    return first, second


def _fit_int64(times: Times, more: int) -> bool:
    data = times.data[times.valid]
    if data.dtype == np.float64:
        inside = (np.abs(data) < 2.0**63 - more) & (np.trunc(data) == data)
        return bool(inside.all())
    if data.dtype == object:
        return False
    return not len(data) or (int(data.min()) > INT64_MIN and int(data.max()) < INT64_MAX - more)


def _fit_float64(times: Times, more: int, broken: bool, added: bool) -> bool:
    """Whether float64 is exact; where spans are added, only for numbers that leave room for the
    bits of the sum."""
    data = times.data[times.valid]
    if data.dtype == object:
        return False
    if data.dtype == np.float64:
        return not added or bool((np.abs(data[np.isfinite(data)]) <= FLOAT64_EXACT - more).all())
    most = _FRACTIONS if broken else FLOAT64_EXACT - more
    return not len(data) or (int(data.max()) <= most and int(data.min()) >= -most)


def _in_ticks(tick: int, name: str, times: Times) -> Times:
    low, _ = times.bounds(tick, times.data.dtype)
    if (np.abs(low[times.valid]) == INT64_MAX).any():
        raise ColumnError(
            f"asof_join: {name!r} has times that int64 cannot count in the finest unit of the "
            "times, lag and ttl: use a coarser unit"
        )
    return Times(low, tick, times.valid)


def _add(data: np.ndarray, more: int | float | None) -> np.ndarray:
    """The sum, or the largest int64 where it would overflow."""
    if more is None:
        return data
    if data.dtype == object:
        return object_array([_add_exact(x, to_exact(more)) for x in data])
    if data.dtype != np.int64:
        return data + more
    more = int(min(more, INT64_MAX))
    room = INT64_MAX - np.maximum(data, 0)
    total: np.ndarray = data + np.minimum(more, room)
    return total


def _add_exact(number: Any, more: Any) -> Any:
    infinite = [x for x in (number, more) if isinstance(x, float)]  # see `to_exact`
    return infinite[0] if infinite else number + more


def _pick(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The values at these places; -1 where the place is -1."""
    if not len(values):
        return np.full(len(places), -1, dtype=np.int64)
    return np.where(places >= 0, values[places], -1)


def take(column: Column, rows: np.ndarray) -> Column:
    """The rows of a column with these numbers; null where the number is -1."""
    found = rows >= 0
    if found.all():
        return column.take(rows)
    if not len(column):
        return _nulls(column, len(rows))
    safe = np.where(found, rows, 0)
    match column:
        case Array():
            picked = column.take(safe)
            picked.data[~found] = np.zeros((), dtype=picked.data.dtype)
            return Array(picked.data, found if picked.valid is None else found & picked.valid)
        case Lists():
            return _take_lists(column, rows[found], found)
        case Strings():
            import pyarrow as pa

            return Strings(column.data.take(pa.array(rows, mask=~found)))
        case Dictionary():
            return take(column.expand(), rows)
    return concat([column, Values([None])]).take(np.where(found, rows, len(column)))


def _take_lists(column: Lists, rows: np.ndarray, found: np.ndarray) -> Lists:
    picked = column.take(rows)
    lengths = np.zeros(len(found) + 1, dtype=np.int64)
    lengths[1:][found] = np.diff(picked.offsets)
    valid = found.copy()
    if picked.valid is not None:
        valid[found] = picked.valid
    return Lists(picked.values, np.cumsum(lengths), valid)


def _nulls(column: Column, count: int) -> Column:
    nothing = np.zeros(count, dtype=bool)
    if isinstance(column, Array):
        return Array(np.zeros((count, *column.data.shape[1:]), column.data.dtype), nothing)
    return Values([None] * count)
