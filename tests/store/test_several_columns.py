"""Derived columns of which one step makes several: computed together, stored each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from failure_tools import run_script
from store_tools import all_files, assert_no_orphans, rows_of

import silva as sv
from silva.testing import assert_same_stream

CALLS: list[int] = []


class Note:
    """Notes what it is called with, which does not change what it is."""

    def __call__(self, value: int) -> None:
        CALLS.append(value)


@sv.stateful
class Split:
    def __init__(self, note: Any) -> None:
        self.note = note

    def __call__(self, x: int) -> tuple[int, str]:
        self.note(x)
        return x % 3, f"é{x}"


def split(x: int) -> tuple[int, str]:
    return x % 3, f"é{x}"


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"x": np.arange(first, first + count)})


@pytest.fixture
def table(tmp_path: Path) -> sv.Table:
    CALLS.clear()
    return sv.Table.create(tmp_path / "t", rows(0, 20)).append(rows(20, 15))


def inline(table: sv.Table, columns: list[str]) -> list[dict[str, Any]]:
    CALLS.clear()
    return rows_of(table, columns)


def test_a_function_gives_several_columns_as_in_a_pipeline(table: sv.Table) -> None:
    table.derive(split, into=("rest", "text"))
    assert table.columns == ("x", "rest", "text")
    assert rows_of(table) == [{"x": i, "rest": i % 3, "text": f"é{i}"} for i in range(35)]
    assert rows_of(table, ["text"])[7] == {"text": "é7"}
    pipeline = sv.read_table(table.path, columns=["x"]).derive(split, into=("rest", "text"))
    assert rows_of(table) == [
        {k: getattr(v, "tolist", lambda v=v: v)() for k, v in row.items()} for row in pipeline
    ]
    number = table.version.number
    assert table.derive(split, into=("rest", "text")).version.number == number
    assert table.derive(split, into=("text", "rest")).version.number == number + 1
    assert rows_of(table, ["text"])[7] == {"text": 1}, "what it returns is told apart by place"


@pytest.mark.parametrize(
    "step",
    [
        split,
        lambda x: {"text": f"é{x}", "rest": x % 3, "more": None},
        sv.batched(lambda x: (x % 3, [f"é{i}" for i in x.tolist()])),
    ],
)
def test_what_is_stored_of_them_cannot_be_told(table: sv.Table, step: Any) -> None:
    table.derive(step, into=("rest", "text"))
    expected = rows_of(table)
    assert expected[8] == {"x": 8, "rest": 2, "text": "é8"}
    for names in (["text"], ["rest"], []):
        table.materialize(*names)
        assert rows_of(table) == expected
        assert [rows_of(table, [n])[8] for n in ("rest", "text")] == [{"rest": 2}, {"text": "é8"}]
    table.append(rows(35, 3)).unstore("rest")
    assert rows_of(table, ["text", "rest"])[-1] == {"text": "é37", "rest": 1}


@pytest.mark.rest
def test_a_stream_of_them_is_the_same_however_it_is_run(table: sv.Table) -> None:
    table.derive(split, into=("rest", "text")).delete(sv.col("x") == 1).materialize("text")
    table.append(rows(35, 3))
    assert_same_stream(table.read().batch(16), workers=(2,), epochs=1)


def test_it_is_called_once_for_a_row_whatever_is_read_and_stored(table: sv.Table) -> None:
    table.derive(Split(Note()), into=("rest", "text"))
    assert len(inline(table, ["text", "rest"])) == len(CALLS) == 35
    assert len(inline(table, ["text"])) == len(CALLS)
    CALLS.clear()
    table.materialize("text", "rest")
    assert sorted(CALLS) == list(range(35)), "both are stored of one call"
    assert table.versions()[-1].what == "store text, rest of 2 fragments"
    inline(table, ["text", "rest"])
    assert CALLS == []
    table.append(rows(35, 5))
    assert inline(table, ["text", "rest"])[-1] == {"text": "é39", "rest": 0}
    assert list(range(35, 40)) == CALLS
    table.unstore("rest")
    inline(table, ["text"])
    assert list(range(35, 40)) == CALLS
    inline(table, ["text", "rest"])
    assert sorted(CALLS) == list(range(40))
    CALLS.clear()
    table.materialize("rest")
    assert sorted(CALLS) == list(range(40)), "what the other has stored does not tell this one"
    before = table.version
    table.materialize("rest")
    assert table.version == before


def test_one_of_them_can_be_defined_anew_and_come_back(table: sv.Table) -> None:
    table.derive(split, into=("a", "b")).derive(c=sv.col("a") + 10).derive(b=sv.col("x") * 0)
    assert rows_of(table)[5] == {"x": 5, "a": 2, "b": 0, "c": 12}
    table.derive(d=sv.col("b") + 1)
    table.derive(split, into=("a", "b"))
    assert rows_of(table)[5] == {"x": 5, "a": 2, "b": "é5", "c": 12, "d": 1}
    table.materialize("b", "d", "c")
    assert rows_of(table)[5] == {"x": 5, "a": 2, "b": "é5", "c": 12, "d": 1}
    table.derive(d=1, b=sv.col("x") + 1)
    assert rows_of(table)[5] == {"x": 5, "a": 2, "b": 6, "c": 12, "d": 1}
    table.derive(a=1, c=2)
    assert [name for name, _ in table.version.definitions] == ["d", "b", "a", "c"]


def test_a_definition_that_others_read_does_not_hide_a_later_one(table: sv.Table) -> None:
    table.derive(b=sv.col("x") + 1).derive(c=sv.col("b")).derive(split, into=("a", "b"))
    table.derive(b=sv.col("x") + 1)
    assert rows_of(table)[5] == {"x": 5, "b": 6, "c": 6, "a": 2}


def test_a_step_that_reads_what_it_makes_anew(table: sv.Table) -> None:
    table.derive(lambda x: (x + 100, x - 100), into=("x", "y"))
    table.derive(lambda x, y: (x + 1, x + y), into=("x", "z"))
    expected = {"x": 106, "y": -95, "z": 10}
    assert rows_of(table)[5] == expected
    for name in ("x", "z", "y"):
        table.materialize(name)
        assert rows_of(table)[5] == expected
        assert rows_of(table, ["z", "x"])[5] == {"z": 10, "x": 106}


def test_a_column_is_read_where_it_is_stored_though_a_later_one_took_its_name(
    table: sv.Table,
) -> None:
    table.derive(y=sv.col("x") + 1).materialize("y").derive(y=sv.col("y") + 1000)
    assert rows_of(table, ["y"])[:2] == [{"y": 1001}, {"y": 1002}]
    table.put("p", np.arange(35)).derive(p=sv.col("p") + 1000)
    table.derive(q=sv.col("x")).materialize("q")
    assert rows_of(table, ["p", "q"])[:2] == [{"p": 1000, "q": 0}, {"p": 1001, "q": 1}]


def test_a_program_without_the_function_reads_those_that_are_stored(
    table: sv.Table, tmp_path: Path
) -> None:
    table.derive(split, into=("rest", "text")).derive(more=lambda rest: rest + 1)
    table.materialize("text", "more")
    script = """
import sys, silva as sv
t = sv.Table.open(sys.argv[1])
print([row["text"] for row in t.read(["text"])][-1])
print([row["more"] for row in t.read(["more"])][-1])
try:
    t.read(["rest"])
except sv.TableError as error:
    print(error)
try:
    t.materialize("rest")
except sv.TableError as error:
    print(error)
"""
    text, more, read, stored = run_script(tmp_path, script, table.path).splitlines()
    assert (text, more) == ("é34", "2")
    assert "'rest' of table" in read
    assert "is a function that this program does not have, and it is not stored" in read
    assert "t.derive(…, into=('rest', 'text'))" in read
    assert "derive it again" in stored


def test_an_expression_with_parts_is_kept_as_data(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8, 8, 3), np.uint8)
    boxes = np.tile(np.array([[[1.0, 2.0, 3.0, 4.0]]], np.float32), (4, 1, 1))
    flat = pa.table({
        "pixels": pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), 192),
        "boxes": pa.FixedSizeListArray.from_arrays(pa.array(boxes.reshape(-1)), 4),
    })  # fmt: skip
    table = sv.Table.create(tmp_path / "t", flat)
    table.derive(
        image=lambda pixels: pixels.reshape(8, 8, 3), corners=lambda boxes: boxes.reshape(1, 4)
    )
    table.derive(sv.image("image", boxes="corners").resize(16, 16), into=("large", "around"))
    table.materialize("image", "corners")
    stranger = sv.Table.open(table.path)
    (first, *_) = rows_of(stranger, ["around"])
    assert first == {"around": [[2.0, 4.0, 6.0, 8.0]]}
    stranger.materialize("around", "large")
    assert rows_of(stranger, ["around"])[0] == first


def test_a_step_of_grouped_columns_is_run_once_for_each_distinct_row(tmp_path: Path) -> None:
    data = pa.table({"x": np.repeat(np.arange(5), 40), "row": np.arange(200)})
    table = sv.Table.create(tmp_path / "t", data, group="x", store={"x": "grouped"})
    CALLS.clear()
    table.derive(Split(Note()), into=("rest", "text")).materialize("rest", "text")
    assert list(range(5)) == CALLS
    assert inline(table, ["rest", "text"])[41] == {"rest": 1, "text": "é1"}
    table.unstore("rest", "text")
    inline(table, ["rest", "text"])
    assert sorted(set(CALLS)) == list(range(5))
    assert len(CALLS) < 50


def test_explain_tells_what_is_made_together(table: sv.Table) -> None:
    table.derive(split, into=("rest", "text")).materialize("text")
    told = str(table.explain())
    assert "of x, together with text: def split" in told
    assert "of x, together with rest: def split" in told
    assert told.count("computed on read") == 1
    table.expect(rest=1000, text=1000).pin(rest="always", text="never").optimize()
    told = str(table.explain())
    assert told.count("computed on read") == 1
    assert rows_of(table)[4] == {"x": 4, "rest": 1, "text": "é4"}


def test_bad_definitions_of_several_columns_change_nothing(table: sv.Table) -> None:
    version, files = table.version, all_files(table.path)
    for wrong, match in [
        ({"into": ("a", "a")}, "different columns"),
        ({"into": ()}, "different columns"),
        ({"into": ("a", "")}, "non-empty string"),
        ({"into": 5}, "a name or several, not 5"),
        ({}, "needs the names"),
        ({"into": ("a", "b"), "reads": "nothing"}, "nothing"),
    ]:
        with pytest.raises(sv.PlanError, match=match):
            table.derive(split, **wrong)
    with pytest.raises(sv.PlanError, match="needs a function"):
        table.derive(into=("a", "b"))
    with pytest.raises(sv.PlanError, match="makes 1 column"):
        table.derive(sv.col("x") + 1, into=("a", "b"))
    assert table.version == version
    assert all_files(table.path) == files


def test_what_fails_or_cannot_be_stored_of_one_is_stored_of_none(table: sv.Table) -> None:
    table.derive(lambda x: (x, {"x": x}), into=("a", "b"))
    before = table.version
    with pytest.raises(sv.TableError, match="'b' has rows of dict"):
        table.materialize("a", "b")
    assert table.version == before
    table.materialize("a")
    assert rows_of(table)[3] == {"x": 3, "a": 3, "b": {"x": 3}}
    table.derive(lambda x: (x, 1 // (x - 25)), into=("a", "b"))
    with pytest.raises(sv.TableError, match="'a', 'b' fails on a row from 20 to 34"):
        table.materialize("a", "b")
    table.materialize("a", "b", on_error="skip")
    with table.read(["a", "b"]).loader(on_error=sv.Skip(2), backend="inline") as loader:
        assert len(list(loader)) == 34
    table.derive(lambda x: (x, x, x), into=("a", "b"))
    with pytest.raises(sv.TableError, match="returned 3 values for the 2 columns"):
        table.materialize("a")
    table.gc()
    assert_no_orphans(table.path)
