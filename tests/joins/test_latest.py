"""`Latest`: for a model that serves, the same features as in training."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv

COUNTS = {"user": [1, 1, 2, 1], "ts": [5, 20, 7, 20], "n": [1, 2, 9, 3], "name": list("abcd")}


def test_get_returns_the_latest_row_of_each_key():
    found = sv.Latest(COUNTS, by="user", on="ts").get([2, 1, 3])
    assert found["n"].tolist() == [9, 3, None]
    assert found["name"].tolist() == ["c", "d", None]


def test_get_at_a_time_equals_an_asof_join():
    latest = sv.Latest(COUNTS, by="user", on="ts", ttl=5, lag=1)
    assert latest.get([1, 1, 1, 2], at=[5, 6, 30, 8])["n"].tolist() == [None, 1, None, 9]
    assert latest.get([1, 2], at=21)["n"].tolist() == [3, None]


def test_several_key_columns_are_passed_as_a_dict():
    features = {"user": [1, 1], "shop": ["a", "b"], "ts": [1, 2], "v": [10, 20]}
    latest = sv.Latest(features, by=("user", "shop"), on="ts")
    assert latest.get({"user": [1, 1], "shop": ["b", "z"]})["v"].tolist() == [20, None]
    with pytest.raises(sv.PlanError, match="dict of the key columns user, shop"):
        latest.get([1])
    with pytest.raises(sv.PlanError, match="takes the key columns"):
        latest.get({"user": [1]})


@given(
    features=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20
    ),
    late=st.booleans(),
)
def test_online_and_offline_agree_at_the_end_of_time(features, late):
    users, times, known = (list(part) for part in zip(*features, strict=True))
    table = {"user": users, "ts": times, "known": known, "v": list(range(len(users)))}
    available = "known" if late else None
    spine = sv.from_columns({"user": range(6), "ts": np.full(6, 2**62)})
    joined = spine.asof_join(table, by="user", on="ts", available=available, columns="v")
    latest = sv.Latest(table, by="user", on="ts", available=available, columns="v")
    found = latest.get(list(range(6)))["v"]
    assert [row["v"] for row in joined] == np.ma.asarray(found).tolist()


def test_the_fingerprint_of_a_training_set_is_the_same_in_another_process():
    script = (
        "import silva as sv\n"
        f"spine = sv.from_columns({{'user': [1, 2], 'ts': [9, 9]}})\n"
        f"rows = spine.asof_join({COUNTS!r}, by='user', on='ts', ttl=5)\n"
        "print(rows.fingerprint)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    here = sv.from_columns({"user": [1, 2], "ts": [9, 9]}).asof_join(
        COUNTS, by="user", on="ts", ttl=5
    )
    assert {run.stdout.strip() for run in runs} == {here.fingerprint}
    other = {**COUNTS, "n": [1, 2, 9, 4]}
    changed = sv.from_columns({"user": [1, 2], "ts": [9, 9]}).asof_join(
        other, by="user", on="ts", ttl=5
    )
    assert changed.fingerprint != here.fingerprint
