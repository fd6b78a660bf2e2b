"""What is written comes back: kind for kind, type for type, byte for byte."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from silva.columns import Array, Column, Dictionary, Lists, Strings, Values
from silva.columns.owned import lent, owned
from silva.columns.serial.column_codec import decode_columns, encode_columns
from silva.errors import ColumnError

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="="),
    hnp.complex_number_dtypes(endianness="="),
    hnp.datetime64_dtypes(endianness="="),
    hnp.timedelta64_dtypes(endianness="="),
    st.just(np.dtype([("a", "<i4"), ("b", "<f8", (2,)), ("c", [("d", "S3")])])),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.text(st.characters()),  # with halves of surrogate pairs
    st.binary(),
    DTYPES.flatmap(hnp.from_dtype),
    st.builds(np.str_, st.text()),
    st.builds(np.bytes_, st.binary()),
    ARRAYS,
    ARRAYS.map(np.transpose),
)
KEYS = st.one_of(st.text(), st.integers(), st.binary(), st.tuples(st.integers(), st.text()))
ITEMS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in type and bytes, all the way down; NaN is equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and a.dtype == object:
        return a.shape == b.shape and same(a.ravel().tolist(), b.ravel().tolist())
    if isinstance(a, np.ndarray | np.generic):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, float | complex):
        return same(np.array(a), np.array(b))
    return bool(a == b)


def same_column(a: Column, b: Column) -> bool:
    if type(a) is not type(b) or len(a) != len(b):
        return False
    match a, b:
        case Array(), Array():
            return same(a.data, b.data) and same(a.valid, b.valid)
        case Strings(), Strings():
            return bool(a.data.type == b.data.type and a.data.equals(b.data))
        case Lists(), Lists():
            return same_column(Values(a.rows()), Values(b.rows())) and same(a.valid, b.valid)
        case Dictionary(), Dictionary():
            return same_column(a.unique, b.unique) and same(a.inverse, b.inverse)
    assert isinstance(a, Values)
    assert isinstance(b, Values)
    return same(a.items, b.items)


@st.composite
def columns(draw: st.DrawFn, depth: int = 2) -> Column:
    """A column of any kind, often a slice of a longer one."""
    kinds = ["array", "strings", "values", "arrays", *(["lists", "grouped"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    column: Column
    if kind == "array":
        data = draw(hnp.arrays(DTYPES, hnp.array_shapes(max_dims=3, min_side=0, max_side=5)))
        mask = hnp.arrays(np.bool_, len(data))
        column = Array(data, draw(st.none() | mask))
    elif kind == "strings":
        large, text = draw(st.booleans()), draw(st.booleans())
        arrow = {
            (False, False): pa.binary(),
            (True, False): pa.large_binary(),
            (False, True): pa.string(),
            (True, True): pa.large_string(),
        }[large, text]
        items = st.none() | (st.text(st.characters(codec="utf-8")) if text else st.binary())
        column = Strings(pa.array(draw(st.lists(items, max_size=6)), type=arrow))
    elif kind == "values":
        column = Values(draw(st.lists(ITEMS, max_size=6)))
    elif kind == "arrays":
        column = Values(draw(st.lists(ARRAYS, max_size=6)))
    else:
        inner = draw(columns(depth=depth - 1))
        if kind == "grouped" and len(inner):
            picked = draw(st.lists(st.integers(0, len(inner) - 1), max_size=6))
            column = Dictionary(inner, np.array(picked, dtype=np.int64))
        else:
            cuts = draw(st.lists(st.integers(0, len(inner)), min_size=1, max_size=6))
            offsets = np.array(sorted(cuts), dtype=np.int64)
            mask = hnp.arrays(np.bool_, len(offsets) - 1)
            column = Lists(inner, offsets, draw(st.none() | mask))
    start = draw(st.integers(0, len(column)))
    return column.slice(start, draw(st.integers(start, len(column))))


@given(st.dictionaries(st.text(), columns(), max_size=3))
def test_columns_of_every_kind_come_back(given_columns: dict[str, Column]) -> None:
    found = decode_columns(encode_columns(given_columns))
    assert list(found) == list(given_columns)
    for name, column in given_columns.items():
        assert same_column(found[name], column), name


@given(columns())
def test_kept_copies_are_equal(column: Column) -> None:
    kept = owned(column)
    assert same_column(kept, column)
    assert same_column(lent(kept), column)


def test_objects_inside_arrays_come_back() -> None:
    items = np.empty((2, 2), dtype=object)
    items[:] = [["a", (1, [2])], [None, 1 << 80]]
    found = decode_columns(encode_columns({"x": Values([items, 1])}))["x"]
    assert same_column(found, Values([items, 1]))


def test_decoded_arrays_cannot_be_written_to() -> None:
    given_columns: dict[str, Column] = {
        "a": Array(np.arange(3)),
        "b": Values([np.arange(2), np.arange(3)]),
        "c": Values([{"x": np.arange(2)}]),
    }
    found = decode_columns(encode_columns(given_columns))
    a, b, c = (found[name] for name in "abc")
    assert isinstance(a, Array)
    assert isinstance(b, Values)
    assert isinstance(c, Values)
    assert not a.data.flags.writeable
    assert not b.items[0].flags.writeable
    assert not c.items[0]["x"].flags.writeable


class Number(int):
    """Comes back as an int, if it were let through."""


@pytest.mark.parametrize(
    "item", [object(), {1, 2}, decimal.Decimal(1), Number(1), [{"a": (Number(1),)}], bytearray(1)]
)
def test_what_would_not_come_back_as_it_was_is_refused(item: Any) -> None:
    with pytest.raises(ColumnError, match=r"column 'x' holds .*drop the column"):
        encode_columns({"x": Values([1, item])})


def test_what_has_rows_and_no_bytes_comes_back() -> None:
    given_columns: dict[str, Column] = {
        "a": Array(np.zeros((1000, 0))),
        "b": Array(np.zeros((0, 4096, 4096))),
        "c": Strings(pa.array([], pa.string())),
        "d": Lists(Array(np.zeros(0)), np.zeros(5, np.int64)),
    }
    found = decode_columns(encode_columns(given_columns))
    assert [len(found[name]) for name in "abcd"] == [1000, 0, 0, 4]
    with pytest.raises(ColumnError, match="column 'x' holds an array of shape"):
        encode_columns({"x": Array(np.zeros((1 << 21, 0)))})


def test_flags_of_odd_bytes_come_back_as_flags() -> None:
    odd = np.array([2, 0, 255], np.uint8).view(bool)
    found = decode_columns(encode_columns({"x": Array(odd), "y": Values([odd, 1, 2])}))
    assert [found["x"].rows(), found["y"].rows()[0].tolist()] == [[True, False, True]] * 2
