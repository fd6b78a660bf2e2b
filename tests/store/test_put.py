"""Values that are written back: a column with versions, which a stream can be drawn by."""

from __future__ import annotations

import datetime as dt
import decimal
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from failure_tools import run_script
from hypothesis import given, settings
from hypothesis import strategies as st
from store_tools import assert_no_orphans, data_files, rows_of

import silva as sv
from silva.store.derived import put
from silva.store.derived.put import given_values
from silva.testing import digest


def make(path: Path, count: int = 6, **options) -> sv.Table:
    rows = pa.table({"event": np.arange(count), "user": [f"u{i % 2}" for i in range(count)]})
    return sv.Table.create(path / "t", rows, **{"key": "event", "group": "user"} | options)


def more(first: int, count: int = 2) -> pa.Table:
    return pa.table({"event": np.arange(first, first + count), "user": ["v"] * count})


def scores(table: sv.Table, name: str = "score") -> dict[int, object]:
    return {row["event"]: row[name] for row in rows_of(table, ["event", name])}


def test_values_come_in_the_order_of_read_or_by_key(tmp_path):
    table = make(tmp_path)
    table.put("score", [row["event"] * 2 for row in table.read()])
    assert scores(table) == {i: i * 2 for i in range(6)}
    table.put("score", np.array([0.5, 0.25]), keys=[4, 1])
    assert scores(table) == {0: 0, 1: 0.25, 2: 4, 3: 6, 4: 0.5, 5: 10}
    assert table.version.what == "put score"


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, None, 4, 5, 6],
        [1.5, None, 2.5, 3.0, 4.0, 5.0],
        [True, False, None, True, True, False],
        ["a", "", None, "ä", "b", "b"],
        np.arange(6, dtype=np.uint8),
        np.arange(6, dtype=np.float32),
        pa.array(["x", "y"] * 3).dictionary_encode(),
        pa.chunked_array([[1, 2], [3, None, 5, 6]]),
        [None] * 6,
    ],
    ids=str,
)
def test_values_of_any_plain_type_come_back(tmp_path, values):
    table = make(tmp_path).put("v", values)
    wanted = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    assert [row["v"] for row in rows_of(table)] == wanted
    table.append(more(6))
    assert [row["v"] for row in rows_of(table)] == [*wanted, None, None]


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    "values",
    [
        [b"a", b"", None, b"\x00\xff"],
        np.arange(8, dtype=np.float32).reshape(4, 2),
        np.arange(24, dtype=np.float16).reshape(4, 2, 3),
        np.zeros((4, 0), np.float32),
        [np.ones(3, np.float32), np.ones(2, np.float32), None, np.ones(0, np.float32)],
        [np.ones((1, 2), np.int8), np.ones((2, 2), np.int8), None, np.ones((0, 2), np.int8)],
        [[1, 2], [], None, [3]],
        [["a", None], [], None, ["b"]],
        [[[1.5], []], [], None, [[2.5, 3.5]]],
        pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
        pa.array([MOMENT, None, MOMENT, MOMENT], pa.timestamp("ms")),
        pa.array([MOMENT.date(), None, None, MOMENT.date()]),
        pa.array([decimal.Decimal("1.5"), None, None, decimal.Decimal("-2.5")]),
        pa.array([MOMENT.time(), None, None, MOMENT.time()]),
        pa.array([[{"a": 1}], [], None, [{"a": 2}]]),
        pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[True], [], [None], None], pa.large_list(pa.bool_())),
        pa.array([b"ab", b"cd", None, b"ef"], pa.binary(2)),
        pa.array([["a", "b"], None, ["c", None], ["d", "e"]], pa.list_(pa.string(), 2)),
    ],
    ids=str,
)
def test_values_are_whatever_a_column_can_hold_and_read_as_if_they_had_been_appended(
    tmp_path, values
):
    array = values if isinstance(values, pa.Array) else given_values("v", values)
    wanted = rows_of(sv.Table.create(tmp_path / "appended", pa.table({"v": array})))
    table = sv.Table.create(tmp_path / "t", pa.table({"i": range(4)}), key="i").put("v", values)
    number = table.version.number
    assert repr(rows_of(table, ["v"])) == repr(wanted)
    assert table.put("v", values).version.number == number, "equal values make no version"
    backwards = array.take(pa.array([3, 2, 1, 0]))
    assert table.put("v", backwards, keys=[3, 2, 1, 0]).version.number == number
    table.append(pa.table({"i": [4]}))
    assert repr(rows_of(table, ["v"])) == repr([*wanted, {"v": None}])
    filled = next(row for row in wanted if row["v"] is not None)
    default = array.drop_null().to_pylist()[0]
    table.put("v", array.slice(3, 1), keys=[3], default=default)
    kept = [filled if row["v"] is None else row for row in wanted]
    assert repr(rows_of(table, ["v"])) == repr([*kept, filled])
    table.gc(versions=1)
    assert_no_orphans(tmp_path / "t")


def test_arrays_come_back_with_their_type_and_shape(tmp_path):
    torch = pytest.importorskip("torch")
    table = make(tmp_path, 4)
    given = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for values in (given, torch.from_numpy(given), list(given), list(torch.from_numpy(given))):
        table.put("vector", values)
        (batch,) = table.read(["vector"]).batch(4).loader(workers=0)
        assert batch["vector"].dtype == np.float32
        assert np.array_equal(batch["vector"], given)
    assert table.version.number == 2, "all of them are the same"
    ragged = sv.Ragged(np.arange(5, dtype=np.int16), np.array([0, 2, 2, 3, 5]))
    (batch,) = table.put("r", ragged).read(["r"]).batch(4).loader(workers=0)
    assert batch["r"].values.dtype == np.int16
    assert [row.tolist() for row in batch["r"]] == [[0, 1], [], [2], [3, 4]]
    table.put("nan", [1.0], keys=[0], default=float("nan"))
    assert np.isnan(scores(table, "nan")[3])


@given(
    rows=st.lists(st.none() | st.lists(st.none() | st.floats(width=32), max_size=4), max_size=9),
    picked=st.data(),
)
@settings(max_examples=25)
def test_lists_put_by_key_are_those_of_their_rows(rows, picked):
    with tempfile.TemporaryDirectory() as folder:
        keys = picked.draw(st.permutations(range(len(rows))))
        ids = pa.table({"i": pa.array(range(len(rows)), pa.int64())})
        table = sv.Table.create(f"{folder}/t", ids, key="i")
        kind = pa.list_(pa.float32())
        table.put("v", pa.array([rows[k] for k in keys], kind), keys=pa.array(keys, pa.int64()))
        number = table.version.number
        assert repr([row["v"] for row in rows_of(table)]) == repr(rows)
        table.put("v", pa.array(rows, kind))
        assert table.version.number == number


def test_a_key_may_be_of_several_columns_and_keys_a_table(tmp_path):
    table = make(tmp_path, key=("event", "user"))
    table.put("score", [7, 8], keys={"user": ["u1", "u0"], "event": [3, 2]})
    assert scores(table) == {0: None, 1: None, 2: 8, 3: 7, 4: None, 5: None}
    table.put("score", [9], keys=pa.table({"user": ["u1"], "event": [5]}))
    assert scores(table)[5] == 9


def test_rows_without_a_value_have_the_default_also_those_appended_later(tmp_path):
    table = make(tmp_path).put("score", [1.0], keys=[2], default=0.25)
    table.append(more(6))
    assert scores(table) == {**dict.fromkeys(range(8), 0.25), 2: 1.0}
    drawn = table.read().sample(weights="score", size=50)
    assert {row["event"] for row in drawn} <= set(range(8))


def test_rows_without_a_new_value_keep_their_own(tmp_path):
    table = make(tmp_path, group=None)
    table.put("label", [0, 1, 2, 1, 0, 1]).append(more(6))
    table.put("label", [5], keys=[2], default=0)
    assert scores(table, "label") == {0: 0, 1: 1, 2: 5, 3: 1, 4: 0, 5: 1, 6: 0, 7: 0}
    assert "int64 for 1 row, 5 kept; others are 0" in str(table.explain())
    table.put("label", [None, 7], keys=[0, 6])
    assert scores(table.append(more(8)), "label") == {
        0: 0, 1: 1, 2: 5, 3: 1, 4: 0, 5: 1, 6: 7, 7: 0, 8: 0, 9: 0
    }  # fmt: skip


def test_rows_that_had_the_default_keep_it_when_the_default_changes(tmp_path):
    table = make(tmp_path).append(more(6)).put("score", [1.5], keys=[0], default=0.5)
    table.put("score", [2.5], keys=[1], default=9.0).append(more(8))
    assert scores(table) == {0: 1.5, 1: 2.5, **dict.fromkeys(range(2, 8), 0.5), 8: 9.0, 9: 9.0}


def test_kept_values_are_the_newest_also_of_rows_appended_since_the_version_read(tmp_path):
    table = make(tmp_path, group=None).put("score", range(6))
    read = table.version.number
    table.append(more(6)).put("score", [60, 70], keys=[6, 7]).delete(sv.col("event") == 3)
    table.put("score", [-1], keys=[0], at=read)
    assert scores(table) == {0: -1, 1: 1, 2: 2, 4: 4, 5: 5, 6: 60, 7: 70}


@pytest.mark.parametrize(
    ("present", "new"),
    [
        (np.arange(6, dtype=np.float32), [0.5]),
        (np.arange(6, dtype=np.float32), [7]),
        (np.arange(6, dtype=np.int32), [7]),
        (["a", None, "c", "d", "e", "f"], ["x"]),
        ([b"a", b"b", b"c", b"d", b"e", b"f"], [b""]),
        ([True] * 6, [False]),
        (np.eye(6, dtype=np.float32), [[0.5] * 6]),
        ([[1, 2], [], [3], [4], [5], [6]], [[7, 8]]),
        ([dt.datetime(2024, 1, day) for day in range(1, 7)], [dt.datetime(2030, 1, 1)]),
        ([1, 2, 3, 4, 5, 6], [None]),
    ],
    ids=str,
)
def test_a_column_keeps_its_type_when_some_values_change(tmp_path, present, new):
    table = make(tmp_path, group=None).put("v", present)
    (before,) = table.read(["v"]).batch(6).loader(workers=0)
    table.put("v", new, keys=[0])
    (after,) = table.read(["v"]).skip(1).batch(6).loader(workers=0)
    (of_old,) = table.at(2).read(["v"]).skip(1).batch(6).loader(workers=0)
    assert digest(after) == digest(of_old)
    assert type(before["v"]) is type(after["v"])


def test_values_of_another_kind_by_key_and_keys_of_a_computed_column_are_refused(tmp_path):
    table = make(tmp_path).put("label", range(6)).derive(half=sv.col("event") / 2)
    number = table.version.number
    with pytest.raises(sv.PlanError, match="'label' holds int64, which the rows without a new"):
        table.put("label", ["dog"], keys=[2])
    with pytest.raises(sv.PlanError, match="'half' is computed, so with keys=… all other rows"):
        table.put("half", [0.5], keys=[2])
    assert table.version.number == number
    assert scores(table.put("half", [0.0] * 6), "half") == dict.fromkeys(range(6), 0.0)


def test_two_programs_that_change_values_of_one_column_lose_none(tmp_path, monkeypatch):
    table = make(tmp_path, group=None).put("score", range(6))
    rival, made, tried = sv.Table.open(table.path), put._with_values, []

    def overtaken(*arguments):
        tried.append(arguments)
        if len(tried) == 1:
            rival.put("score", [50], keys=[5])
        return made(*arguments)

    monkeypatch.setattr(put, "_with_values", overtaken)
    table.put("score", [-1], keys=[0])
    assert scores(table) == {0: -1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 50}
    assert len(tried) == 3
    table.gc()
    assert_no_orphans(tmp_path / "t")


def overtake(monkeypatch: pytest.MonkeyPatch, rival) -> None:
    """Lets a rival commit right before the next put does."""
    made, waiting = put.commits.commit, [rival]

    def overtaken(*arguments):
        if waiting:
            waiting.pop()()
        return made(*arguments)

    monkeypatch.setattr(put.commits, "commit", overtaken)


def test_two_programs_that_make_one_column_at_once_lose_no_value(tmp_path, monkeypatch):
    table = make(tmp_path, group=None)
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.put("score", [50], keys=[5]))
    table.put("score", [-1], keys=[0])
    assert scores(table) == {0: -1, 1: None, 2: None, 3: None, 4: None, 5: 50}
    table.gc()
    assert_no_orphans(tmp_path / "t")


def test_a_new_column_of_another_type_than_one_made_meanwhile_is_refused(tmp_path, monkeypatch):
    table = make(tmp_path)
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.put("score", ["text"], keys=[5]))
    with pytest.raises(sv.PlanError, match="'score' holds string"):
        table.put("score", [-1], keys=[0])
    assert scores(table)[5] == "text"


def test_a_column_that_was_derived_meanwhile_is_not_replaced_by_values_of_some_keys(
    tmp_path, monkeypatch
):
    table = make(tmp_path)
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.derive(score=sv.col("event") * 2))
    with pytest.raises(sv.PlanError, match="'score' is computed"):
        table.put("score", [-1], keys=[0])
    assert scores(table) == {i: i * 2 for i in range(6)}


def test_a_new_default_is_not_for_rows_that_were_appended_meanwhile(tmp_path, monkeypatch):
    table = make(tmp_path).put("score", [1], keys=[1], default=0)
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.append(more(6)))
    table.put("score", [2], keys=[2], default=9)
    assert scores(table) == {0: 0, 1: 1, 2: 2, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}
    assert scores(table.append(more(8)))[8] == 9


def test_values_that_were_restored_meanwhile_are_kept(tmp_path, monkeypatch):
    table = make(tmp_path).append(more(6)).put("score", range(8))
    before, whole = scores(table), table.version.number
    table.delete(sv.col("event") >= 6)
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.restore(whole))
    table.put("score", [-1], keys=[0])
    assert scores(table) == before | {0: -1}


def test_values_that_were_put_meanwhile_are_not_dropped_as_a_stored_column(tmp_path, monkeypatch):
    table = make(tmp_path).derive(score=sv.col("event") * 2).materialize("score")
    rival = sv.Table.open(table.path)
    overtake(monkeypatch, lambda: rival.put("score", [7] * 6))
    with pytest.raises(sv.PlanError, match=r"'score' of .* is given, not computed"):
        table.unstore("score")
    assert set(scores(table).values()) == {7}


def test_no_values_for_no_keys_make_no_column(tmp_path):
    table = make(tmp_path)
    assert table.put("score", [], keys=[]).version.number == 1
    assert table.columns == ("event", "user")
    table.put("score", ["a"], keys=[1]).put("score", [], keys=[])
    assert table.version.number == 2
    assert table.put("score", pa.array([], pa.string()), keys=[], default="b").version.number == 3
    assert set(scores(table).values()) == {"a", "b"}
    table.put("typed", np.array([], np.float32), keys=[])
    assert set(scores(table, "typed").values()) == {None}


def test_old_versions_and_branches_keep_their_values(tmp_path):
    table = make(tmp_path).put("score", range(6))
    first, branch = table.version.number, table.branch("other")
    table.put("score", range(10, 16), at=first)
    assert sorted(scores(branch).values()) == sorted(scores(table.at(first)).values())
    assert sorted(scores(table).values()) == list(range(10, 16))
    table.restore(first)
    assert sorted(scores(table).values()) == list(range(6))


def test_equal_values_make_no_new_version(tmp_path):
    table = make(tmp_path).put("score", [1, 2], keys=[0, 1])
    number = table.version.number
    assert table.put("score", [2, 1], keys=[1, 0]).version.number == number
    table.append(more(6))
    assert table.put("score", [1, 2], keys=[0, 1]).version.number == number + 1
    table.gc()
    assert_no_orphans(tmp_path / "t")
    assert table.put("score", [1, 2.0], keys=[0, 1]).version.number == number + 2


def test_the_stream_drawn_by_a_version_is_the_same_after_later_puts(tmp_path):
    table = make(tmp_path, 50).put("score", np.linspace(0, 1, 50))
    version = table.version.number

    def stream(of: sv.Table) -> list[str]:
        drawn = of.read().sample(weights="score", size=200, seed=3).batch(8)
        return [digest(batch) for batch in drawn.loader(backend="inline")]

    before = stream(table)
    loader = table.read().sample(weights="score", size=200, seed=3).batch(8).loader(workers=0)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.close()
    table.put("score", np.linspace(1, 0, 50))
    table.append(more(50)).delete(sv.col("event") == 3)
    assert stream(table.at(version)) == before
    assert stream(table.put("score", [1] * 51)) != before
    again = sv.read_table(table.path, version).sample(weights="score", size=200, seed=3).batch(8)
    with again.loader(workers=0) as resumed:
        resumed.load_state_dict(state)
        assert [digest(batch) for batch in resumed] == before[1:]


def test_deleted_rows_need_no_value(tmp_path):
    table = make(tmp_path).delete(sv.col("event") == 2)
    table.put("score", [row["event"] for row in table.read()])
    assert scores(table) == {i: i for i in (0, 1, 3, 4, 5)}
    with pytest.raises(sv.TableError, match="no row with the key event=2"):
        table.put("score", [1], keys=[2])
    table.delete(sv.col("event") == 4)
    assert scores(table) == {i: i for i in (0, 1, 3, 5)}


def test_what_others_did_since_the_version_was_read_stays(tmp_path):
    table = make(tmp_path).append(more(6))
    read = table.version.number
    order = [row["event"] for row in table.read()]
    table.append(more(8)).delete(lambda user: user == "u0").delete(sv.col("event") == 6)
    table.put("score", order, at=read)
    assert scores(table) == {1: 1, 3: 3, 5: 5, 7: 7, 8: None, 9: None}


def test_a_put_lands_on_top_of_concurrent_appends_without_doing_its_work_again(
    tmp_path, monkeypatch
):
    table = make(tmp_path)
    rival = sv.Table.open(table.path)
    made, heads = put._with_values, []

    def overtaken(*arguments):
        change = made(*arguments)
        rival.append(more(6))  # takes the number that this one would have taken

        def noted(head):
            heads.append(head.number)
            return change(head)

        return noted

    monkeypatch.setattr(put, "_with_values", overtaken)
    table.put("score", range(6))
    assert heads == [2]
    assert table.version.number == 3
    assert sum(value is not None for value in scores(table).values()) == 6
    data = data_files(tmp_path / "t")
    table.gc()
    assert data_files(tmp_path / "t") == data, "values were written twice"


def test_columns_derived_of_values_read_those_there_were(tmp_path):
    table = make(tmp_path)
    table.put("score", [row["event"] for row in table.read()])
    table.derive(hard=sv.col("score") > 3).materialize("hard")
    assert scores(table, "hard") == {i: i > 3 for i in range(6)}
    table.put("score", [0] * 6)
    assert scores(table, "hard") == {i: i > 3 for i in range(6)}
    assert rows_of(table)[0] == {"event": 0, "user": "u0", "hard": False, "score": 0}
    table.derive(hard=sv.col("score") > 3, score=sv.col("score") + 1)
    assert set(scores(table, "hard").values()) == {False}
    assert set(scores(table).values()) == {1}


def test_values_skip_fragments_by_their_statistics(tmp_path):
    table = make(tmp_path).append(more(6)).put("score", [1, 1, 1, 1, 1, 1, 5, 6])
    wanted = table.read().filter(sv.col("score") > 4)
    assert "1 of 2 fragments skipped" in str(wanted.explain())
    assert [row["score"] for row in wanted] == [5, 6]


def test_other_programs_read_values_and_explain_shows_them(tmp_path):
    table = make(tmp_path).put("score", [1.5], keys=[0])
    text = str(table.explain())
    assert "score\n    given: " in text
    assert "double for 1 row; others are null" in text
    script = "import sys, silva as sv\nprint(sv.read_table(sys.argv[1]).head(1))"
    assert "'score': 1.5" in run_script(tmp_path, script, table.path)
    table.optimize()
    assert scores(table)[0] == 1.5
    for verb in (table.materialize, table.unstore):
        with pytest.raises(sv.PlanError, match="is given, not computed"):
            verb("score")


def test_explain_says_that_a_column_reads_given_values_and_whether_those_are_older(tmp_path):
    table = make(tmp_path).put("label", range(6))
    table.derive(hard=sv.col("label") > 3).derive(both=sv.col("hard") & (sv.col("event") > 1))
    text = str(table.explain())
    assert "of label (given): label > 3" in text
    assert "of hard (label (given)), event: hard & (event > 1)" in text
    assert "as of its definition" not in text
    told = " ".join(str(table.put("label", [0], keys=[5]).explain()).split())
    assert told.count("reads label as of its definition, not as now: derive it again") == 2
    again = table.derive(hard=sv.col("label") > 3).explain()
    assert " ".join(str(again).split()).count("reads hard, label as of its definition") == 1


def test_an_empty_table_takes_no_values(tmp_path):
    table = make(tmp_path).delete(sv.col("event") >= 0).put("score", [])
    assert table.read().head(1) == []
    assert scores(table.append(more(0))) == {0: None, 1: None}


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([1, 2], {}, r"2 values for the 6 rows of table .* \(main 1\)"),
        ([1, 2], {"keys": [1]}, "1 key for 2 values"),
        ([1, 2], {"keys": [1, 77]}, "no row with the key event=77"),
        ([1, 2, 3], {"keys": [1, 77, 78]}, r"event=77 \(and 1 more\)"),
        ([1, 2], {"keys": [1, 1]}, "the key event=1 is given twice"),
        ([1, 2], {"keys": [1, None]}, "a key is null"),
        ([1, 2], {"keys": {"user": ["a", "b"]}}, "has the columns user"),
        ([1, 2], {"keys": ["a", "b"]}, "the key 'event' is a number here"),
        ([{"a": 1}, {"a": 2}], {"keys": [1, 2]}, "put each by itself, as 'score.a'"),
        ([[], [None]], {"keys": [1, 2]}, "all lists of 'score' are empty"),
        (
            pa.array([[1], None], pa.list_view(pa.int64())),
            {"keys": [1, 2]},
            "which a table cannot hold",
        ),
        ([[1], 2], {"keys": [1, 2]}, "do not have one type"),
        ([np.zeros(2), np.zeros((2, 2))], {"keys": [1, 2]}, "do not have one type"),
        (
            [[1.0], [2.0]],
            {"keys": [1, 2], "default": "x"},
            "not a value of the type list<item: double>",
        ),
        (
            np.zeros((2, 3)),
            {"keys": [1, 2], "default": [0.0]},
            r"not a value of the type fixed_size_list",
        ),
        (np.zeros(()), {}, "put: 'score' is a single value"),
        ([1 << 70, 1], {"keys": [1, 2]}, "do not have one type"),
        (["a", 2], {"keys": [1, 2]}, "do not have one type"),
        ([1, 2], {"keys": [1, 2], "default": "x"}, "not a value of the type int64"),
    ],
)
def test_mistakes_are_told_and_change_nothing(tmp_path, values, options, message):
    table = make(tmp_path)
    with pytest.raises(sv.SilvaError, match=message):
        table.put("score", values, **options)
    assert table.version.number == 1
    assert table.gc().files == 0


def test_tables_without_a_key_and_columns_that_are_appended_are_refused(tmp_path):
    table = make(tmp_path, key=())
    with pytest.raises(sv.TableError, match="has no key"):
        table.put("score", [1], keys=[1])
    with pytest.raises(sv.PlanError, match="is an appended column"):
        table.put("event", range(6))
    with pytest.raises(sv.TableError, match="cannot be changed"):
        table.at(1).put("score", range(6))
