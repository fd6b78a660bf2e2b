"""One row alone: the same values as in the stream, or the user's own error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv


def bad_nine(x):
    if x == 9:
        raise ValueError("nine is bad")
    return x * 2


def test_the_key_in_an_error_finds_the_row_and_its_error() -> None:
    rows = sv.from_columns({"x": range(20)}).shuffle(seed=4).derive(y=bad_nine).batch(4)
    with pytest.raises(sv.RowError) as failed:
        list(rows.loader(workers=0))
    assert failed.value.key == "0:9"
    with pytest.raises(ValueError, match="nine is bad"):
        rows.row(failed.value.key)
    assert rows.row("0:8") == {"x": 8, "y": 16}


def test_random_steps_draw_as_in_the_stream_of_that_epoch() -> None:
    rows = sv.from_columns({"x": range(20)}).shuffle(seed=4)
    rows = rows.derive(noise=lambda x, rng: rng.normal())
    loader = rows.loader(workers=0)
    for epoch in range(2):
        for found in loader:
            assert rows.row(f"0:{found['x']}", epoch=epoch) == found


def test_rows_of_chunked_sources_are_found_in_their_chunk(tmp_path) -> None:
    pq.write_table(pa.table({"x": range(30)}), tmp_path / "a.parquet", row_group_size=10)
    rows = sv.read_parquet(str(tmp_path / "a.parquet")).shuffle(seed=1).derive(y=bad_nine)
    with pytest.raises(sv.RowError) as failed:
        list(rows.loader(workers=0))
    with pytest.raises(ValueError, match="nine"):
        rows.row(failed.value.key)
    assert rows.row(f"0:{(2 << 32) | 3}") == {"x": 23, "y": 46}
    with pytest.raises(sv.PlanError, match="no row"):
        rows.row(f"0:{9 << 32}")


def test_only_the_branch_of_the_source_is_run() -> None:
    a = sv.from_columns({"x": range(5)}).derive(y=lambda x: x)
    b = sv.from_columns({"x": range(5, 12)}).derive(y=bad_nine)
    for both in (sv.mix([a, b]), sv.concat([a, b])):
        whole = both.derive(z=lambda y: y + 1).batch(2)
        assert whole.row("0:4") == {"x": 4, "y": 4, "z": 5}
        assert whole.row("1:0") == {"x": 5, "y": 10, "z": 11}
        with pytest.raises(ValueError, match="nine"):
            whole.row("1:4")


def test_a_zip_gives_the_columns_of_the_branch() -> None:
    both = sv.zip([sv.from_columns({"x": [1, 2]}), sv.from_columns({"y": [3, 4]})])
    assert both.row("0:1") == {"x": 2}
    assert both.row("1:0") == {"y": 3}


def test_parts_of_an_exploded_row() -> None:
    items = sv.from_items([{"n": [1, 2]}, {"n": [3, 9]}]).explode("n").derive(y=bad_nine, reads="n")
    assert items.row("0:0") == [{"n": 1, "y": 2}, {"n": 2, "y": 4}]
    with pytest.raises(sv.RowError) as failed:
        list(items.loader(workers=0))
    with pytest.raises(ValueError, match="nine"):
        items.row(failed.value.key)
    first = items.take(1).loader(workers=0, on_error=sv.Skip())
    assert list(first) == [items.row("0:0:1")]
    with pytest.raises(sv.SilvaError, match="is not in the result"):
        items.row("0:0:77")


def test_draws_with_replacement_are_known_by_their_place() -> None:
    rows = sv.from_columns({"x": range(6)}).sample(weights=np.arange(6), size=9, seed=2)
    assert [rows.row(f"0:{i}") for i in range(9)] == list(rows.loader(workers=0))


def test_a_row_that_a_filter_dropped_is_reported_as_dropped() -> None:
    rows = sv.from_columns({"x": range(6)}).filter(sv.col("x") > 2).batch(2)
    with pytest.raises(sv.SilvaError, match=r"row 0:1 is not in the result: `filter x > 2`"):
        rows.row("0:1")


@pytest.mark.parametrize("key", ["", "7", "a:b", "0:1:2:3", "0:-1", "3:0", "0:99", "0:1:5"])
def test_a_wrong_key_is_refused(key: str) -> None:
    with pytest.raises(sv.PlanError, match="row"):
        sv.from_columns({"x": range(6)}).row(key)
