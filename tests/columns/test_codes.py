"""Rows have equal numbers exactly where they are equal, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.columns import Array, Column, Dictionary, Lists, Values, from_arrow
from silva.columns import number_runs as runs_module
from silva.columns.codes import codes, together
from silva.columns.number_runs import appearance
from silva.errors import ColumnError

small = st.integers(0, 2)
ROWS = st.one_of(
    st.lists(small, min_size=1).map(lambda x: from_arrow(pa.array(x))),
    st.lists(st.none() | small, min_size=1).map(lambda x: from_arrow(pa.array(x, pa.int32()))),
    st.lists(st.none() | st.sampled_from(["", "a"])).map(
        lambda x: from_arrow(pa.array(x, pa.string()))
    ),
    st.lists(st.none() | st.lists(small, max_size=3)).map(
        lambda x: from_arrow(pa.array(x, pa.list_(pa.int64())))
    ),
    st.lists(st.lists(st.lists(small, max_size=2), max_size=2)).map(
        lambda x: from_arrow(pa.array(x, pa.list_(pa.list_(pa.int8()))))
    ),
    st.lists(st.lists(small, min_size=3, max_size=3), min_size=1).map(
        lambda x: Array(np.array(x, np.int16))
    ),
    st.lists(st.sampled_from([0, 0.0, -0.0, True, "a", b"a", None, 1j])).map(Values),
    st.lists(st.lists(small) | st.tuples(small) | st.dictionaries(st.text(max_size=1), small)).map(
        Values
    ),
)  # fmt: skip


ROWS = ROWS | st.lists(st.lists(small, min_size=4, max_size=4), min_size=2).map(
    lambda x: from_arrow(pa.array(x, pa.list_(pa.int64())))
)


def shown(row: Any) -> str:
    return repr(row.tolist()) if isinstance(row, np.ndarray) else repr(row)


@given(ROWS)
def test_numbers_are_equal_where_rows_are(column: Column) -> None:
    found, rows = codes(column).tolist(), [shown(row) for row in column.rows()]
    known: dict[int, str] = {}
    assert all(known.setdefault(n, row) == row for n, row in zip(found, rows, strict=True))
    assert len(known) == len(set(rows))


@given(ROWS, st.data())
def test_what_is_grouped_already_gives_the_same_groups(column: Column, data: st.DataObject) -> None:
    if not len(column):
        return
    picked = np.array(data.draw(st.lists(st.integers(0, len(column) - 1), min_size=1)))
    other = np.array(data.draw(st.lists(small, min_size=len(picked), max_size=len(picked))))
    grouped, plain = Dictionary(column, picked).compact(), column.take(picked)
    for a, b in (([grouped], [plain]), ([grouped, Array(other)], [plain, Array(other)])):
        ours, theirs = together(a), together(b)
        assert ours[0].tolist() == theirs[0].tolist()
        assert ours[1].tolist() == theirs[1].tolist()


def test_columns_taken_together_differ_where_any_of_them_does() -> None:
    a, b = Array(np.array([1, 1, 2, 1])), Array(np.array([5, 5, 5, 6]))
    first, number = together([a, b])
    assert first.tolist() == [0, 2, 3]
    assert number.tolist() == [0, 0, 1, 2]


def test_floats_are_compared_by_their_bits() -> None:
    data = np.array([0.0, -0.0, np.nan, np.nan, 1.0])
    assert appearance(codes(Array(data)))[1].tolist() == [0, 1, 2, 2, 3]


def test_long_columns_are_compared_in_pieces(monkeypatch) -> None:
    monkeypatch.setattr(runs_module, "_AT_ONCE", 7)
    monkeypatch.setattr(runs_module, "_FEW", 10)
    values = np.random.default_rng(0).integers(0, 2, (60, 5))
    column = Lists(Array(values.ravel()), np.arange(61) * 5)
    expected = [values.tolist().index(row) for row in values.tolist()]
    assert appearance(codes(column))[1].tolist() == appearance(np.array(expected))[1].tolist()


def test_objects_without_bytes_are_refused() -> None:
    with pytest.raises(ColumnError, match="type object"):
        codes(Values([object()]))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1), st.data())
def test_values_known_to_be_distinct_are_told_apart_as_if_they_were_compared(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    unique = from_arrow(pa.array([[1], [2, 3], [], None, [4]], pa.list_(pa.int64())))
    repeats = from_arrow(pa.array([[1], [1], [2], [], []], pa.list_(pa.int64())))
    ours, theirs = np.array(rows).T
    picked = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1))), np.int64)
    begin = data.draw(st.integers(0, len(rows)))
    for column in (unique, repeats):
        known, plain = Dictionary(unique, ours, distinct=True), Dictionary(unique, ours)
        other = Dictionary(column, theirs)
        pairs = [(known, plain), (known.take(picked), plain.take(picked))]
        pairs.append((known.slice(begin, len(rows)), plain.slice(begin, len(rows))))
        for a, b in pairs:
            assert a.distinct
            assert [x.tolist() for x in together([a])] == [x.tolist() for x in together([b])]
        found, wanted = together([other, known]), together([other, plain])
        assert [x.tolist() for x in found] == [x.tolist() for x in wanted]
