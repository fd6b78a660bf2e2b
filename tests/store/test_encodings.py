"""Whatever kind a column is stored as, rows come back exactly, and what repeats is kept once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silva.columns import Dictionary, Lists, from_arrow, to_arrow
from silva.errors import ColumnError
from silva.folders import OwnFolder
from silva.store.files.part_files import PartReader, open_file, write_part
from silva.store.versions.manifest import Part, all_files, under

SMALL = st.integers(0, 2)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), SMALL),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.sampled_from(["", "a", "bb"])),
    "blob": (pa.large_binary(), st.sampled_from([b"", b"\0", b"ab"])),
    "when": (pa.timestamp("us"), SMALL),
    "list": (pa.list_(pa.int64()), st.lists(SMALL, max_size=4)),
    "large": (pa.large_list(pa.float64()), st.lists(st.sampled_from([0.0, 2.5]), max_size=3)),
    "words": (pa.list_(pa.string()), st.lists(st.sampled_from(["", "x"]), max_size=3)),
    "holes": (pa.list_(pa.int32()), st.lists(st.none() | SMALL, max_size=3)),
    "nested": (pa.list_(pa.list_(pa.int16())), st.lists(st.lists(SMALL, max_size=2), max_size=3)),
    "pair": (
        pa.list_(pa.float32(), 2),
        st.lists(st.sampled_from([0.5, 1]), min_size=2, max_size=2),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, dict[str, Any], list[int]]:
    """A table, kinds for some of its columns, and rows to ask for."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 12))
    columns, kinds = {}, {}
    for name in names:
        kind, values = VALUES[name]
        column = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns[name] = pa.array(column, kind)
        allowed = ["plain", "grouped", "slices"]
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            allowed = ["plain", "grouped"]
        kinds[name] = draw(st.sampled_from(allowed))
    rows = draw(st.lists(st.integers(0, count - 1), max_size=15)) if count else []
    return pa.table(columns), kinds, rows


def _same(read: Any, wanted: pa.Array) -> bool:
    """Equal by type and bytes: -0.0 and NaN are told apart by their text."""
    found, expected = read.rows(), from_arrow(wanted).rows()
    return [_shown(x) for x in found] == [_shown(x) for x in expected]


def _shown(value: Any) -> str:
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


@settings(max_examples=120, deadline=None)
@given(tables())
def test_rows_come_back_exactly_whatever_kinds_are_declared(
    given: tuple[pa.Table, dict[str, Any], list[int]],
) -> None:
    table, kinds, rows = given
    with tempfile.TemporaryDirectory() as folder:
        part = write_part(Path(folder), table, kinds)
        reader = PartReader(OwnFolder(Path(folder)), part)
        for asked in (rows, sorted(set(rows)), list(range(table.num_rows))):
            read = reader.read(np.array(asked, np.int64), table.column_names)
            for name in table.column_names:
                wanted = table.column(name).take(pa.array(asked, pa.int64()))
                assert _same(read[name], wanted), (name, kinds[name])
        named = {file.name: file.size for file in all_files(part)}
        assert named == {path.name: path.stat().st_size for path in Path(folder).iterdir()}


def lists(rows: list[Any]) -> pa.Array:
    return pa.array(rows, pa.list_(pa.int64()))


def read(folder: Path, part: Part, rows: Any = None) -> dict[str, Any]:
    asked = np.arange(part.rows) if rows is None else np.array(rows)
    return PartReader(OwnFolder(folder), part).read(asked, tuple(part.columns))


def items_of(folder: Path, part: Part, name: str) -> int:
    """How many items the sequence of a column holds."""
    stored = part.columns[name]
    return open_file(OwnFolder(folder), part.files[stored.items]).rows


def test_equal_rows_are_kept_once_and_columns_that_change_together_share_an_index(tmp_path):
    table = pa.table(
        {
            "a": lists([[1, 2], [1, 2], [3], [1, 2]]),
            "b": ["x", "x", "y", "x"],
            "c": [1, 2, 2, 1],
        }
    )
    part = write_part(tmp_path, table, dict.fromkeys("abc", "grouped"))
    assert [group.values.rows for group in part.groups] == [2, 2]
    assert sorted(part.groups[0].values.columns) == ["a", "b"]
    found = read(tmp_path, part)
    assert found["a"].inverse is found["b"].inverse
    assert found["a"].inverse.tolist() == [0, 0, 1, 0]
    assert found["c"].inverse.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_sliding_history_is_one_sequence(tmp_path, newest_first):
    rows = [list(range(i, i + 5)) for i in (0, 1, 1, 3, 3, 4, 20, 21)]
    rows = [row[::-1] for row in rows] if newest_first else rows
    part = write_part(tmp_path, pa.table({"h": lists(rows)}), {"h": "slices"})
    assert items_of(tmp_path, part, "h") == 9 + 6
    assert to_arrow(read(tmp_path, part)["h"]).to_pylist() == rows
    assert to_arrow(read(tmp_path, part, [7, 2, 2, 0])["h"]).to_pylist() == [
        rows[i] for i in (7, 2, 2, 0)
    ]


def test_a_growing_history_is_one_sequence(tmp_path):
    rows = [list(range(n)) for n in (1, 2, 5, 5, 9)]
    part = write_part(tmp_path, pa.table({"h": lists(rows)}), {"h": "slices"})
    assert items_of(tmp_path, part, "h") == 9
    assert to_arrow(read(tmp_path, part)["h"]).to_pylist() == rows


def test_repeated_slices_are_grouped_and_rows_that_do_not_repeat_are_not(tmp_path):
    rows = [[1, 2, 3]] * 4 + [[2, 3, 4]] * 4
    table = pa.table({"h": lists(rows), "g": lists([[7]] * 4 + [[8]] * 4)})
    part = write_part(tmp_path, table, {"h": "slices", "g": "slices"})
    found = read(tmp_path, part)
    assert isinstance(found["h"], Dictionary)
    assert found["h"].inverse.tolist() == found["g"].inverse.tolist() == [0] * 4 + [1] * 4
    assert isinstance(read(tmp_path, part, [0, 4])["h"], Lists)


def test_a_part_under_the_index_of_another_has_one_value_for_each_distinct_row(tmp_path):
    table = pa.table({"h": lists([[1, 2], [1, 2], [3]]), "x": [1, 2, 3]})
    part = write_part(tmp_path, table, {"h": "grouped"})
    values = write_part(tmp_path, pa.table({"total": [3, 3], "twice": lists([[2, 4], [6]])}))
    more = under(part, 0, values)
    base, found = read(tmp_path, part), read(tmp_path, more)
    assert found["total"].rows() == [3, 3, 3]
    assert found["total"].inverse.tolist() == base["h"].inverse.tolist()
    assert found["twice"].rows()[1].tolist() == [2, 4]
    assert more.files[0] in part.files


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"y": "grouped"}, "'y'.*there is no such column"),
        ({"x": "slices"}, "'x' is int64: only lists can be slices"),
        ({"x": "best"}, "not 'best'"),
    ],
)
def test_kinds_that_cannot_be_are_refused(tmp_path, kinds, message):
    with pytest.raises(ColumnError, match=message):
        write_part(tmp_path, pa.table({"x": [1]}), kinds)
    assert not list(tmp_path.iterdir())
