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
    st.tuples(st.just("derive"), st.tuples(st.sampled_from("abx"), st.sampled_from(range(4)))),
    st.tuples(st.just("materialize"), st.sampled_from("abx")),
)


def _sum(x: int | None, t: int) -> int | None:
    return None if x is None else x + t


def _size(h: Any) -> int:
    return -1 if h is None else len(h)


STEPS: list[tuple[Any, Any]] = [
    (sv.col("g") * 2 + 1, lambda r: r["g"] * 2 + 1),
    (_sum, lambda r: _sum(r["x"], r["t"])),
    (_size, lambda r: _size(r["h"])),
    (sv.col("t") - sv.col("g"), lambda r: r["t"] - r["g"]),
]
"""The same step for the table, and for a row."""


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def clustered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r["g"], r["t"]))


Steps = tuple[tuple[str, int], ...]
State = tuple[list[Row], Steps]
"""The rows as appended, and what was derived of them, in this order."""


def shown(state: State) -> list[Row]:
    """The rows with all columns, each definition computed."""
    found = []
    for row in state[0]:
        row = dict(row)
        for name, number in state[1]:
            row[name] = STEPS[number][1](row)
        found.append(row)
    return found


class Model:
    """Branches as versions, each of them plain rows and steps."""

    def __init__(self, rows: list[Row]) -> None:
        self.branches: dict[str, dict[int, State]] = {"main": {1: (clustered(rows), ())}}

    def head(self, branch: str) -> tuple[int, State]:
        return max(self.branches[branch].items(), key=lambda item: item[0])

    def commit(self, branch: str, state: State) -> None:
        number, _ = self.head(branch)
        self.branches[branch][number + 1] = state


def same_definition(steps: Steps, new: tuple[str, int]) -> bool:
    """Whether a column is defined like this already, by the definitions that it reads."""

    def identity(steps: Steps) -> dict[str, Any]:
        known: dict[str, Any] = {}
        reads = {0: "g", 1: "xt", 2: "h", 3: "tg"}
        for name, number in steps:
            known[name] = (number, tuple(known.get(n, n) for n in reads[number]))
        return known

    return identity((*steps, new)).get(new[0]) == identity(steps).get(new[0])


def apply(model: Model, tables: dict[str, sv.Table], at: str, change: tuple[str, Any]) -> str:
    """Does a change to both, on the branch `at`; gives the branch to go on with."""
    verb, value = change
    table, (number, (rows, steps)) = tables[at], model.head(at)
    everything = shown((rows, steps))
    if verb == "append":
        table.append(arrow(value))
        if value:
            model.commit(at, (rows + clustered(value), steps))
    elif verb == "delete":
        table.delete(sv.col("x") > value)
        gone = [r["x"] is not None and r["x"] > value for r in everything]
        if any(gone):
            left = [r for r, out in zip(rows, gone, strict=True) if not out]
            model.commit(at, (left, steps))
    elif verb == "delete groups":
        table.delete(lambda g: g == value)
        left = [r for r in rows if r["g"] != value]
        if len(left) < len(rows):
            model.commit(at, (left, steps))
    elif verb == "branch":
        tables[value] = table.branch(value)
        if value not in model.branches:
            model.branches[value] = {**model.branches[at], number + 1: (rows, steps)}
        return str(value)
    elif verb == "restore":
        wanted = min(value, number)
        table.restore(wanted)
        model.commit(at, model.branches[at][wanted])
    elif verb == "derive":
        name, which = value
        table.derive(**{name: STEPS[which][0]})
        if not same_definition(steps, value):
            model.commit(at, (rows, (*steps, value)))
    elif verb == "materialize":
        if value in dict(steps):
            before = table.version
            table.materialize(value)
            if table.version != before:
                model.commit(at, (rows, steps))
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
                assert rows_of(tables[name].at(number)) == shown(expected)
        tables["main"].gc()
        assert_no_orphans(path)
        source = tables[at].read(["t", "g"]).plan.inputs[0].source  # type: ignore[attr-defined]
        expected = model.head(at)[1][0]
        if expected:
            picks = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=12))
            found = source.read(np.array(picks, dtype=np.int64), ("g", "t"))
            assert found["g"].rows() == [expected[i]["g"] for i in picks]
            assert found["t"].rows() == [expected[i]["t"] for i in picks]
