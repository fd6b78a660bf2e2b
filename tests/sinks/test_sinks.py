"""Pipelines written to Parquet and tar files: every row once, in order, whatever happens."""

from __future__ import annotations

import contextlib
import random
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from failure_tools import run_script, start_script

import silva as sv
from silva.folders import OwnFolder
from silva.sinks.parquet import ParquetWriter
from silva.sinks.progress import alone, write_progress
from silva.sinks.write import Limits
from silva.testing import digest


def rows(n: int = 1000) -> sv.Pipeline:
    return (
        sv.from_columns({"x": np.arange(n), "w": np.linspace(0, 1, n, dtype=np.float32)})
        .derive(
            name=lambda x: f"row {x}",
            maybe=lambda x: None if x % 3 == 0 else x,
            vector=lambda x: np.full(3, x, np.int16),
            ragged=lambda x: np.arange(x % 4, dtype=np.float32),
        )
        .shuffle(seed=4)
    )


def digests(pipeline: sv.Pipeline) -> list[str]:
    return [digest(row) for row in pipeline.loader(workers=0)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("_silva"))


def test_parquet_gives_back_the_rows_in_order(tmp_path):
    written = rows().to_parquet(tmp_path, shard_rows=300)
    assert written.rows == 1000
    assert files(tmp_path) == list(written.shards) == [f"part-0000{i}.parquet" for i in range(4)]
    assert digests(sv.read_parquet(tmp_path)) == digests(rows())
    assert [pq.read_metadata(tmp_path / f).num_rows for f in written.shards] == [300] * 3 + [100]


@pytest.mark.parametrize("arguments", [{"workers": 2, "backend": "threads"}, {"workers": 2}])
def test_files_are_the_same_bytes_however_they_are_made(tmp_path, arguments):
    rows().to_parquet(tmp_path / "a", shard_rows=400, workers=0)
    rows().to_parquet(tmp_path / "b", shard_rows=400, **arguments)
    for name in files(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_shards_are_bounded_by_bytes_too(tmp_path):
    wide = sv.from_columns({"x": np.zeros((2000, 256), np.float64)})
    written = wide.to_parquet(tmp_path, shard_bytes="1MiB", workers=0)
    assert len(written.shards) == 4  # two chunks of 256 rows hold a mebibyte


@pytest.mark.parametrize("count", [1, 7, 250, 256, 1000, 1009, 4096, 10_000])
def test_a_shard_never_holds_more_rows_than_asked_for(count):
    limits = Limits(count, 1 << 60)
    held = 0
    while not held or not limits.reached(held, 0):
        held += limits.chunk
    assert held <= count
    assert held >= count - 8
    assert limits.chunk <= 256


def test_tar_gives_back_keys_and_bytes(tmp_path):
    items = sv.from_columns({"i": range(700)}).derive(
        key=lambda i: f"folder/{i:04d}", txt=lambda i: f"é{i}", bin=lambda i: bytes([i % 256]) * i
    )
    written = items.to_tar(tmp_path, shard_rows=300, workers=0)
    assert len(written.shards) == 3
    found = sv.read_tar(tmp_path).select("key", "txt", "bin", "i").head(999)
    assert found == [
        {
            "key": f"folder/{i:04d}",
            "txt": f"é{i}".encode(),
            "bin": bytes([i % 256]) * i,
            "i": b"%d" % i,
        }
        for i in range(700)
    ]


def test_tar_numbers_rows_without_keys_and_leaves_out_nulls(tmp_path):
    items = sv.from_items([{"a": b"x", "b": None}, {"a": None, "b": b"y"}])
    items.to_tar(tmp_path, shard_rows=1)
    assert sv.read_tar(tmp_path, columns=["key", "a", "b"]).head(2) == [
        {"key": "000000000", "a": b"x", "b": None},
        {"key": "000000001", "a": None, "b": b"y"},
    ]


def test_long_and_odd_keys_survive(tmp_path):
    keys = ["x" * 300, "häuser/" + "y" * 120, "a b"]
    sv.from_columns({"key": keys, "t": ["1", "2", "3"]}).to_tar(tmp_path)
    assert [row["key"] for row in sv.read_tar(tmp_path)] == keys


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ["a.b"], "t": ["x"]}, "cannot be the key of a row"),
        ({"key": ["a", "a"], "t": ["x", "y"]}, "differs from the key of the row before"),
        ({"key": ["a"], "t": [None]}, "holds only nulls"),
        ({"key": [3], "t": ["x"]}, "a key must be text"),
        ({"key": ["a"], "t": [1.5]}, "bytes, text or an integer"),
        ({"key": ["a"]}, "besides the keys"),
    ],
)
def test_rows_that_tar_cannot_hold_are_refused(tmp_path, columns, message):
    with pytest.raises(sv.SilvaError, match=message):
        sv.from_columns(columns).to_tar(tmp_path)


def test_progress_and_error_policies_are_those_of_a_loader(tmp_path, capsys):
    failing = rows().derive(y=lambda x: 1 / (x - 5))
    skip = sv.Skip(at_most=3)
    written = failing.to_parquet(tmp_path, progress=True, on_error=skip, workers=0)
    assert written.rows == 999
    with pytest.raises(sv.RowError, match="division by zero"):
        failing.to_parquet(tmp_path / "b", workers=0)
    assert failing.to_parquet(tmp_path / "b", on_error=skip, workers=0).rows == 999


def test_an_empty_pipeline_is_written_and_finished(tmp_path):
    nothing = rows().filter(lambda x: False)
    assert nothing.to_parquet(tmp_path).shards == ()
    assert nothing.to_parquet(tmp_path).rows == 0


def test_a_finished_folder_is_recognised_and_left_alone(tmp_path):
    first = rows().to_parquet(tmp_path, shard_rows=400)
    stamps = {name: (tmp_path / name).stat().st_mtime_ns for name in first.shards}
    assert rows().to_parquet(tmp_path, shard_rows=400) == first
    assert stamps == {name: (tmp_path / name).stat().st_mtime_ns for name in first.shards}


def test_a_folder_of_something_else_is_refused(tmp_path):
    rows().to_parquet(tmp_path / "a", shard_rows=400)
    with pytest.raises(sv.PlanError, match="3 shards of another pipeline"):
        rows(999).to_parquet(tmp_path / "a", shard_rows=400)
    with pytest.raises(sv.PlanError, match="begun with rows=400, not 300"):
        rows().to_parquet(tmp_path / "a", shard_rows=300)
    rows().select("x").to_parquet(tmp_path / "b")
    with pytest.raises(sv.PlanError, match="begun with format"):
        rows().select("x").to_tar(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine.txt").write_text("hello")
    with pytest.raises(sv.PlanError, match=r"holds other files \(mine.txt"):
        rows().to_parquet(tmp_path / "c")


def test_two_writers_do_not_share_a_folder(tmp_path):
    with alone(OwnFolder(tmp_path)), pytest.raises(sv.PlanError, match="by another process"):
        rows().to_parquet(tmp_path)


@pytest.mark.parametrize("arguments", [{"rank": 0}, {"epochs": 2}, {"shard_rows": 0}])
def test_arguments_that_make_no_sense_are_refused(tmp_path, arguments):
    with pytest.raises(sv.PlanError, match=r"one process writes|whole number"):
        rows().to_parquet(tmp_path, **arguments)
    with pytest.raises(sv.PlanError, match="leave out batch"):
        rows().batch(2).to_parquet(tmp_path)


def test_a_type_that_changes_is_told_and_can_be_given(tmp_path):
    mixed = sv.from_columns({"x": range(600)}).derive(y=lambda x: None if x < 500 else f"{x}")
    with pytest.raises(sv.ColumnError, match="'y' is string in some rows and null in the schema"):
        mixed.to_parquet(tmp_path / "a", workers=0)
    schema = pa.schema([("x", pa.int32()), ("y", pa.string())])
    mixed.to_parquet(tmp_path / "b", schema=schema, workers=0)
    assert pq.read_table(tmp_path / "b" / "part-00000.parquet").schema.equals(schema)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch, workers):
    write, left = ParquetWriter.write, [0]

    def interrupted(self, chunk):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return write(self, chunk)

    monkeypatch.setattr(ParquetWriter, "write", interrupted)
    for budget in (1, 3, 2, 4):
        left[0] = budget
        with pytest.raises(KeyboardInterrupt):
            rows().to_parquet(tmp_path, shard_rows=100, workers=workers)
        assert not list(tmp_path.glob(".part-*")), "a half-written shard was left"
    written = rows().to_parquet(tmp_path, shard_rows=100, workers=workers)
    assert len(written.shards) == 10
    assert digests(sv.read_parquet(tmp_path)) == digests(rows())


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_shard_that_was_complete_but_not_yet_listed_is_made_again(tmp_path, monkeypatch, moment):
    count = [0]

    def cut_off(folder, progress):
        count[0] += 1
        if count[0] == moment:
            raise SystemExit
        write_progress(folder, progress)

    with monkeypatch.context() as patch:
        patch.setattr("silva.sinks.write.write_progress", cut_off)
        with contextlib.suppress(SystemExit):  # at the last moments, all is noted
            rows().to_parquet(tmp_path, shard_rows=300, workers=0)
    rows().to_parquet(tmp_path, shard_rows=300, workers=0)
    assert digests(sv.read_parquet(tmp_path)) == digests(rows())


KILLED = """
import os, signal, sys
import numpy as np
import silva as sv

kind, folder, workers, moment = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rows = sv.from_columns({"x": np.arange(3000)}).derive(txt=lambda x: f"row {x}")
rows = rows.filter(sv.col("x") % 7 != 3).shuffle(seed=3).select("txt")
calls = 0


def count(frame, event, argument):
    global calls
    if "silva/sinks" in frame.f_code.co_filename:
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)


sys.setprofile(count)
write = rows.to_parquet if kind == "parquet" else rows.to_tar
write(folder, shard_rows=100, workers=workers, cache="off")
sys.setprofile(None)
print(calls)
"""


@pytest.mark.parametrize(
    ("kind", "workers", "kills"),
    [
        ("parquet", 0, 2),
        pytest.param("parquet", 0, 4, marks=pytest.mark.rest),
        pytest.param("tar", 0, 4, marks=pytest.mark.rest),
        pytest.param("parquet", 2, 4, marks=pytest.mark.rest),
    ],
)
def test_a_killed_writer_loses_and_repeats_nothing(tmp_path, kind, workers, kills):
    """Each run goes on where the one before was killed: together they have not written all."""
    calls = int(run_script(tmp_path, KILLED, kind, str(tmp_path / "whole"), str(workers), "-1"))
    folder = tmp_path / "out"
    rng = random.Random(workers + len(kind))
    for moment in [rng.randint(20, calls // 5) for _ in range(kills)]:
        child = start_script(tmp_path, KILLED, kind, str(folder), str(workers), str(moment))
        _, error = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL, error
    run_script(tmp_path, KILLED, kind, str(folder), str(workers), "-1")
    read = sv.read_parquet(folder) if kind == "parquet" else sv.read_tar(folder)
    found = [row["txt"] if kind == "parquet" else row["txt"].decode() for row in read]
    plain = sv.from_columns({"x": np.arange(3000)}).filter(sv.col("x") % 7 != 3).shuffle(seed=3)
    assert found == [f"row {row['x']}" for row in plain]


def written(pipeline: sv.Pipeline, folder: Path, kind: str) -> list[dict]:
    """The rows after a way through a sink."""
    if kind == "parquet":
        pipeline.to_parquet(folder, shard_rows=2, workers=0)
        return list(sv.read_parquet(folder).loader(workers=0))
    if kind == "table":
        pipeline.to_table(folder, shard_rows=2, workers=0)
        return list(sv.read_table(folder).loader(workers=0))
    return pipeline.batch(2).loader(workers=0).to_arrow().read_all().to_pylist()


SINKS = pytest.mark.parametrize("kind", ["parquet", "table", "arrow"])


@SINKS
def test_a_partly_masked_row_keeps_its_other_items(tmp_path, kind):
    partly = np.ma.array([[1.5, 2, 3], [4, 5, 6]], mask=[[0, 1, 0], [0, 0, 0]])
    wholly = np.ma.array([7.0, 8, 9], mask=True)
    source = sv.from_items([{"v": row} for row in (partly[0], partly[1], wholly)])
    found = [row["v"] for row in written(source, tmp_path / "out", kind)]
    assert found[2] is None
    assert [list(row) for row in found[:2]] == [[1.5, None, 3.0], [4.0, 5.0, 6.0]]


def test_masks_of_several_dimensions_are_nulls_within_lists():
    row = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [1, 0]])
    found = sv.from_items([{"v": row}, {"v": row}]).batch(2).loader(workers=0).to_arrow()
    assert found.read_all().to_pydict() == {"v": [[[1, None], [None, 4]]] * 2}


@SINKS
@pytest.mark.parametrize(
    ("first", "later"),
    [
        (True, 2),
        (np.float32(1), 0.1),
        (np.datetime64("2020-01-01"), np.datetime64("2020-01-01T13:00", "s")),
        ({"a": 1}, {"b": 2}),
        ([True], [2]),
        ([1.5, 2.5], ["1.50"]),
    ],
)
def test_later_rows_that_a_cast_would_change_are_an_error(tmp_path, kind, first, later):
    source = sv.from_items([{"v": first}, {"v": first}, {"v": later}])
    with pytest.raises(sv.ColumnError, match="'v"):
        written(source, tmp_path / "out", kind)


@SINKS
@pytest.mark.parametrize(
    ("first", "later"),
    [
        (1.5, 2),
        (1.5, float("nan")),
        (np.float32(1.5), 0.5),
        (np.float32(1.5), float("nan")),
        (np.datetime64("2020-01-01T00:00", "s"), np.datetime64("2020-01-02")),
        ("a", None),
        ([1.5], [2, 3]),
    ],
)
def test_later_rows_are_cast_where_no_value_changes(tmp_path, kind, first, later):
    source = sv.from_items([{"v": first}, {"v": first}, {"v": later}])
    last = written(source, tmp_path / "out", kind)[2]["v"]
    if isinstance(later, float) and later != later:
        assert last != last
    elif isinstance(later, list):
        assert list(last) == later
    else:
        assert last == later or np.datetime64(last) == later


def test_a_key_with_a_nul_is_refused(tmp_path):
    with pytest.raises(sv.ColumnError, match="no NUL"):
        sv.from_items([{"key": "a\0b", "txt": "x"}]).to_tar(tmp_path / "out", workers=0)


@SINKS
@pytest.mark.parametrize("kind_of_values", ["complex64", "m8[m]", "M8[h]", "i4,f8"])
def test_values_that_arrow_lacks_are_an_error_with_their_column(tmp_path, kind, kind_of_values):
    source = sv.from_columns({"v": np.zeros((2, 2), kind_of_values)})
    with pytest.raises(sv.ColumnError, match="'v' cannot be converted to Arrow"):
        written(source, tmp_path / "out", kind)


@SINKS
def test_numbers_of_the_other_byte_order_are_written(tmp_path, kind):
    found = written(sv.from_columns({"v": np.arange(3).astype(">i4")}), tmp_path / "out", kind)
    assert [row["v"] for row in found] == [0, 1, 2]


def test_masked_arrays_of_fields_are_refused():
    fields = np.ma.array([(1, 2.0)], mask=[(0, 1)], dtype=[("a", "i4"), ("b", "f8")])
    with pytest.raises(sv.PlanError, match="'v' is a masked array of the fields a, b"):
        sv.from_columns({"v": fields})
