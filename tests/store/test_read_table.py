"""Tables as sources: any row, any order, resumed exactly, and no more read than is needed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fuzz_ways import check_causes
from source_laws import check_indexed
from store_tools import rows_of

import silva as sv
from silva.store.derived.columns import Readers
from silva.testing import assert_same_stream


def events(first: int, count: int, per: int = 4) -> pa.Table:
    at = np.arange(first, first + count)
    return pa.table(
        {
            "id": at,
            "g": at // per,
            "name": [f"n{i}" for i in at],
            "h": [list(range(i % 5)) for i in at.tolist()],
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    """Three fragments, two of them with holes; group 4 is in two of them."""
    made = sv.Table.create(tmp_path / "t", events(0, 18), group="g", time="id")
    made.append(events(18, 22)).append(events(100, 20))
    return made.delete((sv.col("id") == 3) | (sv.col("id") == 25))


def test_a_table_obeys_the_laws_of_sources(table: sv.Table, tmp_path: Path) -> None:
    rows = check_indexed(table.read().plan.source)
    assert [r["id"] for r in rows] == [
        i for i in [*range(40), *range(100, 120)] if i not in (3, 25)
    ]
    empty = sv.Table.create(tmp_path / "empty", events(0, 5).slice(0, 0))
    assert check_indexed(empty.read().plan.source) == []


def test_a_table_is_read_at_versions_branches_and_columns(table: sv.Table) -> None:
    table.at(2).tag("two")
    table.branch("exp").delete(sv.col("id") > 5)
    path = table.path
    assert sv.read_table(path).count() == 58
    assert sv.read_table(path, 1).count() == 18
    assert sv.read_table(path, "two").count() == 40
    assert sv.read_table(path, branch="exp").count() == 5
    assert sv.read_table(path, columns=["h", "id"]).head(1)[0].keys() == {"h", "id"}
    assert sv.read_table(table).columns == ("id", "g", "name", "h")
    with pytest.raises(sv.PlanError, match="no column 'nope'"):
        sv.read_table(path, columns=["nope"])


def test_the_stream_of_a_table_does_not_depend_on_how_it_is_run(table: sv.Table) -> None:
    rows = sv.read_table(table.path).filter(sv.col("id") > 20).shuffle(seed=3)
    assert_same_stream(
        rows.derive(n=lambda name, h: (name, len(h))).select("id", "h").batch(7),
        workers=(2,),
        epochs=2,
    )


def test_a_state_is_refused_on_other_rows_but_not_on_another_name_for_them(
    table: sv.Table,
) -> None:
    def pipeline(source: sv.Table) -> sv.Pipeline:
        return source.read().shuffle(seed=1).batch(8)

    with pipeline(table).loader(backend="inline") as loader:
        next(iter(loader))
        state = loader.state_dict()
    same = table.branch("exp")
    with pipeline(same).loader(backend="inline") as loader:
        loader.load_state_dict(state)
    table.append(events(200, 4))
    with (
        pipeline(table).loader(backend="inline") as loader,
        pytest.raises(sv.StateError, match="not the one this state was saved for"),
    ):
        loader.load_state_dict(state)


def test_a_version_that_is_collected_while_it_is_read_says_so(table: sv.Table) -> None:
    pipeline = sv.read_table(table.path, 1).batch(4)
    table.delete(sv.col("id") >= 0).gc(versions=1)
    with (
        pipeline.loader(backend="inline") as loader,
        pytest.raises(sv.RowError, match="is gone: its version was collected") as caught,
    ):
        next(iter(loader))
    check_causes(caught.value)


# Skipping.


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes how many rows each read of a part was for."""
    seen: list[int] = []
    real = Readers.read

    def read(self: Readers, part: Any, rows: np.ndarray, columns: Any) -> Any:
        seen.append(len(rows))
        return real(self, part, rows, columns)

    monkeypatch.setattr(Readers, "read", read)
    return seen


@pytest.mark.parametrize("shuffled", [False, True])
def test_fragments_that_cannot_hold_a_wanted_row_are_not_read(
    table: sv.Table, monkeypatch: pytest.MonkeyPatch, shuffled: bool
) -> None:
    pipeline = sv.read_table(table.path)
    if shuffled:
        pipeline = pipeline.shuffle(seed=0)
    wanted = pipeline.filter((sv.col("id") >= 100) & (sv.col("g") < 27)).select("name", "id")
    expected = sorted(r["id"] for r in rows_of(table) if r["id"] >= 100 and r["g"] < 27)
    seen = reads(monkeypatch)
    with wanted.loader(backend="inline") as loader:
        assert sorted(row["id"] for row in loader) == expected
        assert "2 of 3 fragments skipped by their statistics" in str(loader.explain())
    assert sum(seen) == 20, "only the rows of the last fragment"
    assert wanted.row("0:38")["id"] == 100


def test_rows_that_are_skipped_change_no_state(table: sv.Table) -> None:
    some = sv.read_table(table.path).filter(sv.col("id") >= 100).select("id").batch(3)
    with some.loader(backend="inline") as loader:
        batches = [(b["id"].tolist(), loader.state_dict()) for b in loader]
    everything = [ids for ids, _ in batches]
    for done, (_, state) in enumerate(batches):
        with some.options(optimize=False).loader(backend="inline") as again:
            again.load_state_dict(state)
            rest = [] if done == len(batches) - 1 else [b["id"].tolist() for b in again]
        assert rest == everything[done + 1 :]


def test_nans_infinities_and_nulls_are_not_skipped_wrongly(tmp_path: Path) -> None:
    values = [[1.0, float("nan")], [float("inf"), 0.0], [None, None], [2.0, None]]
    table = sv.Table.create(tmp_path / "t", pa.table({"x": pa.array(values[0], pa.float64())}))
    for some in values[1:]:
        table.append(pa.table({"x": pa.array(some, pa.float64())}))
    assert [r["x"] for r in table.read().filter(sv.col("x") > 1)] == [float("inf"), 2.0]


# Groups.


def runs(pipeline: sv.Pipeline, **options: Any) -> list[list[int]]:
    with pipeline.loader(backend="inline", **options) as loader:
        rows = [(row["g"], row["id"]) for row in loader]
    return [[i for _, i in run] for _, run in groupby(rows, key=lambda row: row[0])]


def test_groups_stay_together_wherever_they_were_appended(table: sv.Table) -> None:
    found = runs(table.read().shuffle(seed=0, by="group"))
    assert sorted(map(tuple, found)) == sorted(
        tuple(r["id"] for r in run)
        for _, run in groupby(sorted(rows_of(table), key=lambda r: r["g"]), key=lambda r: r["g"])
    )
    assert [16, 17, 18, 19] in found
    assert found != runs(table.read().shuffle(seed=1, by="g"))
    assert sorted(i for run in found for i in run) == sorted(r["id"] for r in rows_of(table))


def test_at_most_so_many_rows_of_a_group_follow_each_other(table: sv.Table) -> None:
    pipeline = table.read().shuffle(seed=5, by="group", max_per_group=2)
    found = runs(pipeline)
    assert sorted(i for run in found for i in run) == sorted(r["id"] for r in rows_of(table))
    assert len(found) > 20
    explained = " ".join(str(pipeline.explain()).split())
    assert "30 groups of 1.9 rows permuted (seed 5)" in explained
    assert "n consecutive rows come from about n / 1.9 groups" in explained


@pytest.mark.rest
def test_a_shuffle_of_groups_is_the_same_stream_however_it_is_run(table: sv.Table) -> None:
    grouped = table.read().shuffle(seed=2, by="group").filter(sv.col("id") % 7 != 0)
    assert_same_stream(grouped.select("id", "g").batch(20), workers=(2,), epochs=2)


def test_groups_need_a_table_with_groups(table: sv.Table, tmp_path: Path) -> None:
    plain = sv.Table.create(tmp_path / "p", events(0, 4))
    with pytest.raises(sv.PlanError, match="has no group"):
        plain.read().shuffle(by="group").head(1)
    with pytest.raises(sv.PlanError, match="are grouped by 'g'"):
        table.read().shuffle(by="name").head(1)
    with pytest.raises(sv.PlanError, match="keeps groups of a table together"):
        sv.from_columns({"x": [1]}).shuffle(by="group").head(1)
    with pytest.raises(sv.PlanError, match="needs by=…: to keep"):
        table.read().shuffle(max_per_group=3)
    with pytest.raises(sv.PlanError, match="has no kinds"):
        table.read().shuffle(by="group", kind="window")


def test_a_row_that_is_drawn_twice_shares_no_list_with_itself(tmp_path):
    """A consumer may write into what it gets."""
    pairs = pa.array([[0, 0], [1, None], [2, None], [3, 3]], pa.list_(pa.int64(), 2))
    table = sv.Table.create(tmp_path / "t", pa.table({"x": range(4), "pair": pairs}))
    drawn = table.read().sample([1.0] * 4, size=64, seed=0)
    with_null = [row["pair"] for row in drawn.loader(backend="inline") if row["x"] in (1, 2)]
    assert all(isinstance(pair, list) for pair in with_null)
    assert len({id(pair) for pair in with_null}) == len(with_null) > 2


def test_rows_that_have_a_list_in_common_do_not_share_it(tmp_path):
    records = pa.array([[{"k": 0}], [], [{"k": 0}], []])
    table = sv.Table.create(tmp_path / "t", pa.table({"x": range(4), "o": records}))
    for row in table.read().loader(backend="inline"):
        assert row["o"] == [[{"k": 0}], []][row["x"] % 2]
        row["o"].append("overwritten")
        for record in row["o"][:-1]:
            record["k"] = 1


def test_lists_that_have_records_in_common_do_not_share_them(tmp_path):
    """The table stores such lists as overlapping slices, whose records are read once."""
    records = pa.array([[{"k": j} for j in range(i % 3)] for i in range(7)])
    table = sv.Table.create(tmp_path / "t", pa.table({"x": range(7), "o": records}))
    rows = list(table.read().loader(backend="inline"))
    found = [id(record) for row in rows for record in row["o"]]
    assert len(set(found)) == len(found) == 6
