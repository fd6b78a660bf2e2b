"""Columns of every kind: the same rows and the same batches wherever they are cut."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import (
    Array,
    Column,
    Dictionary,
    Lists,
    Ragged,
    Strings,
    Values,
    concat,
    from_arrow,
)
from silva.columns import to_arrow as column_to_arrow
from silva.errors import ColumnError
from silva.testing import digest

COLUMNS: dict[str, Column] = {
    "array": Array(np.arange(9)),
    "small": Array(np.arange(9, dtype=np.int8)),
    "masked": Array(np.arange(9), np.arange(9) % 4 > 0),
    "images": Array(np.arange(36, dtype=np.float32).reshape(9, 2, 2)),
    "lists": Lists(Array(np.arange(12)), np.array([0, 0, 3, 4, 4, 6, 9, 9, 10, 12])),
    "lists of one length": Lists(Array(np.arange(20)), np.arange(1, 20, 2)),
    "lists of two lengths": Lists(
        Array(np.arange(20)), np.array([0, 2, 4, 6, 8, 11, 13, 15, 17, 19])
    ),
    "strings": Strings(pa.array(["a", "", None, "ddd", "e", "f", "g", "h", "i"])),
    "bytes": Strings(pa.array([b"a"] * 9)),
    "values": Values([1, 2.5, None, [1], "x", np.zeros(2), (3,), {"k": 1}, 9]),
    "mixed": Values([1, 2.5, 3, 4, True, 6, 7, 8, 9]),
    "dates": Array(np.arange(9).astype("datetime64[s]")),
    "grouped": Dictionary(Array(np.array([7, 8, 9])), np.array([0, 1, 0, 2, 2, 1, 0, 0, 1])),
}

every_kind = pytest.mark.parametrize("name", COLUMNS)


@every_kind
def test_slice_and_take_agree_with_rows(name):
    column = COLUMNS[name]
    rows = column.rows()
    assert digest(column.slice(2, 7).rows()) == digest(rows[2:7])
    picked = np.array([8, 0, 3, 3])
    assert digest(column.take(picked).rows()) == digest([rows[i] for i in picked])
    assert len(column.take(picked[:0])) == 0
    assert column.nbytes > 0


@every_kind
def test_a_column_cut_and_joined_again_is_the_same(name):
    column = COLUMNS[name]
    for cut in range(10):
        joined = concat([column.slice(0, cut), column.slice(cut, 9)])
        assert digest(joined.rows()) == digest(column.rows())
        assert digest(joined.batch()) == digest(column.batch())


@every_kind
def test_settling_changes_neither_rows_nor_batches(name):
    column = COLUMNS[name]
    settled = column.settled()
    assert digest(settled.rows()) == digest(column.rows())
    for start in range(9):
        one = digest(column.slice(start, start + 3).batch())
        assert digest(settled.slice(start, start + 3).batch()) == one


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.lists(st.integers(0, 5), max_size=2),
    st.builds(np.float32, st.floats(0, 1, width=32)),
    st.builds(lambda n: np.zeros(n, np.int16), st.integers(0, 2)),
)


@given(st.lists(values, min_size=1, max_size=12), st.data())
def test_the_type_of_a_batch_depends_on_its_rows_alone(items, data):
    """Blocks are cut anywhere and settled; a batch across them is as if they were one list."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=3)))
    parts = [items[a:b] for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]
    whole = Values(list(items))
    joined = concat([Values(list(part)).settled() for part in parts])
    start = data.draw(st.integers(0, len(items) - 1))
    stop = data.draw(st.integers(start + 1, len(items)))
    assert digest(_batch(joined, start, stop)) == digest(_batch(whole, start, stop))
    assert digest(joined.rows()) == digest(whole.rows())


def _batch(column: Column, start: int, stop: int) -> object:
    try:
        return column.slice(start, stop).batch()
    except ColumnError as error:
        return str(error)


def test_images_of_different_sizes_need_a_pad_or_a_resize():
    with pytest.raises(ColumnError, match="pad"):
        Values([np.zeros((2, 2)), np.zeros((3, 2))]).batch()


def test_ragged_rows_can_be_padded_and_indexed():
    ragged = Values([[1, 2], [], [3]]).batch()
    assert isinstance(ragged, Ragged)
    assert ragged.padded(-1).tolist() == [[1, 2], [-1, -1], [3, -1]]
    assert ragged[-1].tolist() == [3]
    assert ragged.lengths.tolist() == [2, 0, 1]
    with pytest.raises(ColumnError):
        ragged.padded(0, length=1)
    with pytest.raises(IndexError):
        ragged[3]


@pytest.mark.parametrize(
    "data",
    [
        pa.array([1, None, 3], pa.int16()),
        pa.array([True, None, False]),
        pa.array([datetime.date(2020, 1, 1), None]),
        pa.array([datetime.datetime(2020, 1, 1), None]),
        pa.array([[1, None], None, [], [2]]),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array([[1, None], [3, 4]], pa.list_(pa.int8(), 2)),
        pa.array(["a", None]),
        pa.array([b"a", None], pa.large_binary()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([[["x"], []], [["y", "z"]]]),
        pa.nulls(2),
    ],
    ids=str,
)
def test_arrow_arrays_give_the_same_rows_wherever_they_are_cut(data):
    whole = from_arrow(data).rows()
    for cut in range(len(data) + 1):
        parts = [from_arrow(data.slice(0, cut)).rows(), from_arrow(data.slice(cut)).rows()]
        assert digest(parts[0] + parts[1]) == digest(whole)


@pytest.mark.parametrize("name", [n for n in COLUMNS if n not in ("values", "mixed")])
def test_columns_of_one_type_go_to_arrow_and_back(name):
    column = COLUMNS[name]
    if name == "images":
        assert column_to_arrow(column).to_pylist() == column.batch().tolist()
        return
    back = from_arrow(column_to_arrow(column))
    assert digest(back.rows()) == digest(column.rows())


@pytest.mark.parametrize("value", [np.str_("a\0"), np.bytes_(b"a\0\0"), np.str_("")])
def test_numpy_scalars_keep_the_nuls_at_their_end_in_another_process(value):
    rows = sv.from_items([{"x": value}] * 4).derive(y=lambda x: len(x))
    (found,) = {(row["x"], type(row["x"]), row["y"]) for row in rows.loader(backend="processes")}
    assert found == (value, type(value), len(value))
