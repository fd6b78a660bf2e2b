"""Whatever is defined, stored and put, in any order: every column is what it was said to be."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from store_tools import assert_no_orphans, rows_of

import silva as sv

NAMES = ["a", "b", "x"]
name = st.sampled_from(NAMES)
few = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("one"), name, few, few),
    st.tuples(st.just("function"), name, few, few),
    st.tuples(st.just("two"), st.permutations(NAMES), few, few, few),
    st.tuples(st.just("put"), name, few),
    st.tuples(st.just("store"), st.sets(name, min_size=1)),
    st.tuples(st.just("other"), st.sampled_from(["unstore", "append", "delete", "gc"]), few),
)
"""Columns that are read are told by their place among those that there are by then."""

FUNCTIONS = [lambda v: v + 1, lambda v: v * 2, lambda v: 3]
PAIRS = [lambda v, w: (v + w, v - w), lambda v, w: (w, v), lambda v, w: (v, 7)]


class Model:
    """What the table must be: for each column a function of the row's own number."""

    def __init__(self) -> None:
        self.rows = list(range(6))
        self.next = 6
        self.columns: dict[str, Callable[[int], int]] = {"id": lambda i: i, "x": lambda i: i * 10}
        self.derived: set[str] = set()
        self.given: set[str] = set()

    def derive(self, names: tuple[str, ...], step: Any, reads: tuple[str, ...]) -> None:
        below = [self.columns[name] for name in reads]

        def whole(i: int) -> tuple[int, ...]:
            made = step(*(column(i) for column in below))
            return made if isinstance(made, tuple) else (made,)

        for place, name in enumerate(names):
            self.columns[name] = lambda i, place=place: whole(i)[place]
        self.derived |= set(names)
        self.given -= set(names)

    def put(self, name: str, seed: int) -> list[int]:
        values = {i: (i * 7 + seed) % 5 for i in self.rows}
        self.columns[name] = lambda i: values.get(i, 0)
        self.derived |= {name}
        self.given |= {name}
        return [values[i] for i in self.rows]


def apply(model: Model, table: sv.Table, step: tuple[Any, ...]) -> None:
    there = [name for name in NAMES if name in model.columns]
    storable = model.derived - model.given
    match step:
        case ("one", str(made), int(place), int(k)):
            read = there[place % len(there)]
            model.derive((made,), lambda v: v * 3 + k, (read,))
            table.derive(**{made: sv.col(read) * 3 + k})
        case ("function", str(made), int(place), int(k)):
            read = there[place % len(there)]
            model.derive((made,), FUNCTIONS[k], (read,))
            table.derive(FUNCTIONS[k], into=made, reads=read)
        case ("two", [str(c), str(d), _], int(first), int(second), int(k)):
            reads = (there[first % len(there)], there[second % len(there)])
            model.derive((c, d), PAIRS[k], reads)
            table.derive(PAIRS[k], into=(c, d), reads=reads)
        case ("put", str(made), int(seed)) if made != "x":
            table.put(made, np.array(model.put(made, seed)), default=0)
        case ("store", names):
            table.materialize(*sorted(names & storable))
        case ("other", "unstore", _):
            table.unstore(*sorted(storable)[:1])
        case ("other", "append", _):
            new = [model.next, model.next + 1]
            model.rows, model.next = model.rows + new, model.next + 2
            table.append(pa.table({"id": new, "x": [i * 10 for i in new]}))
        case ("other", "delete", int(place)):
            gone = model.rows.pop(place) if len(model.rows) > place else -1
            table.delete(sv.col("id") == gone)
        case ("other", "gc", _):
            table.gc(versions=1)


@given(st.lists(steps, max_size=14), st.sets(name, min_size=1))
def test_every_column_is_what_it_was_said_to_be(made: list[Any], some: set[str]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        rows = pa.table({"id": model.rows, "x": [i * 10 for i in model.rows]})
        table = sv.Table.create(f"{folder}/t", rows.slice(0, 4), key="id").append(rows.slice(4))
        for step in made:
            apply(model, table, step)
        expected = [{n: column(i) for n, column in model.columns.items()} for i in model.rows]
        assert rows_of(table, list(model.columns)) == expected
        names = ["id", *sorted(some & set(model.columns))]
        assert rows_of(table, names) == [{n: row[n] for n in names} for row in expected]
        table.gc()
        assert_no_orphans(f"{folder}/t")
