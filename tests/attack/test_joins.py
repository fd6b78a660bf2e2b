"""Joins by numbers that no one type of numpy holds: each answer is that of exact fractions."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

import silva as sv
from silva.columns import Array, Values, concat
from silva.operators.join.tables import KeyTable, TimeTable

_EDGES = [0, 1, 2**53, 2**60, 2**63, 2**64, -(2**53), -(2**63)]


def _number(rng, beyond):
    """A whole number or float near where float64, int64 or uint64 ends; or NaN, or None."""
    edge, kind = rng.choice(_EDGES), rng.random()
    if kind < 0.5:
        whole = edge + rng.randint(-3, 3)
        return whole if beyond or -(2**63) <= whole < 2**64 else edge // 2
    if kind < 0.85:
        near = float(edge)
        for _ in range(rng.randint(0, 2)):
            near = math.nextafter(near, rng.choice([-math.inf, math.inf]))
        return near
    return rng.choice([math.nan, None, math.inf, -math.inf, -0.0, 0.5, 1e300])


def _column(rng, count, beyond=False):
    """Some numbers, and a column that holds them in one of several ways."""
    items = [_number(rng, beyond) for _ in range(count)]
    match rng.randint(0, 4):
        case 0:
            return items, Values(list(items)).settled()
        case 1:
            items = [x for x in items if isinstance(x, int) and -(2**63) <= x < 2**63]
            return items, Array(np.array(items, np.int64))
        case 2:
            items = [x for x in items if isinstance(x, int) and 0 <= x < 2**64]
            return items, Array(np.array(items, np.uint64))
        case 3:
            items = [x for x in items if isinstance(x, float)]
            return items, Array(np.array(items, np.float64))
    (one, first), (other, second) = (_column(rng, count // 2 + 1, beyond) for _ in range(2))
    return one + other, concat([first, second])


def _there(x):
    return x is not None and x == x


def _exact(x):
    return x if isinstance(x, float) and math.isinf(x) else Fraction(x)


def _later(x, span):
    return x if isinstance(x, float) else x + Fraction(span)


@pytest.mark.attacks("No row sees the future")
def test_keys_are_equal_exactly_where_their_values_are():
    for seed in range(400):
        rng = random.Random(seed)
        (known, column), (asked, spine) = _column(rng, 8), _column(rng, 12)
        once = [i for i, x in enumerate(known) if not _there(x) or known.index(x) == i]
        known, column = [known[i] for i in once], column.take(np.array(once, np.int64))
        expected = [known.index(x) if _there(x) and x in known else -1 for x in asked]
        assert KeyTable.of(("k",), [column]).find([spine]).tolist() == expected, seed


@pytest.mark.attacks("No row sees the future")
def test_times_are_compared_exactly():
    for seed in range(400):
        rng = random.Random(seed)
        (times, column), (asked, spine) = _column(rng, 8, True), _column(rng, 12, True)
        if not times or not asked:
            continue
        late = [_number(rng, True) for _ in times] if rng.random() < 0.3 else times
        available = None if late is times else ("a", Values(list(late)).settled())
        lag = rng.choice([0, 1, 3, 2.0, 2**60])
        ttl = rng.choice([None, 1, 5, 4.0, 2**60])
        of, by = ([rng.randint(0, 1) for _ in some] for some in (times, asked))
        table = TimeTable.of(("k",), [Array(np.array(of))], ("t", column), available, lag, ttl)
        found = table.find([Array(np.array(by)), spine]).tolist()
        rows = list(zip(of, times, late, strict=True))
        questions = zip(by, asked, strict=True)
        assert found == [_definition(rows, *asks, lag, ttl) for asks in questions], seed


def _definition(rows, key, now, lag, ttl):
    best = -1
    for i, (own, time, late) in enumerate(rows):
        if own != key or not (_there(now) and _there(time) and _there(late)):
            continue
        known = max(_later(_exact(time), lag), _exact(late)) <= _exact(now)
        if known and (best < 0 or _exact(time) >= _exact(rows[best][1])):
            best = i
    if best >= 0 and ttl is not None and _exact(now) > _later(_exact(rows[best][1]), ttl):
        return -1
    return best


@pytest.mark.attacks("No row sees the future")
@pytest.mark.parametrize("odd", [1.5, math.nan, 2**64, math.inf, None])
def test_one_odd_time_among_nanoseconds_shows_no_row_the_future(odd):
    features = {"k": [1, 1], "t": [2**60 + 100, odd], "v": ["future", "odd"]}
    spine = sv.from_items([{"k": 1, "t": 2**60}])
    (row,) = spine.asof_join(features, by="k", on="t").head(1)
    latest = sv.Latest(features, by="k", on="t").get([1], at=2**60)["v"].tolist()
    assert [row["v"]] == latest == ["odd" if odd == 1.5 else None]


@pytest.mark.attacks("No row sees the future")
def test_a_ttl_or_lag_that_is_a_float_rounds_no_time():
    features = {"k": [1, 1], "t": [2**60 + 100, 2**60 - 1], "v": ["future", "past"]}
    spine = sv.from_items([{"k": 1, "t": 2**60}])
    for spans in ({"ttl": 1e9}, {"lag": 0.5}, {"lag": 0.5, "ttl": 1.0}, {"ttl": 1.5}):
        assert spine.asof_join(features, by="k", on="t", **spans).head(1)[0]["v"] == "past"


@pytest.mark.attacks("No row sees the future")
def test_dates_that_their_finest_unit_cannot_hold_are_refused():
    far = [np.datetime64("9999-01-01", "D"), np.datetime64(1, "ns")]
    spine = sv.from_items([{"k": 1, "t": np.datetime64("1900-01-01", "D")}])
    with pytest.raises(sv.ColumnError, match="several units"):
        spine.asof_join({"k": [1, 1], "t": far, "v": [1, 2]}, by="k", on="t").head(1)


@pytest.mark.attacks("No row sees the future")
@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="longdouble is float64 here")
def test_numbers_wider_than_float64_are_refused_where_they_would_be_rounded():
    wide = np.array([2**60 + 1], np.longdouble)
    with pytest.raises(sv.ColumnError, match="are not compared"):
        KeyTable.of(("k",), [Array(wide)])
