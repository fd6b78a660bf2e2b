"""Columns whose values repeat: steps run once for each distinct value, and nobody can tell."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import silva as sv
from silva.testing import assert_same_stream, digest, stream

ROWS = 400


def _table(rows: int = ROWS, distinct: int = 7) -> pa.Table:
    rng = np.random.default_rng(0)
    picked = rng.integers(0, distinct, rows)
    names = pa.array([f"name {i}" for i in picked])
    values = pa.array([[i, i + 1] for i in range(distinct)])
    lists = pa.DictionaryArray.from_arrays(pa.array(picked, pa.int32()), values)
    return pa.table(
        {"name": names.dictionary_encode(), "history": lists, "x": np.arange(rows), "n": picked}
    )


def shout(name):
    shout.calls += 1
    return name.upper()


def test_a_function_runs_once_for_each_distinct_value() -> None:
    shout.calls = 0
    table = _table()
    (batch,) = sv.from_arrow(table).derive(loud=shout).batch(ROWS).loader(workers=0)
    assert shout.calls < ROWS / 4
    assert batch["loud"].tolist() == [name.upper() for name in table["name"].to_pylist()]


def test_the_stream_is_that_of_plain_columns() -> None:
    table = _table()
    plain = pa.table({name: pa.array(table[name].to_pylist()) for name in table.column_names})

    def pipeline(rows: pa.Table) -> sv.Pipeline:
        return (
            sv.from_arrow(rows)
            .derive(loud=lambda name: name.upper(), total=lambda history: sum(history))
            .derive(long=sv.text("loud").length(), hashed=sv.list("history").hash(1000))
            .derive(mixed=lambda loud, x: f"{loud}{x}", drawn=lambda loud, rng: rng.random())
            .filter(sv.col("long") > 3)
            .shuffle(seed=1)
            .batch(16)
        )

    assert stream(pipeline(table).loader(workers=0)) == stream(pipeline(plain).loader(workers=0))
    assert_same_stream(pipeline(table), backends=("inline", "threads"), workers=(2,))


def test_rows_that_fail_are_known_one_by_one() -> None:
    def fussy(name):
        if name == "name 3":
            raise ValueError(name)
        return name

    table = _table(60)
    bad = [i for i, name in enumerate(table["name"].to_pylist()) if name == "name 3"]
    pipeline = sv.from_arrow(table).derive(y=fussy).batch(8)
    with pipeline.loader(workers=0, on_error=sv.Skip(at_most=60)) as loader:
        rows = sum(len(batch["y"]) for batch in loader)
        assert rows == 60 - len(bad)
        assert [failure.key for failure in loader.failures] == [f"0:{i}" for i in bad]


def test_a_filter_asks_once_for_each_distinct_value() -> None:
    asked = []

    def wanted(name):
        asked.append(name)
        return name != "name 3"

    table = _table()
    (batch,) = sv.from_arrow(table).filter(wanted).batch(ROWS).loader(workers=0)
    assert len(asked) < ROWS / 4
    assert batch["x"].tolist() == [
        i for i, name in enumerate(table["name"].to_pylist()) if name != "name 3"
    ]


@pytest.mark.parametrize(
    "condition",
    [
        lambda name: name > "name 3",
        lambda name: None if name == "name 2" else int(name[-1]) % 3,
        lambda name: name.replace("name 1", ""),
        lambda name: {"name 1": 0.0, "name 2": float("nan")}.get(name, "x"),
        lambda history: history[:-1],
        sv.batched(lambda name: np.char.endswith(np.asarray(name, str), "3")),
        sv.text("name").length() > 3,
        sv.col("name") == "name 4",
    ],
)
def test_a_filter_of_values_that_repeat_keeps_the_same_rows(condition) -> None:
    table = _table(90)
    plain = pa.table({name: pa.array(table[name].to_pylist()) for name in table.column_names})

    def kept(rows: pa.Table) -> list[int]:
        with sv.from_arrow(rows).filter(condition).select("x").loader(workers=0) as loader:
            return [row["x"] for row in loader]

    assert kept(table) == kept(plain)


@pytest.mark.parametrize("failing", ["raises", "has no truth"])
def test_rows_that_a_filter_fails_on_are_known_one_by_one(failing: str) -> None:
    def fussy(name):
        if name != "name 3":
            return True
        if failing == "raises":
            raise ValueError(name)
        return np.array([True, False])

    table = _table(60)
    bad = [i for i, name in enumerate(table["name"].to_pylist()) if name == "name 3"]
    rows = sv.from_arrow(table).filter(fussy).batch(8)
    with rows.loader(workers=0, on_error=sv.Skip(at_most=60)) as loader:
        assert sum(len(batch["x"]) for batch in loader) == 60 - len(bad)
        assert [failure.key for failure in loader.failures] == [f"0:{i}" for i in bad]
        assert all(failure.step.startswith("filter ") for failure in loader.failures)


def test_a_function_that_draws_is_asked_for_every_row() -> None:
    rows = sv.from_arrow(_table()).derive(y=lambda name: len(name) + random.random())
    with rows.batch(ROWS).loader(workers=0) as loader:
        (batch,) = loader
    assert len(set(batch["y"].tolist())) == ROWS


@pytest.mark.parametrize("distinct", [1, 30])
def test_dictionaries_in_parquet_files(tmp_path, distinct: int) -> None:
    table = _table(distinct=distinct).drop_columns("history")
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=90)
    shout.calls = 0
    pipeline = sv.read_parquet(str(tmp_path / "a.parquet")).derive(loud=shout).select("loud")
    found = [digest(batch) for batch in pipeline.batch(10).loader(workers=0)]
    assert shout.calls < ROWS
    plain = sv.from_items([{"loud": name.upper()} for name in table["name"].to_pylist()])
    assert found == stream(plain.batch(10).loader(workers=0))


def test_nulls_are_nulls() -> None:
    table = pa.table({"name": pa.array(["a", None, "a", "b"] * 5).dictionary_encode()})
    (batch,) = sv.from_arrow(table).derive(y=lambda name: name is None).batch(20).loader(workers=0)
    assert batch["y"].sum() == 5
