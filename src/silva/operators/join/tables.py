"""What joins look rows up in: made once of the other side, then asked with whole columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Lists, Strings, Values, concat
from silva.errors import ColumnError, PlanError
from silva.operators.join.keys import Keys
from silva.operators.join.times import EXACT, LEAST, MOST, Times, exact, objects, span
from silva.plan.expr import Call, walk
from silva.plan.fingerprint import digest
from silva.plan.identity import tagged

_FRACTIONS = 1 << 32
"""Whole numbers up to here keep 20 binary digits of a fraction that is added to them as floats."""


@tagged("Held", "made_of shown opaque")
@dataclass(frozen=True, repr=False)
class Held:
    """What a join looks into, as the parameter of its operator: compared and fingerprinted by what
    it was made of, and shown as it was in the plan."""

    made_of: str
    shown: str
    opaque: tuple[str, ...]
    """What in its plan has no stable fingerprint."""

    @staticmethod
    def of(inside: Any, made_of: str, shown: str, opaque: tuple[str, ...]) -> Held:
        held = Held(made_of, shown, opaque)
        held.__dict__["inside"] = inside  # no field: it would be hashed, and compared
        return held

    def __repr__(self) -> str:
        return self.shown

    @property
    def table(self) -> Any:
        """A `KeyTable`, a `TimeTable`, or a dict of columns."""
        return self.__dict__["inside"]

    def contents(self) -> str:
        """A hash of all that is in it."""
        if not isinstance(self.table, dict):
            return digest(self.table)
        plain = {n: c.data if isinstance(c, Array) else c.rows() for n, c in self.table.items()}
        valid = [c.valid for c in self.table.values() if isinstance(c, Array)]
        return digest((plain, valid))


def held_in(term: Any) -> list[Held]:
    """The tables that a term looks into, once it is lowered."""
    if not isinstance(term, Call):
        return []
    calls = [part for part in walk(term) if isinstance(part, Call)]
    return [value for call in calls for _, value in call.params if isinstance(value, Held)]


@tagged("KeyTable", "keys rows")
@dataclass(frozen=True, eq=False)
class KeyTable:
    """Finds the one row that has a key."""

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
                "multiply rows: keep one row a key there, or gather its values in a list, join "
                "that, and explode it"
            )
        return KeyTable(keys, rows)

    def find(self, columns: Sequence[Column]) -> np.ndarray:
        """The row for each row of the keys; -1 where there is none."""
        found = self.keys.find(columns)
        return _at(self.rows, found)


@tagged("TimeTable", "keys time tick moments places starts best times ttl")
@dataclass(frozen=True, eq=False)
class TimeTable:
    """Finds, of the rows with a key, the latest that was known by some time.

    Rows are sorted by (key, when they were known). `best` is the latest by its own time among those
    of the key up to there: with late arrivals, not always the one that arrived last. Key and time
    are one number (key × times + place of the time), so that one bisection answers for both.
    """

    keys: Keys
    time: str
    tick: int | None
    moments: np.ndarray
    """All times at which rows became known, sorted, each once."""
    places: np.ndarray
    """Key and moment of each row, as one number, sorted."""
    starts: np.ndarray
    """Where the rows of each key begin, and where the last ends."""
    best: np.ndarray
    """Up to each place: the row to take."""
    times: np.ndarray
    """Its own time."""
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
        """`lag` and `ttl` as the user gave them."""
        known, codes = Keys.of(names, keys)
        event, seen, lasts = _one_unit(time, available, lag, ttl)
        rows = np.flatnonzero((codes >= 0) & seen.valid)
        code, at, visible = codes[rows], event.data[rows], seen.data[rows]
        moments, moment = np.unique(visible, return_inverse=True)
        ranked = np.unique(at, return_inverse=True)[1] if at.dtype == object else at
        by_time = np.lexsort((ranked, code))  # stable: of equal times the last stays last
        rank = np.empty(len(rows), dtype=np.int64)
        rank[by_time] = np.arange(len(rows))
        order = np.lexsort((moment, code))
        # keys ascend, and so do ranks from key to key: no maximum reaches into the next key
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
        """The row for each row of the keys and the time; -1 where there is none."""
        *keys, time = columns
        times = Times.of(self.time, time)
        unlike = (times.tick is None) != (self.tick is None)
        if unlike and len(self.best) and times.valid.any():
            raise ColumnError(
                f"asof_join: {self.time!r} holds dates on one side and numbers on the other"
            )
        low, high = times.bounds(self.tick, self.moments.dtype)
        if (
            self.tick is not None
        ):  # a sum that is too large is later than any time that is asked for
            low = np.minimum(low, MOST - 1)
        code = self.keys.find(keys)
        moment = np.searchsorted(self.moments, low, side="right") - 1
        place = np.searchsorted(self.places, code * (len(self.moments) + 1) + moment, "right") - 1
        found = (code >= 0) & times.valid & (moment >= 0) & (place >= self.starts[code])
        if self.ttl is not None:
            at = _at(self.times, np.where(found, place, -1))
            found &= self._still_counts(at, high)
        return _at(self.best, np.where(found, place, -1))

    def _still_counts(self, at: np.ndarray, now: np.ndarray) -> np.ndarray:
        if self.moments.dtype == np.float64:
            recent: np.ndarray = now - at <= self.ttl
            return recent
        return np.asarray(now <= _plus(at, self.ttl), dtype=bool)

    def last(self, columns: Sequence[Column]) -> np.ndarray:
        """The latest row of each key, whenever that was."""
        code = self.keys.find(columns)
        ends = np.where(code >= 0, self.starts[code + 1], 0)
        has = (code >= 0) & (ends > self.starts[code])
        return _at(self.best, np.where(has, ends - 1, -1))


Named = tuple[str, Column]


def visible_from(time: Named, available: Named | None, lag: Any) -> Times:
    """When each row begins to count: its time and the lag, or when it was available if later."""
    return _one_unit(time, available, lag, None)[1]


def _one_unit(
    time: Named, available: Named | None, lag: Any, ttl: Any
) -> tuple[Times, Times, int | float | None]:
    """Times, when rows begin to count, and ttl, all in the finest of their units."""
    event = Times.of(*time)
    known = event if available is None else Times.of(*available)
    if not (event.valid & known.valid).any():  # nothing tells whether these would be dates
        nothing = Times(np.zeros(len(event.data), np.int64), None, event.valid & known.valid)
        return nothing, nothing, None
    if available is not None and (event.tick is None) != (known.tick is None):
        raise ColumnError(f"asof_join: of {time[0]!r} and {available[0]!r} one holds dates")
    dates = event.tick is not None
    late, lasts = span("lag", lag, dates), span("ttl", ttl, dates)
    spans = [x for x in (late, lasts) if x is not None]
    if event.tick is not None and known.tick is not None:
        tick = math.gcd(event.tick, known.tick, *map(int, spans))
        event, known = _in(tick, time[0], event), _in(tick, (available or time)[0], known)
        late, lasts = (None if x is None else int(x) // tick for x in (late, lasts))
    else:
        late, lasts = (_whole_span(x) for x in (late, lasts))
        event, known = _one_type((event, known), [x for x in (late, lasts) if x is not None])
    visible = np.maximum(_plus(event.data, late), known.data)
    return event, Times(visible, event.tick, event.valid & known.valid), lasts


def _whole_span(span: int | float | None) -> int | float | None:
    return int(span) if isinstance(span, float) and span.is_integer() else span


def _one_type(columns: tuple[Times, Times], spans: list[int | float]) -> tuple[Times, Times]:
    """Numbers as int64 or float64, whichever holds them all, and with the spans added, as they
    are; or else as Python's own."""
    most = sum(min(x, MOST) for x in spans if isinstance(x, int))
    broken = any(isinstance(x, float) for x in spans)
    dtype: np.dtype = np.dtype(object)
    if not broken and all(_fit_whole(times, most) for times in columns):
        dtype = np.dtype(np.int64)
    elif all(_fit_floats(times, most, broken, bool(spans)) for times in columns):
        dtype = np.dtype(np.float64)
    first, second = (Times(t.bounds(None, dtype)[0], None, t.valid) for t in columns)
    return first, second


def _fit_whole(times: Times, more: int) -> bool:
    data = times.data[times.valid]
    if data.dtype == np.float64:
        inside = (np.abs(data) < 2.0**63 - more) & (np.trunc(data) == data)
        return bool(inside.all())
    if data.dtype == object:
        return False
    return not len(data) or (int(data.min()) > LEAST and int(data.max()) < MOST - more)


def _fit_floats(times: Times, more: int, broken: bool, added: bool) -> bool:
    """Where something is added, floats so large that they are all whole are no better than ints."""
    data = times.data[times.valid]
    if data.dtype == object:
        return False
    if data.dtype == np.float64:
        return not added or bool((np.abs(data[np.isfinite(data)]) <= EXACT - more).all())
    most = _FRACTIONS if broken else EXACT - more
    return not len(data) or (int(data.max()) <= most and int(data.min()) >= -most)


def _in(tick: int, name: str, times: Times) -> Times:
    low, _ = times.bounds(tick, times.data.dtype)
    if (np.abs(low[times.valid]) == MOST).any():
        raise ColumnError(
            f"asof_join: {name!r} has times too far away to be counted in the finest unit of its "
            "times, lag and ttl: give them coarser ones"
        )
    return Times(low, tick, times.valid)


def _plus(data: np.ndarray, more: int | float | None) -> np.ndarray:
    """The sum, or the largest number where that is too large."""
    if more is None:
        return data
    if data.dtype == object:
        return objects([_sum(x, exact(more)) for x in data])
    if data.dtype != np.int64:
        return data + more
    more = int(min(more, MOST))
    return np.where(data > MOST - more, MOST, data + np.minimum(more, MOST - np.maximum(data, 0)))


def _sum(number: Any, more: Any) -> Any:
    for one in (number, more):
        if isinstance(one, float):  # infinite
            return one
    return number + more


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The values at places; -1 for -1."""
    if not len(values):
        return np.full(len(places), -1, dtype=np.int64)
    return np.where(places >= 0, values[places], -1)


def take(column: Column, rows: np.ndarray) -> Column:
    """The rows of a column with these numbers; null for -1."""
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
