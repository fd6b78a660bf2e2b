"""Arithmetic on rows that are arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
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


LISTS = {
    "numbers": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "huge": [2**70, 2**63, 2**72],
    "complex": [1j, 2j, 3j],
    "small": [2, 3, 4],
}


@pytest.mark.parametrize("sizes", [(1,), (2,), (3,)])
@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("arrow", [False, True])
def test_arrays_beside_lists_and_objects_are_computed_row_by_row(kind, sizes, arrow):
    values = LISTS[kind]
    a = np.array([[1, 10, 100], [2, 20, 200], [3, 30, 300]])
    if arrow and kind == "numbers":
        rows = sv.from_arrow(pa.table({"l": values, "i": range(3)}))
    else:
        rows = sv.from_items([{"l": value, "i": i} for i, value in enumerate(values)])
    rows = rows.derive(a=lambda i: a[i]).derive(
        y=sv.col("l") * sv.col("a"), z=sv.col("a") + sv.col("l")
    )
    found = list(cut_blocks(rows.loader(backend="inline"), sizes))
    for row, value, own in zip(found, values, a.astype(object), strict=True):
        value = np.array(value, dtype=object)
        assert np.asarray(row["y"]).tolist() == (value * own).tolist()
        assert np.asarray(row["z"]).tolist() == (own + value).tolist()


def test_a_null_beside_arrays_and_lists_stays_null():
    rows = sv.from_items([{"l": [1, 2]}, {"l": None}, {"l": [3, 4]}])
    rows = rows.derive(a=lambda: np.array([1, 10])).derive(y=sv.col("l") * sv.col("a"))
    for sizes in ((1,), (3,)):
        found = [row["y"] for row in cut_blocks(rows.loader(backend="inline"), sizes)]
        assert [None if y is None else y.tolist() for y in found] == [[1, 20], None, [3, 40]]


def test_lists_of_python_are_joined_and_repeated_as_python_does():
    rows = sv.from_items([{"l": [1, 2], "n": 2}, {"l": [3], "n": 3}])
    rows = rows.derive(y=sv.col("l") + sv.col("l"), z=sv.col("l") * sv.col("n"))
    assert [(r["y"], r["z"]) for r in rows] == [([1, 2] * 2, [1, 2] * 2), ([3, 3], [3, 3, 3])]


def test_a_column_of_equal_numbers_is_no_constant_however_it_lies_in_memory():
    columns = {
        "x": np.broadcast_to(np.float64(0.1), 6),
        "n": np.broadcast_to(np.int64(300), 6),
        "f": np.arange(6, dtype=np.float32),
        "u": np.arange(6, dtype=np.uint8),
    }
    rows = sv.from_columns(columns).derive(
        y=sv.col("x") + sv.col("f"), z=sv.col("n") + sv.col("u"), w=sv.col("u") + 1
    )
    for pipeline in (rows.batch(3), rows.shuffle(seed=1).batch(3)):
        for sizes in ((1,), (2,), (6,)):
            for batch in cut_blocks(pipeline.loader(backend="inline"), sizes):
                found = [batch[name].dtype.name for name in "yzw"]
                assert found == ["float64", "int64", "uint8"]
    assert_same_stream(rows.batch(3))


def test_a_constant_column_has_its_own_type_in_the_steps_after_it():
    rows = sv.from_columns({"u": np.arange(4, dtype=np.uint8)}).derive(c=300)
    rows = rows.derive(y=sv.col("c") + sv.col("u")).batch(4)
    for batch in (*rows.loader(backend="inline"), *rows.loader(backend="processes", workers=1)):
        assert batch["y"].tolist() == [300, 301, 302, 303]


def test_a_batched_function_may_return_a_broadcast_array():
    @sv.batched
    def tenth(u):
        return np.broadcast_to(np.float64(0.1), len(u))

    rows = sv.from_columns({"u": np.arange(4, dtype=np.float32)}).derive(c=tenth)
    rows = rows.derive(y=sv.col("c") + sv.col("u")).batch(4)
    assert [batch["y"].dtype.name for batch in rows.loader(backend="inline")] == ["float64"]


def test_a_cast_to_text_or_bytes_keeps_the_nuls_at_their_ends():
    rows = sv.from_items(
        [
            {"s": "a\0", "b": b"\x01\x00\x00", "l": ["a\0", "b"]},
            {"s": "\0", "b": None, "l": ["c", "d"]},
        ]
    )
    s, b = sv.col("s"), sv.col("b")
    casts = {"t": s.cast("str"), "c": b.cast("bytes"), "d": s.cast("bytes"), "e": b.cast("str")}
    rows = rows.derive(**casts, f=s.cast("U1"), o=s.cast("object"), m=sv.col("l").cast("str"))
    first, second = rows.head(2)
    assert [first[name] for name in "tcdefo"] == ["a\0", b"\1\0\0", b"a\0", "\1\0\0", "a", "a\0"]
    assert [second[name] for name in "tcdefo"] == ["\0", None, b"\0", None, "\0", "\0"]
    assert [list(row["m"]) for row in (first, second)] == [["a\0", "b"], ["c", "d"]]
    table = pa.table({"s": ["a\0", None], "l": [["b\0"], ["c"]]})
    rows = sv.from_arrow(table).derive(t=sv.col("s").cast("str"), m=sv.col("l").cast("str"))
    assert [(row["t"], list(row["m"])) for row in rows] == [("a\0", ["b\0"]), (None, ["c"])]
