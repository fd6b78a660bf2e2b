"""`asof_join`: what was known by the time of each row, and nothing later."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import silva as sv
from silva.testing import assert_same_stream


def reference(spine, features, *, ttl=None, lag=0, available=None) -> list[Any]:
    """Row by row, as the definition says: (user, time) → the value `v`."""
    found = []
    for user, now in zip(spine["user"], spine["ts"], strict=True):
        best = None
        for i, (other, at) in enumerate(zip(features["user"], features["ts"], strict=True)):
            known = None if available is None else features[available][i]
            if user is None or other is None or now is None or at is None or other != user:
                continue
            if available is not None and (known is None or known > now):
                continue
            if at + lag > now:
                continue
            if best is None or at >= best[0]:
                best = (at, features["v"][i])
        if best is not None and ttl is not None and now - best[0] > ttl:
            best = None
        found.append(None if best is None else best[1])
    return found


def joined(spine, features, **arguments) -> list[Any]:
    rows = sv.from_columns(spine).asof_join(features, by="user", on="ts", columns="v", **arguments)
    return [row["v"] for row in rows.loader(workers=0)]


SPINE = {"user": [1, 1, 1, 2, 3], "ts": [9, 10, 99, 10, 10]}
FEATURES = {"user": [1, 2, 1, 1], "ts": [20, 11, 10, 10], "v": [0, 1, 2, 3]}


def test_the_latest_row_that_is_not_later_is_joined_and_the_last_of_equal_times():
    assert joined(SPINE, FEATURES) == [None, 3, 0, None, None]


def test_a_row_is_joined_from_its_lag_until_its_ttl():
    assert joined(SPINE, FEATURES, ttl=79) == [None, 3, 0, None, None]
    assert joined(SPINE, FEATURES, ttl=78) == [None, 3, None, None, None]
    assert joined(SPINE, FEATURES, lag=1) == [None, None, 0, None, None]
    assert joined({"user": [1], "ts": [11]}, FEATURES, lag=1) == [3]


def test_a_row_that_became_known_late_is_not_seen_before():
    late = {"user": [1, 1], "ts": [1, 2], "known": [50, 3], "v": ["early", "late"]}
    times = {"user": [1, 1, 1], "ts": [2, 3, 60]}
    assert joined(times, late, available="known") == [None, "late", "late"]
    swapped = {**late, "known": [3, 50]}
    assert joined(times, swapped, available="known") == [None, "early", "late"]


def test_nulls_match_nothing_on_either_side():
    spine = {"user": [1, None, 1], "ts": [10, 10, None]}
    features = {"user": [None, 1, 1], "ts": [1, None, 5], "v": [0, 1, 2]}
    assert joined(spine, features) == [2, None, None]
    nan = {"user": [1, 1], "ts": [float("nan"), 9.0]}
    assert joined(nan, {"user": [1, 1], "ts": [1.0, float("nan")], "v": [0, 1]}) == [None, 0]


@pytest.mark.parametrize("ours", ["s", "ms", "us", "ns", "D"])
@pytest.mark.parametrize("theirs", ["s", "ms", "us", "ns", "D"])
def test_dates_of_any_unit_are_compared_exactly(ours, theirs):
    day = 86_400
    spine = {"user": [1] * 4, "ts": np.array([0, 1, 2, 3], "M8[D]").astype(f"M8[{ours}]")}
    at = np.array([1, 2], "M8[D]").astype(f"M8[{theirs}]")
    features = {"user": [1, 1], "ts": at, "v": [10, 20]}
    assert joined(spine, features) == [None, 10, 20, 20]
    assert joined(spine, features, ttl=datetime.timedelta(hours=23)) == [None, 10, 20, None]
    assert joined(spine, features, lag=np.timedelta64(day, "s")) == [None, None, 10, 20]


def test_a_spine_with_a_finer_unit_does_not_see_later_rows_of_the_same_second():
    spine = {"user": [1, 1], "ts": np.array([1_999, 2_000], "M8[ms]")}
    features = {"user": [1], "ts": np.array([2], "M8[s]"), "v": [7]}
    assert joined(spine, features) == [None, 7]
    spine = {"user": [1, 1], "ts": np.array([3_000, 3_001], "M8[ms]")}
    assert joined(spine, features, ttl=datetime.timedelta(seconds=1)) == [7, None]


def test_dates_far_away_are_later_than_everything():
    spine = {"user": [1], "ts": np.array(["9999-12-31"], "M8[D]")}
    features = {"user": [1], "ts": np.array(["2020-01-01"], "M8[ns]"), "v": [7]}
    assert joined(spine, features) == [7]
    assert joined(spine, features, ttl=np.timedelta64(1, "D")) == [None]


def test_arrow_timestamps_and_python_datetimes_are_dates():
    utc = datetime.UTC
    moments = [datetime.datetime(2020, 1, 1, tzinfo=utc), None]
    spine = sv.from_items([{"user": "a", "ts": at} for at in moments])
    table = pa.table(
        {
            "user": ["a", "b"],
            "ts": pa.array([datetime.datetime(2019, 12, 31, 23)] * 2, pa.timestamp("us")),
            "v": [1, 2],
        }
    )
    rows = spine.asof_join(table, by="user", on="ts", ttl=datetime.timedelta(hours=1))
    assert [row["v"] for row in rows] == [1, None]


def test_whole_times_and_floats_are_compared_exactly():
    features = {"user": [1, 1], "ts": [2**53, 2**53 + 1], "v": [0, 1]}
    assert joined({"user": [1, 1], "ts": [2**53, 2**53 + 1]}, features) == [0, 1]
    assert joined({"user": [1, 1], "ts": [2.5, np.inf]}, {"user": [1], "ts": [2], "v": [5]}) == [
        5,
        5,
    ]


def test_several_keys_and_other_names():
    spine = sv.from_columns({"u": [1, 1], "shop": ["a", "b"], "now": [5, 5]})
    features = {"user": [1, 1], "shop": ["a", "b"], "at": [4, 6], "v": [1, 2]}
    rows = spine.asof_join(features, by={"u": "user", "shop": "shop"}, on={"now": "at"})
    assert [row["v"] for row in rows] == [1, None]


def test_asof_joins_can_be_chained():
    spine = sv.from_columns(SPINE)
    other = {"user": [3, 1], "ts": [1, 50], "w": ["x", "y"]}
    rows = spine.asof_join(FEATURES, by="user", on="ts").asof_join(other, by="user", on="ts")
    assert [(row["v"], row["w"]) for row in rows] == [
        (None, None), (3, None), (0, "y"), (None, None), (None, "x"),
    ]  # fmt: skip
    assert_same_stream(rows.batch(2), workers=(2,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "user", "on": "nope"}, "no column 'nope'"),
        ({"by": "user", "on": "ts", "available": "nope"}, "no column 'nope'"),
        ({"by": "user", "on": ["ts", "user"]}, "names one column"),
        ({"by": "user", "on": "ts", "ttl": datetime.timedelta(1)}, "ttl must be a number that is"),
        ({"by": "user", "on": "ts", "lag": -1}, "lag must be a number that is not negative"),
        ({"by": "user", "on": "ts", "columns": ["ts"]}, "already a column 'ts'"),
    ],
)
def test_wrong_arguments_are_errors_when_the_join_is_written(arguments, message):
    with pytest.raises(sv.PlanError, match=message):
        sv.from_columns(SPINE).asof_join(FEATURES, **arguments)


def test_dates_beside_numbers_are_refused():
    dates = {**FEATURES, "ts": np.array(FEATURES["ts"], "M8[s]")}
    with pytest.raises(sv.PlanError, match="numbers on both sides, or dates on both"):
        sv.from_columns(SPINE).asof_join(dates, by="user", on="ts")


def test_fifty_thousand_rows_by_twenty_thousand_equal_the_definition():
    rng = np.random.default_rng(7)
    n, m, users = 50_000, 20_000, 2_000
    spine = {"user": rng.integers(0, users, n), "ts": rng.integers(0, 10**6, n)}
    at = rng.integers(0, 10**6, m) // 100 * 100
    features = {
        "user": rng.integers(0, users, m),
        "ts": at,
        "known": at + rng.integers(0, 50_000, m),
        "v": np.arange(m),
    }
    limits = {"ttl": 200_000, "lag": 1_000}
    rows = sv.from_columns(spine).asof_join(
        features, by="user", on="ts", available="known", columns="v", **limits
    )
    (batch,) = list(rows.batch(n).loader(workers=0))
    found = np.ma.filled(batch["v"], -1)

    by_user: dict[int, np.ndarray] = {
        u: np.flatnonzero(features["user"] == u) for u in range(users)
    }
    expected = np.full(n, -1)
    for i in range(n):  # the definition, one row of the spine at a time
        own = by_user[int(spine["user"][i])]
        now = spine["ts"][i]
        seen = own[(at[own] + limits["lag"] <= now) & (features["known"][own] <= now)]
        if len(seen):
            best = seen[np.flatnonzero(at[seen] == at[seen].max())[-1]]
            expected[i] = best if now - at[best] <= limits["ttl"] else -1
    assert (found >= 0).sum() > 10_000
    np.testing.assert_array_equal(found, expected)
    hit = found >= 0
    assert (features["known"][found[hit]] <= spine["ts"][hit]).all(), "a row saw the future"


times = st.one_of(st.none(), st.integers(0, 12))
users = st.one_of(st.none(), st.integers(0, 2))


@given(
    spine=st.lists(st.tuples(users, times), min_size=1, max_size=12),
    features=st.lists(st.tuples(users, times, times), min_size=1, max_size=12),
    ttl=st.one_of(st.none(), st.integers(0, 6)),
    lag=st.integers(0, 3),
    late=st.booleans(),
    form=st.sampled_from(["int", "float", "dates", "mixed dates"]),
)
@settings(max_examples=150)
def test_an_asof_join_equals_its_definition(spine, features, ttl, lag, late, form):
    ours = {"user": [u for u, _ in spine], "ts": [t for _, t in spine]}
    theirs = {
        "user": [u for u, _, _ in features],
        "ts": [t for _, t, _ in features],
        "known": [t for _, _, t in features],
        "v": list(range(len(features))),
    }
    known = "known" if late else None
    expected = reference(ours, theirs, ttl=ttl, lag=lag, available=known)
    units = {"dates": ("s", "s"), "mixed dates": ("ms", "s")}.get(form)
    turn = {"int": lambda t: t, "float": lambda t: float(t) / 2}.get(form)
    if units is None:
        ours["ts"] = [None if t is None else turn(t) for t in ours["ts"]]
        for name in ("ts", "known"):
            theirs[name] = [None if t is None else turn(t) for t in theirs[name]]
        ttl, lag = None if ttl is None else turn(ttl), turn(lag)
    else:
        ours["ts"] = _dates(ours["ts"], units[0])
        theirs["ts"], theirs["known"] = (
            _dates(theirs["ts"], units[1]),
            _dates(theirs["known"], "us"),
        )
        ttl = None if ttl is None else np.timedelta64(ttl, "s")
        lag = datetime.timedelta(seconds=lag)
    assert joined(ours, theirs, ttl=ttl, lag=lag, available=known) == expected


def _dates(seconds: list[int | None], unit: str) -> np.ndarray:
    whole = np.array(
        [np.datetime64("NaT") if t is None else np.datetime64(t, "s") for t in seconds]
    )
    return whole.astype(f"M8[{unit}]")
