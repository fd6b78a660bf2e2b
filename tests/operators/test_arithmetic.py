"""Arithmetic on rows that are arrays."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.testing import assert_same_stream, cut_blocks

ROWS = {
    "x": np.arange(6.0),
    "a": np.ones((6, 3)),
    "m": np.arange(36.0).reshape(6, 2, 3),
    "f": np.arange(6) % 2 == 0,
}


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (6,)])
def test_rows_of_different_shapes_are_broadcast_within_each_row(sizes):
    rows = sv.from_columns(ROWS).derive(
        ax=sv.col("a") + sv.col("x"),
        xm=sv.col("x") * sv.col("m"),
        am=sv.col("a") - sv.col("m"),
        af=(sv.col("a") > 0) & sv.col("f"),
    )
    found = list(cut_blocks(rows.loader(backend="inline"), sizes))
    for i, row in enumerate(found):
        x, a, m, f = (ROWS[name][i] for name in "xamf")
        assert np.array_equal(row["ax"], a + x)
        assert np.array_equal(row["xm"], x * m)
        assert np.array_equal(row["am"], a - m)
        assert np.array_equal(row["af"], (a > 0) & f)


def test_arithmetic_of_arrays_and_numbers_gives_one_stream():
    rows = sv.from_columns(ROWS).derive(z=sv.col("m") / (sv.col("x") + 1) + sv.col("a"))
    assert_same_stream(rows.batch(3))
    assert (
        rows.batch(6).derive(y=sv.col("a") * sv.col("x")).head(1)[0]["y"][4].tolist() == [4.0] * 3
    )
