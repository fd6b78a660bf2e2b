"""Rows that are missing are not rows that are 0: in memory, in fingerprints, after `batch`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import silva as sv
from silva.plan.fingerprint import fingerprint
from silva.testing import cut_blocks


def masked(values, mask):
    return np.ma.array(values, mask=mask)


def test_rows_of_a_masked_array_of_several_dimensions_are_missing_as_a_whole():
    rows = sv.from_columns({"a": masked([[1, 2], [3, 4]], [[True, True], [False, False]])})
    first, second = rows.head(2)
    assert first["a"] is None
    assert second["a"].tolist() == [3, 4]
    (batch,) = rows.batch(2).head(2)
    assert batch["a"].tolist() == [[None, None], [3, 4]]


def test_a_row_that_is_missing_in_part_is_refused():
    with pytest.raises(sv.PlanError, match="row 1 is missing in part"):
        sv.from_columns({"a": masked([[1, 2], [3, 4]], [[True, True], [False, True]])})


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0), (0, 0)])
def test_masked_arrays_may_be_empty(shape):
    rows = sv.from_columns({"a": masked(np.zeros(shape), np.zeros(shape, dtype=bool))})
    assert [row["a"].shape for row in rows] == [shape[1:]] * shape[0]


def test_a_masked_array_of_objects_keeps_its_mask():
    words = np.ma.array(np.array(["a", "b"], dtype=object), mask=[False, True])
    assert [row["s"] for row in sv.from_columns({"s": words})] == ["a", None]


def test_what_a_batched_function_returns_keeps_its_mask():
    rows = sv.from_columns({"x": range(4)})

    @sv.batched
    def odd_alone(x):
        return masked(np.stack([x, -x], axis=1), np.stack([x % 2 == 0] * 2, axis=1))

    found = [row["y"] for row in rows.derive(y=odd_alone).loader(backend="inline")]
    assert [y is None for y in found] == [True, False, True, False]


def test_other_missing_rows_are_another_pipeline(tmp_path):
    missing = sv.from_columns({"x": masked([1, 0], [False, True])})
    zero = sv.from_columns({"x": np.array([1, 0])})
    assert missing.fingerprint != zero.fingerprint
    assert sv.from_columns({"x": masked([1, 0], [False, False])}).fingerprint == zero.fingerprint
    loader = missing.loader(backend="inline")
    with pytest.raises(sv.StateError):
        zero.loader(backend="inline").load_state_dict(loader.state_dict())
    for rows, told in ((missing, ["1", "None"]), (zero, ["1", "0"])):
        kept = rows.derive(t=lambda x: repr(x)).cache(tmp_path)
        assert [row["t"] for row in kept.loader(backend="inline")] == told


def test_a_mask_or_a_field_in_a_closure_counts():
    rows = sv.from_columns({"x": [0, 1]})

    def picked(table):
        return rows.derive(y=lambda x: table[x])

    tables = [
        masked([1, 0], [False, True]),
        masked([1, 0], [True, False]),
        np.array([1, 0]),
        np.array([(1,), (0,)], dtype=[("a", np.int64)]),
        np.array([(1,), (0,)], dtype=[("b", np.int64)]),
    ]
    assert len({fingerprint(picked(table).plan) for table in tables}) == len(tables)


@pytest.mark.parametrize(
    "step",
    [
        sv.col("x").is_null(),
        sv.col("x") * 2,
        sv.col("x") > 2,
        sv.col("x").cast("f4"),
        sv.num("x").fill_null(7),
        sv.col("a") * 2,
        sv.col("s").is_null(),
        sv.text("s").upper(),
        sv.list("l").length(),
    ],
    ids=str,
)
def test_an_expression_sees_what_is_missing_before_and_after_batch(step):
    rows = sv.from_columns(
        {
            "x": [1, None, 3],
            "a": [np.array([1, 2]), None, np.array([3, 4])],
            "s": ["a", None, "b"],
            "l": [[1], None, []],
        }
    )
    (before,) = rows.derive(y=step).select("y").batch(3).head(1)
    (after,) = rows.batch(3).derive(y=step).select("y").head(1)
    assert after["y"].tolist() == before["y"].tolist()
    assert type(after["y"]) is type(before["y"])


LARGE = 2**53 + 1
"""A whole number that no float holds."""
_WITH_REPEATS = pa.DictionaryArray.from_arrays([0, 1, None, 2], ["a", None, "b"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([LARGE, None]), [LARGE, None]),
        (pa.chunked_array([[LARGE], [None]]), [LARGE, None]),
        (pa.array([0.5, None]), [0.5, None]),
        (pa.array([[1], None]), [[1], None]),
        (pa.chunked_array([_WITH_REPEATS]), ["a", None, None, "b"]),
        (pd.Series([LARGE, None], dtype="Int64"), [LARGE, None]),
        (pd.Series([LARGE, None], dtype="int64[pyarrow]"), [LARGE, None]),
        (pd.array([LARGE, None], dtype="Int64"), [LARGE, None]),
        (pd.Series(["a", None], dtype="string"), ["a", None]),
        (pd.Index(["a", None], dtype="string"), ["a", None]),
        (pd.Series(["a", None], dtype="category"), ["a", None]),
        (pd.Series([True, None], dtype="boolean"), [True, None]),
    ],
    ids=lambda value: str(getattr(value, "dtype", getattr(value, "type", ""))) or None,
)
def test_nulls_of_other_libraries_arrays_stay_null(values, expected):
    rows = sv.from_columns({"v": values})
    found = [row["v"] for row in rows.loader(backend="inline")]
    assert [v.tolist() if isinstance(v, np.ndarray) else v for v in found] == expected
    assert [type(v) for v in found if isinstance(v, int)] == [
        type(v) for v in expected if isinstance(v, int)
    ]


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(pd.period_range("2020", periods=2, freq="M")),
        pd.Series(pd.interval_range(0, 2)),
        pd.Series(pd.arrays.SparseArray([1, 0])),
        pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"], utc=True)),
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_that_only_pandas_has_stay_as_they_are(values):
    assert [row["v"] for row in sv.from_columns({"v": values})] == list(values)


def test_nan_of_a_pandas_series_of_floats_stays_nan():
    (number,) = sv.from_columns({"v": pd.Series([np.nan])}).head(1)
    assert np.isnan(number["v"])


def test_a_batched_function_may_return_arrow_arrays_with_nulls():
    @sv.batched
    def without_one(x):
        given = pa.array(x)
        return pc.if_else(pc.equal(given, 1), None, given)

    rows = sv.from_columns({"x": [0, 1, LARGE]}).derive(y=without_one)
    for sizes in ([3], [1], [2]):
        loader = cut_blocks(rows.loader(backend="inline"), sizes)
        assert [row["y"] for row in loader] == [0, None, LARGE]
