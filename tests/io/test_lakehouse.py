"""Delta and Iceberg tables: the rows of a version, by silva's own reading of Parquet."""

from __future__ import annotations

import base64
import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_laws import check_chunked, check_indexed

import silva as sv
from silva.testing import assert_same_stream


def rows(pipeline: sv.Pipeline) -> list[dict]:
    return list(pipeline.loader(workers=0))


def table(start: int, count: int, **more) -> pa.Table:
    x = np.arange(start, start + count)
    return pa.table({"x": x, "p": [f"part {i % 3}" for i in x], "w": x / 2, **more})


class TestDelta:
    @pytest.fixture(autouse=True)
    def _needs_deltalake(self):
        self.deltalake = pytest.importorskip("deltalake")

    def test_all_versions_can_be_read(self, tmp_path):
        write = self.deltalake.write_deltalake
        write(tmp_path, table(0, 30))
        write(tmp_path, table(30, 5), mode="append")
        assert [row["x"] for row in rows(sv.read_delta(tmp_path, version=0))] == list(range(30))
        assert sorted(row["x"] for row in rows(sv.read_delta(tmp_path))) == list(range(35))
        assert sv.read_delta(tmp_path).count() == 35
        fingerprints = {sv.read_delta(tmp_path, v).fingerprint for v in (0, 1, None)}
        assert len(fingerprints) == 2

    def test_partitions_are_filled_in_and_skipped(self, tmp_path):
        data = table(0, 30).append_column("n", pa.array([i % 3 for i in range(30)]))
        self.deltalake.write_deltalake(tmp_path, data, partition_by=["p", "n"])
        found = rows(sv.read_delta(tmp_path).select("x", "p", "n"))
        by_x = sorted(found, key=lambda row: row["x"])
        assert len(check_chunked(sv.read_delta(tmp_path).plan.source)) == 30
        assert by_x == [{"x": i, "p": f"part {i % 3}", "n": i % 3} for i in range(30)]
        source = sv.read_delta(tmp_path).plan.source
        two = sv.read_delta(tmp_path).filter(sv.col("n") == 2)
        assert {row["x"] % 3 for row in rows(two)} == {2}
        from silva.io.conditions import Condition

        held = [source.may_hold(u, (Condition("n", "equal", 2),)) for u in range(source.units())]
        assert sum(held) == 1

    def test_columns_that_came_later_are_null_before(self, tmp_path):
        write = self.deltalake.write_deltalake
        write(tmp_path, table(0, 3))
        write(tmp_path, table(3, 2, extra=["a", "b"]), mode="append", schema_mode="merge")
        found = sorted(rows(sv.read_delta(tmp_path)), key=lambda row: row["x"])
        assert [row["extra"] for row in found] == [None, None, None, "a", "b"]

    def test_deleted_rows_are_gone_also_where_a_vector_says_so(self, tmp_path):
        roaring = pytest.importorskip("pyroaring")
        self.deltalake.write_deltalake(tmp_path, table(0, 10))
        _delete_by_vector(tmp_path, [1, 4, 9], roaring)
        pipeline = sv.read_delta(tmp_path)
        assert [row["x"] for row in rows(pipeline)] == [0, 2, 3, 5, 6, 7, 8]
        assert pipeline.count() == 7
        assert [row["x"] for row in check_chunked(pipeline.plan.source)] == [0, 2, 3, 5, 6, 7, 8]
        assert_same_stream(pipeline.batch(2), backends=("threads",), fresh_process=False)
        assert sv.read_delta(tmp_path, 0).count() == 10

    def test_mapped_columns_are_refused(self, tmp_path, monkeypatch):
        self.deltalake.write_deltalake(tmp_path, table(0, 3))
        log = tmp_path / "_delta_log" / "00000000000000000000.json"
        changed = log.read_text().replace(
            '"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'
        )
        log.write_text(changed)
        with pytest.raises(sv.SourceError, match=r"columnMapping|column mapping|Delta table"):
            sv.read_delta(tmp_path)

    def test_what_is_no_table_is_told(self, tmp_path):
        with pytest.raises(sv.SourceError, match="cannot be read as a Delta table"):
            sv.read_delta(tmp_path / "nothing")
        with pytest.raises(sv.PlanError, match="reads no"):
            sv.read_delta("https://host/table")
        self.deltalake.write_deltalake(tmp_path, table(0, 3))
        with pytest.raises(sv.SourceError, match="version"):
            sv.read_delta(tmp_path, version=7)
        with pytest.raises(sv.SourceError, match="no column 'nope'"):
            sv.read_delta(tmp_path, columns=["nope"]).head(1)

    def test_one_stream_whatever_runs_it(self, tmp_path):
        data = table(0, 60)
        self.deltalake.write_deltalake(tmp_path, data, partition_by=["p"])
        pipeline = sv.read_delta(tmp_path).derive(y=lambda x, rng: x + rng.random())
        assert_same_stream(pipeline.shuffle(seed=2).batch(7), workers=(2,))


def _delete_by_vector(folder: Path, deleted: list[int], roaring) -> None:
    """Adds the commit of a writer that marks rows instead of writing the file again."""
    log = folder / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    add = next(action["add"] for action in first if "add" in action)
    bits = (1681511377).to_bytes(4, "little") + roaring.BitMap64(deleted).serialize()
    padded = bits + bytes(-len(bits) % 4)
    usual = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    inline = base64.b85encode(padded).decode().translate(str.maketrans(usual, z85))
    vector = {
        "storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(bits),
        "cardinality": len(deleted),
    }  # fmt: skip
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": vector, "dataChange": True}},
    ]
    (log / f"{1:020d}.json").write_text("\n".join(map(json.dumps, actions)))


class TestIceberg:
    @pytest.fixture(autouse=True)
    def _catalog(self, tmp_path):
        pytest.importorskip("pyiceberg")
        pytest.importorskip("sqlalchemy")
        from pyiceberg.catalog.sql import SqlCatalog

        self.catalog = SqlCatalog(
            "local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/house"
        )
        self.catalog.create_namespace("shop")
        yield
        from pyiceberg.utils.concurrent import ExecutorFactory

        if ExecutorFactory._instance is not None:  # threads that pyiceberg keeps for later
            ExecutorFactory._instance.shutdown()
            ExecutorFactory._instance = None

    def make(self, data: pa.Table, **arguments):
        made = self.catalog.create_table("shop.events", schema=data.schema, **arguments)
        made.append(data)
        return made

    def test_all_snapshots_can_be_read_in_every_way(self):
        made = self.make(table(0, 30))
        first = made.current_snapshot().snapshot_id
        made.append(table(30, 5))
        assert [row["x"] for row in rows(sv.read_iceberg(made, first))] == list(range(30))
        for how in (made, (self.catalog, "shop.events"), made.metadata_location):
            assert sorted(row["x"] for row in rows(sv.read_iceberg(how))) == list(range(35))
        now = sv.read_iceberg(made).fingerprint
        assert now == sv.read_iceberg(made.metadata_location).fingerprint
        assert now != sv.read_iceberg(made, first).fingerprint

    def test_renamed_added_and_widened_columns_are_found(self):
        from pyiceberg.types import LongType, StringType

        data = pa.table({"x": pa.array([1, 2], pa.int32()), "old": ["a", "b"]})
        made = self.make(data)
        with made.update_schema() as update:
            update.rename_column("old", "new")
        with made.update_schema() as update:
            update.add_column("old", StringType())
            update.update_column("x", LongType())
        made.append(pa.table({"x": [3], "new": ["c"], "old": ["other"]}))
        found = sorted(rows(sv.read_iceberg(made)), key=lambda row: row["x"])
        assert [(row["x"], row["new"], row["old"]) for row in found] == [
            (1, "a", None), (2, "b", None), (3, "c", "other"),
        ]  # fmt: skip
        assert sv.read_iceberg(made).schema["x"] == "int64"
        assert len(check_chunked(sv.read_iceberg(made).plan.source)) == 3

    def test_renamed_fields_of_structs_are_found_at_any_depth(self):
        from pyiceberg.types import DoubleType, LongType

        place = pa.struct([("lat", pa.float32()), ("deep", pa.struct([("n", pa.int32())]))])
        item = pa.struct([("sku", pa.string()), ("count", pa.int32())])
        schema = pa.schema(
            {
                "x": pa.int64(),
                "place": place,
                "items": pa.list_(item),
                "by": pa.map_(pa.string(), item),
            }
        )
        some = {"sku": "a", "count": 2}
        old = {
            "x": 1,
            "place": {"lat": 1.5, "deep": {"n": 7}},
            "items": [some, None, {"sku": "b", "count": None}],
            "by": [("k", some)],
        }
        empty = {"x": 2, "place": None, "items": None, "by": None}
        made = self.make(pa.Table.from_pylist([old, empty], schema))
        with made.update_schema() as update:
            update.rename_column(("place", "lat"), "latitude")
            update.update_column(("place", "lat"), DoubleType())
            update.rename_column(("place", "deep", "n"), "number")
            update.rename_column(("place", "deep"), "below")
            update.rename_column("place", "where")
            update.rename_column(("items", "element", "sku"), "article")
            update.rename_column(("by", "value", "sku"), "article")
        with made.update_schema() as update:
            update.add_column(("where", "lat"), LongType())
            update.add_column(("items", "sku"), LongType())
            update.move_first(("items", "element", "count"))
        found = {row["x"]: row for row in rows(sv.read_iceberg(made))}
        assert found[1] == {
            "x": 1,
            "where.latitude": 1.5,
            "where.below.number": 7,
            "where.lat": None,
            "items": [
                {"count": 2, "article": "a", "sku": None},
                None,
                {"count": None, "article": "b", "sku": None},
            ],
            "by": [("k", {"article": "a", "count": 2})],
        }
        nothing = {"items": [], "by": []}  # pyiceberg writes no null lists of structs
        assert found[2] == {**dict.fromkeys(found[1]), "x": 2, **nothing}
        assert sv.read_iceberg(made).schema["where.latitude"] == "float64"
        few = sv.read_iceberg(made, columns=["where.below.number"]).filter(
            sv.col("where.below.number") > 6
        )
        assert rows(few) == [{"where.below.number": 7}]
        assert len(check_chunked(sv.read_iceberg(made).plan.source)) == 2

    def test_a_field_that_was_dropped_and_made_again_is_another(self):
        from pyiceberg.types import LongType

        kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
        data = pa.table({"s": pa.array([{"a": 1, "b": 2}], kind), "l": [[{"a": 1}]]})
        made = self.make(data)
        for place in (("s", "a"), ("l", "element", "a")):
            with made.update_schema(allow_incompatible_changes=True) as update:
                if place[0] == "l":
                    update.add_column(("l", "keep"), LongType())
                update.delete_column(place)
            with made.update_schema() as update:
                update.add_column(tuple(n for n in place if n != "element"), LongType())
        (row,) = rows(sv.read_iceberg(made))
        assert row == {"s.b": 2, "s.a": None, "l": [{"keep": None, "a": None}]}

    def test_files_without_numbers_are_read_by_the_names_that_columns_had(self, tmp_path):
        kind = pa.struct([("a", pa.int64())])
        data = pa.table({"x": [1, 2], "s": pa.array([{"a": 3}, {"a": 4}], kind)})
        made = self.catalog.create_table("shop.events", schema=data.schema)
        pq.write_table(data, tmp_path / "plain.parquet")
        made.add_files([f"file://{tmp_path}/plain.parquet"])
        with made.update_schema() as update:
            update.rename_column("x", "y")
            update.rename_column(("s", "a"), "b")
        assert rows(sv.read_iceberg(made)) == [{"y": 1, "s.b": 3}, {"y": 2, "s.b": 4}]

    def test_an_old_snapshot_has_the_names_that_it_had(self):
        data = pa.table({"p": ["a", "b"], "x": [1, 2]})
        made = self.make(data)
        first = made.current_snapshot().snapshot_id
        with made.update_schema() as update:
            update.rename_column("p", "q")
        made.append(pa.table({"q": ["c"], "x": [3]}))
        assert rows(sv.read_iceberg(made, first)) == [{"p": "a", "x": 1}, {"p": "b", "x": 2}]

    def test_partitions_are_filled_in_where_files_leave_them_out(self):
        data = table(0, 6)
        made = self.make(data)
        with made.update_spec() as update:
            update.add_identity("p")
        made = self.catalog.load_table("shop.events")
        made.overwrite(data)
        for path in {task.file.file_path for task in made.scan().plan_files()}:
            file = path.removeprefix("file://")
            left = pq.read_table(file, partitioning=None).drop_columns(["p"])
            pq.write_table(left, file)
        found = sorted(rows(sv.read_iceberg(made)), key=lambda row: row["x"])
        assert [row["p"] for row in found] == [f"part {i % 3}" for i in range(6)]

    def test_rows_deleted_by_position_are_gone(self, tmp_path, monkeypatch):
        made = self.make(table(0, 10))
        (task,) = made.scan().plan_files()
        deletes = tmp_path / "deletes.parquet"
        path = task.file.file_path
        pq.write_table(pa.table({"file_path": [path, path, "other"], "pos": [4, 1, 2]}), deletes)
        _with_deletes(monkeypatch, made, str(deletes), "POSITION_DELETES")
        assert [row["x"] for row in rows(sv.read_iceberg(made))] == [0, 2, 3, 5, 6, 7, 8, 9]
        assert sv.read_iceberg(made).count() == 8

    def test_other_deletes_are_refused(self, tmp_path, monkeypatch):
        made = self.make(table(0, 10))
        _with_deletes(monkeypatch, made, "x.parquet", "EQUALITY_DELETES")
        with pytest.raises(sv.SourceError, match=r"equality_deletes.*compact"):
            sv.read_iceberg(made)

    def test_an_empty_table_has_columns_and_no_rows(self):
        made = self.catalog.create_table("shop.empty", schema=table(0, 1).schema)
        assert sv.read_iceberg(made).columns == ("x", "p", "w")
        assert rows(sv.read_iceberg(made)) == []

    def test_what_is_no_table_is_told(self, tmp_path):
        with pytest.raises(sv.SourceError, match="cannot be read as an Iceberg table"):
            sv.read_iceberg(tmp_path / "nothing.metadata.json")
        with pytest.raises(sv.SourceError, match="cannot be read as an Iceberg table"):
            sv.read_iceberg((self.catalog, "shop.nothing"))
        with pytest.raises(sv.PlanError, match="path of a metadata file"):
            sv.read_iceberg(7)
        with pytest.raises(sv.SourceError, match="no snapshot 5"):
            sv.read_iceberg(self.make(table(0, 1)), 5)

    def test_one_stream_whatever_runs_it(self):
        made = self.make(table(0, 40))
        made.append(table(40, 20))
        pipeline = sv.read_iceberg(made).filter(sv.col("x") > 3)
        assert_same_stream(pipeline.batch(7), workers=(2,))


def _with_deletes(monkeypatch, made, path: str, content: str) -> None:
    """The table as one whose files have deletes, which pyiceberg itself does not write."""
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.table import DataScan

    class Deletes:
        file_path = path
        file_format = FileFormat.PARQUET

    Deletes.content = DataFileContent[content]
    plan_files = DataScan.plan_files

    def with_deletes(self):
        tasks = list(plan_files(self))
        for task in tasks:
            task.delete_files = {Deletes()}
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)


class TestLance:
    @pytest.fixture(autouse=True)
    def _needs_lance(self):
        self.lance = pytest.importorskip("lance")

    def test_rows_of_any_version_come_in_any_order(self, tmp_path):
        path = tmp_path / "t.lance"
        self.lance.write_dataset(table(0, 50), path, max_rows_per_file=20)
        self.lance.write_dataset(table(50, 7), path, mode="append")
        assert [row["x"] for row in rows(sv.read_lance(path, 1))] == list(range(50))
        everything = sv.read_lance(path)
        assert everything.count() == 57
        assert sorted(row["x"] for row in rows(everything.shuffle(seed=1))) == list(range(57))
        drawn = everything.sample(weights=np.arange(57), size=30)
        assert len(rows(drawn)) == 30
        assert everything.fingerprint != sv.read_lance(path, 1).fingerprint
        assert sv.read_lance(path, 2).fingerprint == everything.fingerprint

    def test_deleted_rows_are_gone(self, tmp_path):
        path = tmp_path / "t.lance"
        dataset = self.lance.write_dataset(table(0, 20), path)
        dataset.delete("x % 3 = 1")
        found = [row["x"] for row in rows(sv.read_lance(path))]
        assert found == [i for i in range(20) if i % 3 != 1]
        assert [row["x"] for row in check_indexed(sv.read_lance(path).plan.source)] == found
        shuffled = [row["x"] for row in rows(sv.read_lance(path).shuffle(seed=3))]
        assert sorted(shuffled) == found

    def test_mistakes_are_told(self, tmp_path):
        with pytest.raises(sv.SourceError, match="cannot be read as a Lance dataset"):
            sv.read_lance(tmp_path / "nothing")
        self.lance.write_dataset(table(0, 5), tmp_path / "t.lance")
        with pytest.raises(sv.SourceError, match="no column 'nope'"):
            sv.read_lance(tmp_path / "t.lance", columns=["nope"]).head(1)

    def test_one_stream_whatever_runs_it(self, tmp_path):
        at = [datetime.datetime(2020, 1, 1) + datetime.timedelta(i) for i in range(60)]
        data = table(0, 60, at=at, tags=[[i] * (i % 3) for i in range(60)])
        self.lance.write_dataset(data, tmp_path / "t.lance")
        pipeline = sv.read_lance(tmp_path / "t.lance").shuffle(seed=1).batch(8)
        assert_same_stream(pipeline, workers=(2,))
