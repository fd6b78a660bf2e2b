from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from source_laws import check_chunked, everything, unit

from silva.errors import SourceError
from silva.io.lake.parquet import read_parquet

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
ROWS = [
    {
        "n": i,
        "s": None if i % 5 == 0 else f"é{i}",
        "l": list(range(i % 4)),
        "p": {"x": i / 2, "y": i},
    }
    for i in range(50)
]
FLAT = [
    {"n": r["n"], "s": r["s"], "l": r["l"], "p.x": r["p"]["x"], "p.y": r["p"]["y"]} for r in ROWS
]
TABLE = pa.Table.from_pylist(ROWS)


@quick
@given(st.integers(1, 30), st.integers(0, 50))
def test_rows_come_back_whatever_the_row_groups(tmp_path, size, cut):
    pq.write_table(TABLE.slice(0, cut), tmp_path / "a.parquet", row_group_size=size)
    pq.write_table(TABLE.slice(cut), tmp_path / "b.parquet", row_group_size=size)
    source = read_parquet(tmp_path)
    assert source.length() == 50
    assert check_chunked(source) == FLAT


def test_chosen_columns_and_fields_of_structs(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    path = tmp_path / "a.parquet"
    assert read_parquet(path, columns=["p", "n"]).columns() == ("p.x", "p.y", "n")
    source = read_parquet(path, columns=["p.y"])
    assert check_chunked(source) == [{"p.y": row["p.y"]} for row in FLAT]
    with pytest.raises(SourceError, match=r"no column 'z'; it has: n, s, l, p.x, p.y"):
        read_parquet(path, columns=["z"]).columns()


def test_only_the_columns_asked_for_are_read(tmp_path, monkeypatch):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    asked = []
    original = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: asked.append(options["columns"]) or original(self, **options),
    )
    source = read_parquet(tmp_path)
    unit(source, 0, 0, ("p.x",))
    unit(source, 0, 0, ())
    assert asked == [["p.x"]]


def test_runs_are_bounded(tmp_path):
    table = pa.table({"i": range(300_000), "s": ["x" * 60] * 300_000})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300_000)
    runs = list(read_parquet(tmp_path).open(0, 5, ("i", "s")))
    assert sum(len(run["i"]) for run in runs) == 299_995
    assert max(len(run["i"]) for run in runs) <= 65_536
    assert max(sum(c.nbytes for c in run.values()) for run in runs) <= 5 << 20


def test_types_are_those_of_the_first_file(tmp_path):
    wide = pa.table({"a": pa.array([1, 2], pa.int64()), "p": [{"x": 1.5}, {"x": 2.5}]})
    narrow = pa.table(
        {
            "p": pa.array([{"x": 0.5}], pa.struct({"x": pa.float32()})),
            "a": pa.array([3], pa.int8()),
        }
    )
    pq.write_table(wide, tmp_path / "a.parquet")
    pq.write_table(narrow, tmp_path / "b.parquet")
    source = read_parquet(tmp_path)
    assert source.types() == {"a": "int64", "p.x": "float64"}
    assert [row["a"] for row in check_chunked(source)] == [1, 2, 3]
    (run,) = source.open(1, 0, ("a", "p.x"))
    assert run["a"].data.dtype == "int64"
    assert run["p.x"].data.dtype == "float64"


def test_a_value_that_does_not_fit_is_an_error(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1000]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b.parquet"):
        everything(read_parquet(tmp_path))


def test_files_that_do_not_go_together_are_named(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1], "more": [2]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b.parquet has other columns .*extra: \['more'\]"):
        read_parquet(tmp_path).length()
    assert len(everything(read_parquet(tmp_path, columns=["a"]))) == 2
    pq.write_table(pa.table({"a": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b.parquet: column 'a' is list"):
        read_parquet(tmp_path).length()


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_a_truncated_file_is_named(tmp_path, keep):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=r"a.parquet is truncated"):
        read_parquet(path).length()


def test_damaged_data_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"a.parquet"):
        everything(read_parquet(path))


def test_a_changed_file_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path)
    source = read_parquet(path)
    assert source.length() == 50
    pq.write_table(TABLE.slice(3), path)
    with pytest.raises(SourceError, match="has changed"):
        unit(source, 0)


def test_many_kinds_of_values(tmp_path):
    table = pa.table(
        {
            "t": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("us")),
            "d": pa.array(["a", "b"]).dictionary_encode(),
            "b": pa.array([True, None]),
            "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rows = check_chunked(read_parquet(tmp_path))
    assert rows[0]["v"] == [1.0, 2.0]
    assert [row["d"] for row in rows] == ["a", "b"]
    assert rows[1]["b"] is None


def test_a_worker_does_not_read_all_footers_again(tmp_path, monkeypatch):
    import cloudpickle

    for i in range(3):
        pq.write_table(TABLE, tmp_path / f"{i}.parquet")
    source = read_parquet(tmp_path)
    assert source.units() == 3
    travelled = cloudpickle.loads(cloudpickle.dumps(source))
    read = []
    original = pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda f: read.append(f) or original(f))
    assert unit(travelled, 1) == FLAT
    assert len(read) == 1
