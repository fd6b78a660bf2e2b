"""Tables: what is appended is what is read, in any version, and mistakes change nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from store_tools import all_files, assert_no_orphans, data_files, rows_of

import silva as sv
from silva.store import table as table_module
from silva.store.append import append as append_module
from silva.store.append import ingest
from silva.store.append.data_writer import DataWriter
from silva.store.versions import commits
from silva.store.versions.manifest import Version
from silva.store.versions.table_folder import Folder

EVENTS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "session": ["b", "a", "b", "a", "b"],
        "ts": [30, 5, 10, 2, 10],
        "items": [[1], [], [2, 3], None, [4]],
    }
)


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    return sv.Table.create(tmp_path / "t", EVENTS, key="id", group="session", time="ts")


def more(first: int, count: int = 2, session: str = "c") -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table(
        {"id": ids, "session": [session] * count, "ts": ids, "items": [[i] for i in ids]}
    )


def ids(table: sv.Table) -> list[int]:
    return [row["id"] for row in rows_of(table, ["id"])]


def test_rows_are_clustered_by_group_and_time_and_equal_ones_keep_their_order(
    table: sv.Table,
) -> None:
    assert ids(table) == [4, 2, 3, 5, 1]
    assert rows_of(table)[0] == {"id": 4, "session": "a", "ts": 2, "items": None}


def test_each_append_is_a_version_and_old_versions_stay(table: sv.Table) -> None:
    table.append(more(10)).append(more(20))
    assert [v.what for v in table.versions()] == [
        "create with 5 rows",
        "append 2 rows",
        "append 2 rows",
    ]
    assert ids(table) == [4, 2, 3, 5, 1, 10, 11, 20, 21]
    assert ids(table.at(2)) == [4, 2, 3, 5, 1, 10, 11]
    assert ids(table.at(1)) == [4, 2, 3, 5, 1]
    first = datetime.fromtimestamp(table.versions()[0].time)
    assert table.at(first).version.number == 1
    assert table.at(first + timedelta(days=1)).version.number == 3
    with pytest.raises(sv.TableError, match="has no version from"):
        table.at(first - timedelta(days=1))


def test_a_pipeline_can_be_appended(table: sv.Table) -> None:
    rows = sv.from_items([{"id": 9, "session": "z", "ts": 1, "items": [7, 8]}])
    table.append(rows.derive(ts=lambda ts: ts + 1))
    assert rows_of(table)[-1] == {"id": 9, "session": "z", "ts": 2, "items": [7, 8]}


def test_columns_may_come_in_another_order_and_without_a_value(table: sv.Table) -> None:
    table.append(pa.table({"items": [[]], "ts": [1], "session": ["q"], "id": [99]}))
    assert rows_of(table)[-1] == {"id": 99, "session": "q", "ts": 1, "items": []}
    table.append(pa.table({"items": [None], "ts": [1], "session": ["q"], "id": [100]}))
    assert rows_of(table)[-1]["items"] is None


def test_deleted_rows_are_gone_but_stay_in_older_versions(table: sv.Table) -> None:
    before = {p: p.read_bytes() for p in all_files(table.path)}
    table.delete(sv.col("ts") == 10)
    assert ids(table) == [4, 2, 1]
    assert ids(table.at(1)) == [4, 2, 3, 5, 1]
    assert all(path.read_bytes() == data for path, data in before.items())
    table.delete(lambda id: id == 1)
    assert ids(table) == [4, 2]
    assert table.versions()[-1].what == "delete 1 row"
    table.delete(sv.col("id") > 0)
    assert (ids(table), table.rows) == ([], 0)
    assert table.delete(sv.col("id") > 0).version.number == 4, "nothing to delete, no version"


def test_deletions_at_the_same_time_add_up_and_rows_that_came_meanwhile_stay(
    table: sv.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, other = table_module.find_rows, sv.Table.open(table.path)

    def find_rows(*arguments: Any) -> Any:
        found = real(*arguments)
        monkeypatch.undo()
        other.delete(sv.col("id") >= 4).append(more(10))
        return found

    monkeypatch.setattr(table_module, "find_rows", find_rows)
    table.delete(sv.col("id") >= 3)
    assert ids(table) == [2, 1, 10, 11]
    assert table.versions()[-1].what == "delete 1 row"
    table.gc()
    assert_no_orphans(table.path)


def test_keys_are_compared_with_rows_that_came_meanwhile(
    table: sv.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, other = append_module._write, sv.Table.open(table.path)

    def written(*arguments: Any) -> Any:
        found = real(*arguments)
        monkeypatch.undo()
        other.append(more(10))
        return found

    monkeypatch.setattr(append_module, "_write", written)
    with pytest.raises(sv.TableError, match="id=11 is already in the table"):
        table.append(more(11))
    assert ids(table)[-2:] == [10, 11]
    assert_no_orphans(table.path)


def test_a_deleted_key_may_come_again(table: sv.Table) -> None:
    with pytest.raises(sv.TableError, match="id=3"):
        table.append(more(3, 1))
    table.delete(sv.col("id") == 3)
    table.append(more(3, 1))
    assert ids(table) == [4, 2, 5, 1, 3]


def test_branches_are_apart_and_share_files(table: sv.Table) -> None:
    size = sum(p.stat().st_size for p in data_files(table.path))
    exp = table.branch("exp")
    assert size == sum(p.stat().st_size for p in data_files(table.path))
    exp.append(more(10))
    table.append(more(20))
    assert ids(exp)[-2:] == [10, 11]
    assert ids(table)[-2:] == [20, 21]
    assert [v.branch for v in exp.versions()] == ["main", "exp", "exp"]
    assert ids(exp.at(1)) == ids(table.at(1))
    assert sv.Table.open(table.path, "exp").version == exp.version
    assert table.branches() == ("exp", "main")
    assert exp.branch("main").version == table.version, "it is there already"


def test_a_version_can_be_restored(table: sv.Table) -> None:
    table.append(more(10)).delete(sv.col("id") == 1).restore(1)
    assert ids(table) == [4, 2, 3, 5, 1]
    assert table.versions()[-1].what == "restore main 1"
    table.restore(3)
    assert ids(table) == [4, 2, 3, 5, 10, 11]


def test_tags_name_versions(table: sv.Table) -> None:
    table.tag("first").append(more(10))
    assert table.at("first").version.number == 1
    table.at(1).tag("first")
    with pytest.raises(sv.TableError, match="already names main 1"):
        table.tag("first")
    with pytest.raises(sv.TableError, match="no tag 'second'; its tags are 'first'"):
        table.at("second")


def test_a_version_is_read_only(table: sv.Table) -> None:
    with pytest.raises(sv.TableError, match="cannot be changed"):
        table.at(1).append(more(10))
    with pytest.raises(sv.TableError, match="cannot be changed"):
        table.at(1).delete(sv.col("id") == 1)


# Mistakes.


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (EVENTS.drop(["ts"]), "'ts' is missing"),
        (EVENTS.append_column("x", pa.array([None] * 5, pa.int64())), r"'x' \(int64\) is new"),
        (EVENTS.set_column(2, "ts", pa.array([1.5] * 5)), "'ts' is double instead of int64"),
        (EVENTS.set_column(2, "ts", pa.array(["a"] * 5)), "'ts' is string instead of int64"),
        (more(7).set_column(1, "session", pa.array(["a", None])), "group 'session' of a row is nu"),
        (pa.concat_tables([more(7), more(8)]), "key id=8 is given twice"),
        (more(5), "key id=5 is already in the table"),
        (more(7).set_column(0, "id", pa.array([7, None])), "key 'id' of a row is null"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_nothing_is_left(
    table: sv.Table, rows: Any, message: str
) -> None:
    before = all_files(table.path)
    with pytest.raises(sv.TableError, match=message):
        table.append(rows)
    assert all_files(table.path) == before
    assert table.version.number == 1


def test_a_pipeline_that_fails_appends_nothing(table: sv.Table) -> None:
    def fails(id: int) -> int:
        return 1 // (id - 6)

    rows = sv.from_arrow(more(5, 3)).derive(ts=fails)
    before = all_files(table.path)
    with pytest.raises(sv.RowError, match="ZeroDivisionError"):
        table.append(rows)
    assert all_files(table.path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nope"}, "key='nope': there is no such column"),
        ({"group": "nope"}, "group='nope': there is no such column"),
        ({"time": "nope"}, "time='nope': there is no such column"),
        ({"group": "items"}, "which has no order"),
    ],
)
def test_roles_need_columns(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(sv.TableError, match=message):
        sv.Table.create(tmp_path / "t", EVENTS, **options)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([[[1]]], pa.list_(pa.list_view(pa.int64()))),
        pa.RunEndEncodedArray.from_arrays([1], [7]),
    ],
)
def test_types_that_a_table_cannot_hold_are_refused(tmp_path: Path, column: pa.Array) -> None:
    with pytest.raises(sv.TableError, match=r"column 'x' has the type .* cannot hold"):
        sv.Table.create(tmp_path / "t", pa.table({"x": column}))


def test_lists_of_one_length_are_plain_lists_where_files_cannot_hold_them(tmp_path: Path) -> None:
    rows = pa.table({
        "pair": pa.array([["a", "b"], None, ["c", None]], pa.list_(pa.string(), 2)),
        "none": pa.array([[], None, []], pa.list_(pa.int8(), 0)),
    })  # fmt: skip
    table = sv.Table.create(tmp_path / "t", rows).append(rows)
    assert rows_of(table) == rows.to_pylist() * 2


def test_what_is_no_table_says_so(tmp_path: Path, table: sv.Table) -> None:
    with pytest.raises(sv.TableError, match="is not a table"):
        sv.Table.open(tmp_path)
    with pytest.raises(sv.TableError, match="is not a table"):
        sv.read_table(tmp_path / "nowhere")
    with pytest.raises(sv.TableError, match="is already a table"):
        sv.Table.create(table.path, EVENTS)
    with pytest.raises(sv.TableError, match="no branch 'nope'; its branches are main"):
        sv.Table.open(table.path, "nope")
    with pytest.raises(sv.TableError, match="no version 7"):
        table.at(7)
    with pytest.raises(sv.TableError, match="may hold only letters"):
        table.branch("../x")
    with pytest.raises(sv.PlanError, match="rows in Arrow's format"):
        table.append([1, 2])


def test_a_damaged_list_is_told_from_a_good_one(table: sv.Table) -> None:
    (path,) = (Path(table.path) / "lists").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"rows":5', b'"rows":6'))
    with pytest.raises(sv.TableError, match="is damaged"):
        sv.read_table(table.path)


# Garbage.


def test_gc_keeps_all_versions_unless_told(table: sv.Table) -> None:
    table.append(more(10)).delete(sv.col("id") < 3).append(more(20))
    assert table.gc().files == 0
    assert ids(table.at(1)) == [4, 2, 3, 5, 1]
    assert_no_orphans(table.path)


def test_versions_that_were_given_up_are_gone_but_for_tags_and_branches(table: sv.Table) -> None:
    table.branch("exp")
    table.append(more(10)).tag("kept").append(more(20)).restore(1)
    removed = table.gc(versions=1)
    assert removed.bytes > 0
    assert ids(table) == [4, 2, 3, 5, 1]
    assert ids(table.at("kept")) == [4, 2, 3, 5, 1, 10, 11]
    with pytest.raises(sv.TableError, match=r"version 3 .* was collected"):
        table.at(3)
    with pytest.raises(sv.TableError, match="was collected"):
        table.restore(1)
    assert [v.number for v in table.versions()] == [2, 4]
    exp = table.branch("exp")
    exp.append(more(30)).gc(versions=1)
    assert [v.number for v in exp.versions()] == [3]
    with pytest.raises(sv.TableError, match=r"version 1 of branch 'main' .* was collected"):
        exp.at(1)
    assert_no_orphans(table.path)
    table.append(more(30))
    assert table.version.number == 5, "numbers are not taken again"


def test_gc_leaves_the_files_of_a_writer_at_work(table: sv.Table) -> None:
    folder = Folder(table.path)
    schema = folder.schema(table.version.schema)
    with DataWriter(folder) as writer:
        made = [f for _, f in ingest.ingest(writer, iter([more(10)]), schema)]
        assert table.gc().files == 0
        table.append(more(20))
        assert table.gc().files == 0

        def change(head: Any) -> Any:
            lists = commits.new_lists(folder, head.lists, made)
            return msgspec.structs.replace(head, lists=lists)

        with writer.committing():
            commits.commit(folder, "main", change)
    assert ids(table)[-4:] == [20, 21, 10, 11]
    assert table.gc().files == 0


def test_an_interrupt_right_after_a_commit_does_not_take_its_files_away(
    table: sv.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Folder.publish_version

    def publish_version(folder: Folder, version: Version) -> bool:
        real(folder, version)
        raise KeyboardInterrupt

    monkeypatch.setattr(Folder, "publish_version", publish_version)
    with pytest.raises(KeyboardInterrupt):
        table.append(more(10))
    monkeypatch.undo()
    assert ids(table)[-2:] == [10, 11]
    assert_no_orphans(table.path)


# Size.


def test_fragments_are_bounded_and_cut_between_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "FRAGMENT_ROWS", 10)
    rows = pa.table({"g": np.repeat(np.arange(20), 4), "i": np.arange(80)})
    table = sv.Table.create(tmp_path / "t", rows, group="g")
    sizes = [f.rows for f in Folder(table.path).all_fragments(table.version)]
    assert sizes == [8] * 10
    assert [r["i"] for r in rows_of(table)] == list(range(80))


def test_what_does_not_fit_in_memory_is_spread_by_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 20_000
    rows = pa.table({"g": rng.integers(0, 500, count), "t": rng.permutation(count)})
    batches = rows.to_batches(max_chunksize=512)
    reader = pa.RecordBatchReader.from_batches(rows.schema, batches)
    table = sv.Table.create(tmp_path / "t", reader, group="g", time="t", memory=20_000)
    fragments = list(Folder(table.path).all_fragments(table.version))
    assert len(fragments) > 20
    found = rows_of(table)
    assert sorted((r["g"], r["t"]) for r in found) == sorted(
        zip(rows["g"].to_pylist(), rows["t"].to_pylist(), strict=True)
    )
    seen: set[int] = set()
    at = 0
    for fragment in fragments:
        part = found[at : at + fragment.rows]
        at += fragment.rows
        assert part == sorted(part, key=lambda r: (r["g"], r["t"]))
        own = {r["g"] for r in part}
        assert not own & seen, "a group is in one fragment"
        seen |= own
    assert_no_orphans(table.path)


def test_a_version_stays_small_with_thousands_of_fragments(tmp_path: Path) -> None:
    table = sv.Table.create(tmp_path / "t", pa.table({"x": [0]}))
    folder = Folder(table.path)
    (fragment,) = folder.all_fragments(table.version)

    def append(head: Any) -> Any:
        lists = commits.new_lists(folder, head.lists, [fragment])
        return msgspec.structs.replace(head, lists=lists)

    for _ in range(40):
        commits.commit(folder, "main", append)
    sizes = [ref.fragments for ref in table.version.lists]
    assert sum(sizes) == 41
    assert len(sizes) <= 6
    full = commits.new_lists(folder, (), [fragment] * 512)
    lists = full * 16
    for _ in range(100):
        lists = commits.new_lists(folder, lists, [fragment])
    assert sum(ref.fragments for ref in lists) == 16 * 512 + 100
    assert len(lists) <= 16 + 7

    commits.commit(folder, "main", lambda head: msgspec.structs.replace(head, lists=lists))
    before = all_files(table.path)
    table.derive(label=lambda x: x > 30)
    new = all_files(table.path) - before
    assert sum(path.stat().st_size for path in new) < 10_000
    assert not [path for path in new if path.parent.name in ("lists", "data")]


def test_a_table_is_not_made_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(sv.TableError, match="is a file"):
        sv.Table.create(tmp_path / "file", pa.table({"x": [1]}))
    assert (tmp_path / "file").read_text() == "mine"
