"""The latest row of some keys of a table: what `asof_join` finds for a row of that moment."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import silva as sv


def make(path, count: int = 300, **options) -> sv.Table:
    rng = np.random.default_rng(3)
    rows = pa.table(
        {
            "user": rng.integers(0, 20, count),
            "ts": rng.integers(0, 1000, count),
            "other": rng.integers(0, 1000, count),
            "seen": np.arange(count),
        }
    )
    table = sv.Table.create(
        path / "t", rows.slice(0, 200), **{"group": "user", "time": "ts"} | options
    )
    return table.append(rows.slice(200)).delete(sv.col("seen") % 7 == 0)


@pytest.mark.parametrize("on", [None, "other"])
def test_it_is_what_asof_join_finds(tmp_path, on):
    table = make(tmp_path).derive(twice=sv.col("seen") * 2)
    users = np.arange(25).repeat(4)
    moments = np.tile([0, 300, 700, 2000], 25)
    time = on or "ts"
    spine = sv.from_columns({"user": users, time: moments})
    joined = list(spine.asof_join(table.read(), by="user", on=time).loader(backend="inline"))
    found = table.latest(users, on=on, at=moments, columns=["seen", "twice"])
    for name in ("seen", "twice"):
        assert found[name].tolist() == [row[name] for row in joined]
    last = table.latest(np.arange(25), on=on)["seen"].tolist()
    assert last == [row["seen"] for row in joined[3::4]]
    assert None in last


def test_it_sees_new_rows_and_versions_keep_theirs(tmp_path):
    table = make(tmp_path)
    old = table.at(table.version.number)
    before = table.latest([1, 77])["seen"].tolist()
    new = {"user": [1, 77], "ts": [5000, 1], "other": [0, 0], "seen": [-1, -2]}
    table.append(pa.table(new))
    assert table.latest([1, 77])["seen"].tolist() == [-1, -2]
    assert old.latest([1, 77])["seen"].tolist() == before


def test_rows_are_read_once_for_each_version(tmp_path, monkeypatch):
    table = make(tmp_path)
    made = []
    monkeypatch.setattr(
        "silva.store.table.Latest", lambda *a, **k: made.append(1) or sv.Latest(*a, **k)
    )
    for user in range(5):
        table.latest([user])
    assert len(made) == 1
    table.append(pa.table({"user": [1], "ts": [1], "other": [1], "seen": [1]})).latest([1])
    assert len(made) == 2


def test_only_the_columns_that_are_asked_for_must_be_known_here(tmp_path):
    make(tmp_path).derive(label=lambda seen: seen > 3)
    stranger = sv.Table.open(tmp_path / "t")
    assert stranger.latest([1], columns="seen")["seen"].tolist() != [None]
    with pytest.raises(sv.TableError, match="does not have"):
        stranger.latest([1])


def test_a_table_without_group_or_time_is_told_what_to_name(tmp_path):
    table = make(tmp_path, group=None, time=None)
    with pytest.raises(sv.PlanError, match=r"latest\(by=…\) is needed: .* has no group"):
        table.latest([1])
    with pytest.raises(sv.PlanError, match=r"latest\(on=…\) is needed: .* has no time"):
        table.latest([1], by="user")
    assert table.latest([1], by="user", on="ts")["seen"].tolist() != [None]
