"""Derived columns are read where a table has stored them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import silva as sv
from silva.plan.show import show_plan
from silva.rewrite.rules.read_stored import apply
from silva.testing import assert_same_stream


def twice(x: int) -> int:
    return x * 2


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    made = sv.Table.create(tmp_path / "t", pa.table({"x": range(30), "w": range(30)}))
    made.derive(a=twice, b=lambda x: x + 1, c=lambda a: -a).materialize("a", "c")
    return made.append(pa.table({"x": [30], "w": [0]}))


def lines(pipeline: sv.Pipeline) -> list[str]:
    """The plan, from the source up, one word or two a line."""
    shown = show_plan(apply(pipeline.plan).plan).splitlines()
    return [" ".join(line.split("[")[0].split()[:4]) for line in reversed(shown)][1:]


def test_what_is_stored_is_not_derived(table: sv.Table) -> None:
    assert lines(table.read()) == ["derive b = lambda(x)", "select x, w, a,"]
    assert lines(table.read(["a"])) == ["select a"]
    assert apply(table.read().plan).notes == (
        "a (stored in 1 of 2 fragments)",
        "c (stored in 1 of 2 fragments)",
    )


def test_a_step_of_the_same_fingerprint_is_the_same_column(table: sv.Table) -> None:
    rows = sv.read_table(table.path, columns=["x"]).plan.inputs[0]
    assert lines(sv.Pipeline(rows).derive(own=twice).filter(sv.col("own") > 3)) == [
        "filter own > 3"
    ]
    assert lines(sv.Pipeline(rows).derive(own=lambda x: x * 3)) == ["derive own = lambda(x)"]


def test_a_column_in_the_place_of_one_that_is_still_read_is_left(table: sv.Table) -> None:
    rows = sv.Pipeline(sv.read_table(table.path, columns=["x"]).plan.inputs[0])
    assert lines(rows.derive(x=twice)) == []
    kept = rows.derive(z=lambda x: x + 5).derive(x=twice)
    assert lines(kept) == ["derive z = lambda(x)", "derive x = twice(x)"]


def test_only_right_above_the_table(table: sv.Table) -> None:
    rows = sv.Pipeline(sv.read_table(table.path, columns=["x"]).plan.inputs[0])
    assert lines(rows.filter(sv.col("x") > 1).derive(a=twice)) == [
        "filter x > 1",
        "derive a = twice(x)",
    ]
    assert lines(rows.derive(lambda x: (x, x), into=("p", "q")).derive(a=twice)) == [
        "derive p, q =",
        "select x, w, p,",
    ]


def test_the_stream_is_the_same(table: sv.Table) -> None:
    rows = table.read().filter(sv.col("c") < -8).shuffle(seed=1)
    assert_same_stream(rows.batch(4), backends=("inline", "threads"), workers=(2,), epochs=1)
