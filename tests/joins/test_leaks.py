"""`check_leaks` finds what depends on the future; what is point-in-time correct passes."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import silva as sv
from silva.testing import assert_no_leaks

SPINE = {"user": [1, 2, 1, 3], "ts": [10, 10, 20, 30]}
HISTORY = {"user": [1, 1, 2, 2], "ts": [5, 15, 9, 40], "v": [1.0, 2.0, 3.0, 4.0]}


def spine() -> sv.Pipeline:
    return sv.from_columns(SPINE)


def test_a_plain_join_with_later_features_is_a_leak():
    totals = {"user": [1, 2, 3], "ts": [15, 9, 99], "total": [4, 5, 6], "fine": [0, 0, 0]}
    leaks = spine().join(totals, on="user", columns=["total"]).check_leaks("ts")
    assert [(leak.column, leak.time) for leak in leaks.found] == [("total", 10)]
    assert "leak: total at 10: 4, but None was known" in str(leaks)
    assert leaks.rows == 4


def test_a_column_derived_from_a_leak_leaks_too_and_others_do_not():
    totals = {"user": [1, 2, 3], "ts": [15, 9, 99], "total": [4, 5, 6]}
    rows = spine().join(totals, on="user", columns="total")
    rows = rows.derive(twice=lambda total: total and 2 * total, other=lambda user: user + 1)
    assert {leak.column for leak in rows.check_leaks("ts").found} == {"total", "twice"}


def test_a_row_that_is_kept_only_because_of_the_future_is_found():
    totals = {"user": [1, 2, 3], "ts": [15, 9, 99], "total": [4, 5, 6]}
    leaks = spine().join(totals, on="user", columns="total", how="inner").check_leaks("ts")
    assert leaks.found[0].column == "(the row itself)"


def test_a_step_that_fails_without_the_future_is_found():
    totals = {"user": [1, 2, 3], "ts": [15, 9, 99], "total": [4, 5, 6]}
    rows = spine().join(totals, on="user", columns="total").derive(z=lambda total: total + 1)
    (leak,) = rows.check_leaks("ts").found
    assert leak.column.startswith("z = lambda(total)")


def test_an_asof_join_has_no_leaks():
    rows = spine().asof_join(HISTORY, by="user", on="ts", lag=1, ttl=30)
    leaks = rows.shuffle(seed=1).batch(2).check_leaks("ts")
    assert not leaks, str(leaks)
    assert leaks.times == 3
    assert_no_leaks(rows, "ts")


def test_features_that_became_known_late_are_found_unless_the_join_says_so():
    late = {**HISTORY, "known": [5, 25, 9, 40]}
    rows = spine().asof_join(late, by="user", on="ts", columns="v")
    assert [leak.column for leak in rows.check_leaks("ts", known="known").found] == ["v"]
    careful = spine().asof_join(late, by="user", on="ts", columns="v", available="known")
    assert not careful.check_leaks("ts", known="known")
    assert not careful.check_leaks("ts")


def test_a_leak_within_the_features_own_joins_is_found():
    totals = {"user": [1, 2], "ts": [99, 1], "total": [7, 8]}
    features = sv.from_columns(HISTORY).join(totals, on="user", columns="total")
    rows = spine().asof_join(features, by="user", on="ts", columns=["total"])
    assert [leak.column for leak in rows.check_leaks("ts").found] == ["total"]


def test_a_table_without_times_is_reported_as_unchecked():
    rows = spine().join({"user": [1, 2, 3], "age": [30, 40, 50]}, on="user")
    leaks = rows.check_leaks("ts")
    assert not leaks
    assert "no column of times" in leaks.unchecked[0]
    with pytest.raises(AssertionError, match="no column of times"):
        assert_no_leaks(rows, "ts")


def test_dates_are_compared_across_units():
    days = np.array(["2020-01-01", "2020-01-03"], "M8[D]")
    rows = sv.from_columns({"user": [1, 1], "ts": days})
    at = np.array(["2020-01-01T12:00", "2020-01-02T12:00"], "M8[ns]")
    features = {"user": [1, 1], "ts": at, "v": [1, 2]}
    joined = rows.asof_join(features, by="user", on="ts", lag=datetime.timedelta(hours=12))
    assert not joined.check_leaks("ts")
    wrong = rows.join({"user": [1], "ts": at[:1], "v": [1]}, on="user", columns="v")
    assert [leak.column for leak in wrong.check_leaks("ts").found] == ["v"]


def test_the_time_column_must_exist():
    with pytest.raises(sv.PlanError, match="no such column"):
        spine().select("user").check_leaks("ts")


def test_many_times_are_sampled():
    rows = sv.from_columns({"user": [0] * 500, "ts": range(500)})
    leaks = rows.asof_join({"user": [0], "ts": [3], "v": [1]}, by="user", on="ts").check_leaks(
        "ts", times=7
    )
    assert leaks.times == 7
