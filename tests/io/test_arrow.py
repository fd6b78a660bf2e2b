from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_laws import check_chunked, check_indexed, everything, unit

import silva as sv
from silva.columns import Array
from silva.errors import PlanError, SourceError
from silva.io.arrays.arrow import from_arrow, read_arrow
from silva.testing import digest

ROWS = [
    {"n": i, "s": None if i % 3 else f"é{i}", "l": list(range(i % 4)), "p": {"x": i / 2, "b": b"z"}}
    for i in range(40)
]
FLAT = [{"n": r["n"], "s": r["s"], "l": r["l"], "p.x": r["p"]["x"], "p.b": b"z"} for r in ROWS]
TABLE = pa.Table.from_pylist(ROWS)


def write(path, table=TABLE, size=7, stream=False, **options):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=size)
    return path


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_record_batch_is_a_unit(tmp_path, compression):
    write(tmp_path / "a.arrow", compression=compression)
    write(tmp_path / "b.arrow", compression=compression)
    source = read_arrow(tmp_path)
    assert source.units() == 12
    assert source.length() == 80
    assert source.types()["l"] == "list<int64>"
    assert check_chunked(source) == FLAT * 2


def test_a_stream_is_one_unit(tmp_path):
    source = read_arrow(write(tmp_path / "a.arrows", stream=True))
    assert source.units() == 1
    assert source.unit_rows() is None
    assert check_chunked(source) == FLAT


def test_large_batches_come_in_bounded_runs(tmp_path):
    table = pa.table({"x": range(200_000), "s": ["x" * 100] * 200_000})
    source = read_arrow(write(tmp_path / "a.arrow", table, size=200_000))
    runs = list(source.open(0, 10, ("x", "s")))
    assert sum(len(run["x"]) for run in runs) == 199_990
    assert max(sum(c.nbytes for c in run.values()) for run in runs) < 5 << 20
    assert isinstance(runs[0]["x"], Array)
    assert not runs[0]["x"].data.flags.writeable


def test_an_empty_table_is_fine(tmp_path):
    assert everything(read_arrow(write(tmp_path / "a.arrow", TABLE.slice(0, 0)))) == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("keep", [0, 3, 300, -30])
def test_a_truncated_file_is_named(tmp_path, stream, keep):
    path = write(tmp_path / "a.arrow", stream=stream)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SourceError, match=r"a.arrow is truncated"):
        everything(read_arrow(path))


def test_another_schema_is_named(tmp_path):
    write(tmp_path / "a.arrow")
    write(tmp_path / "b.arrow", pa.table({"z": [1]}))
    with pytest.raises(SourceError, match=r"b.arrow has another schema"):
        read_arrow(tmp_path).columns()


@given(st.lists(st.lists(st.integers(0, 39), max_size=10), max_size=4))
def test_any_rows_of_a_table(picks):
    chunked = pa.concat_tables([TABLE.slice(0, 13), TABLE.slice(13)])
    assert check_indexed(from_arrow(chunked), picks) == FLAT


def test_whatever_speaks_arrow_is_a_table():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    expected = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    table = pa.table(frame)
    for data in (frame, table, table.to_batches()[0], table.to_reader()):
        assert check_indexed(from_arrow(data)) == expected


def test_the_fingerprint_is_that_of_the_rows():
    same = pa.concat_tables([TABLE.slice(0, 20), TABLE.slice(20)])
    assert from_arrow(TABLE).fingerprint() == from_arrow(same).fingerprint()
    assert from_arrow(TABLE).fingerprint() != from_arrow(TABLE.slice(1)).fingerprint()


def test_what_is_no_table_is_refused():
    for wrong in ([1, 2], {"a": [1]}, pa.array([1, 2])):
        with pytest.raises(PlanError, match="from_arrow takes"):
            from_arrow(wrong)
    with pytest.raises(SourceError, match="two columns are called 'a'"):
        from_arrow(pa.table([[1], [2]], names=["a", "a"]))


def test_an_empty_table_in_memory():
    assert check_indexed(from_arrow(TABLE.slice(0, 0))) == []


def test_a_stream_that_ends_early_is_an_error_in_the_middle(tmp_path):
    path = write(tmp_path / "a.arrow", stream=True)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(SourceError, match="truncated"):
        unit(read_arrow(path), 0, 30)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array([1, 2, None], pa.date32()),
        pa.array([[True], [False], None]),
        pa.array([[1, None], [3, 4], None], pa.list_(pa.int64(), 2)),
        pa.array([[{"a": 1}], [], [{"a": 3}]]),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("size", [2, 3])
def test_a_consumer_that_writes_into_batches_does_not_change_the_table(column, size):
    batches = sv.from_arrow(pa.table({"o": column})).batch(size)
    expected = [digest(batch) for batch in batches.loader(backend="inline")]
    with batches.loader(backend="inline") as loader:
        for _ in range(2):
            found = []
            for batch in loader:
                found.append(digest(batch))
                _overwrite(getattr(batch["o"], "values", batch["o"]))
            assert found == expected


def _overwrite(values):
    for row in values:
        if isinstance(row, list | dict):
            row.clear()
    if values.dtype != object:
        np.ma.getdata(values)[...] = np.zeros((), values.dtype)
