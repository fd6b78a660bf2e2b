"""Any sequence of changes to a table equals the same changes to lists of rows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from store_tools import assert_no_orphans, rows_of

import silva as sv

Row = dict[str, Any]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "g": st.integers(0, 3),
            "t": st.integers(0, 5),
            "x": st.none() | st.integers(-5, 5),
            "h": st.none() | st.lists(st.integers(0, 3), max_size=3),
        }
    ),
    max_size=8,
)
SCHEMA = pa.schema(
    [("g", pa.int64()), ("t", pa.int64()), ("x", pa.int64()), ("h", pa.list_(pa.int64()))]
)
CHANGES = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("delete"), st.integers(-5, 5)),
    st.tuples(st.just("delete groups"), st.integers(0, 3)),
    st.tuples(st.just("branch"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("restore"), st.integers(1, 6)),
    st.tuples(st.just("gc"), st.none()),
)


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def clustered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r["g"], r["t"]))


class Model:
    """Branches as lists of versions, each a list of rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.branches = {"main": {1: clustered(rows)}}

    def head(self, branch: str) -> tuple[int, list[Row]]:
        return max(self.branches[branch].items(), key=lambda item: item[0])

    def commit(self, branch: str, rows: list[Row]) -> None:
        number, _ = self.head(branch)
        self.branches[branch][number + 1] = rows


def apply(model: Model, tables: dict[str, sv.Table], at: str, change: tuple[str, Any]) -> str:
    """Does a change to both, on the branch `at`; gives the branch to go on with."""
    verb, value = change
    table, (number, rows) = tables[at], model.head(at)
    if verb == "append":
        table.append(arrow(value))
        if value:
            model.commit(at, rows + clustered(value))
    elif verb == "delete":
        table.delete(sv.col("x") > value)
        left = [r for r in rows if r["x"] is None or not r["x"] > value]
        if len(left) < len(rows):
            model.commit(at, left)
    elif verb == "delete groups":
        table.delete(lambda g: g == value)
        left = [r for r in rows if r["g"] != value]
        if len(left) < len(rows):
            model.commit(at, left)
    elif verb == "branch":
        tables[value] = table.branch(value)
        if value not in model.branches:
            model.branches[value] = {**model.branches[at], number + 1: rows}
        return str(value)
    elif verb == "restore":
        wanted = min(value, number)
        table.restore(wanted)
        model.commit(at, model.branches[at][wanted])
    else:
        table.gc()
    return at


@given(ROWS, st.lists(CHANGES, max_size=8), st.data())
@settings(max_examples=30)
def test_any_changes_equal_those_of_a_list_of_rows(
    rows: list[Row], changes: list[tuple[str, Any]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        tables = {"main": sv.Table.create(path, arrow(rows), group="g", time="t")}
        model, at = Model(rows), "main"
        for change in changes:
            at = apply(model, tables, at, change)
        for name, versions in model.branches.items():
            for number, expected in versions.items():
                assert rows_of(tables[name].at(number)) == expected
        tables["main"].gc()
        assert_no_orphans(path)
        source = tables[at].read().plan.source
        expected = model.head(at)[1]
        if expected:
            picks = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=12))
            found = source.read(np.array(picks, dtype=np.int64), ("x", "t"))
            assert found["x"].rows() == [expected[i]["x"] for i in picks]
            assert found["t"].rows() == [expected[i]["t"] for i in picks]
