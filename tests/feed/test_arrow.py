"""Arrow readers: one schema for the epoch, with or without batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import silva as sv


def reader(pipeline: sv.Pipeline) -> pa.RecordBatchReader:
    return pipeline.loader(workers=0).to_arrow()


def test_batches_become_record_batches() -> None:
    rows = sv.from_columns({"x": range(5), "s": list("abcde")}).batch(2)
    found = list(reader(rows))
    assert [b.num_rows for b in found] == [2, 2, 1]
    assert found[0].to_pydict() == {"x": [0, 1], "s": ["a", "b"]}
    assert found[0].schema.types == [pa.int64(), pa.string()]


def test_rows_without_a_batch_are_grouped() -> None:
    found = reader(sv.from_columns({"x": range(2500)})).read_all()
    assert found.column("x").to_pylist() == list(range(2500))
    assert found.column("x").num_chunks < 10


def test_arrays_become_lists_of_fixed_size_and_ragged_rows_large_lists() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    rows = sv.from_columns({"image": images, "t": [[1, 2], [3]]}).batch(2)
    found = reader(rows).read_all()
    assert found.schema.field("image").type == pa.list_(pa.list_(pa.uint8(), 4), 3)
    assert found.schema.field("t").type == pa.large_list(pa.int64())
    assert found.column("image").to_pylist() == images.tolist()
    assert found.column("t").to_pylist() == [[1, 2], [3]]


def test_missing_values_stay_missing() -> None:
    found = reader(sv.from_items([{"x": 1}, {"x": None}]).batch(2)).read_all()
    assert found.column("x").to_pylist() == [1, None]


def test_a_later_batch_is_cast_to_the_first_where_nothing_is_lost() -> None:
    rows = sv.from_items([{"x": 1.5}, {"x": 2}]).batch(1)
    found = reader(rows).read_all()
    assert found.schema.field("x").type == pa.float64()
    assert found.column("x").to_pylist() == [1.5, 2.0]


def test_a_batch_that_does_not_fit_the_schema_is_an_error_that_names_the_column() -> None:
    with pytest.raises(sv.ColumnError, match=r"column 'x' is .* and was int64 in the first"):
        reader(sv.from_items([{"x": 1}, {"x": "a"}]).batch(1)).read_all()
    padded = sv.from_items([{"t": [1]}, {"t": [1, 2]}]).batch(1, pad=0)
    with pytest.raises(sv.ColumnError, match="pad to a fixed length"):
        reader(padded).read_all()


def test_an_empty_epoch_has_the_schema_that_is_known_beforehand() -> None:
    rows = sv.from_columns({"x": range(3), "s": list("abc")}).filter(sv.col("x") > 9)
    for pipeline in (rows, rows.batch(2)):
        found = reader(pipeline).read_all()
        assert found.num_rows == 0
        assert found.schema.names == ["x", "s"]
        assert found.schema.field("x").type == pa.int64()


def test_a_loader_speaks_the_arrow_stream_protocol() -> None:
    loader = sv.from_columns({"x": range(3)}).batch(2).loader(workers=0)
    assert pa.table(loader).column("x").to_pylist() == [0, 1, 2]


def test_columns_of_unlike_length_are_refused() -> None:
    rows = sv.from_columns({"x": range(4)}).batch(4).derive(top=lambda x: x[:2])
    with pytest.raises(sv.ColumnError, match="one value per row"):
        reader(rows)
