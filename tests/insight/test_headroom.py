"""Headroom finds the step that limits, and says what it would bring if it were free."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from busy import spin

import silva as sv
from silva.errors import PlanError
from silva.facts.model import Limit
from silva.insight.headroom import Headroom
from silva.insight.replay import KeptInputs, measure_rate
from silva.loader import Loader


def labels(found) -> list[str]:
    return [step.label.partition(" ")[0] for step in found.steps]


@pytest.mark.parametrize(
    "backend",
    ["inline", *(pytest.param(b, marks=pytest.mark.rest) for b in ("threads", "processes"))],
)
def test_the_slowest_step_is_found(backend: str) -> None:
    rows = sv.from_columns({"x": range(1_000_000)})
    rows = rows.derive(a=spin(0.05), b=spin(0.6), c=spin(0.2)).batch(8)
    found = rows.headroom(seconds=2.0, backend=backend, workers=0 if backend == "inline" else 2)
    assert labels(found)[0] == "b"
    assert sorted(labels(found)[:3]) == [
        "a",
        "b",
        "c",
    ]  # on a busy machine, the small ones are close
    assert found.lowest.label.startswith("b = ")
    gains = [step.gain for step in found.steps[:3]]
    assert gains == sorted(gains, reverse=True)
    assert found.lowest.gain > 1.5  # 0.85 / 0.25 on an idle machine
    assert found.lowest.share > 0.4
    assert found.lowest.scaled == (backend == "processes")


def test_a_step_before_a_filter_counts_for_the_rows_that_the_filter_keeps() -> None:
    rows = sv.from_columns({"x": range(1_000_000)}).derive(a=spin(0.1))
    rows = rows.filter(lambda a: a % 10 == 0).derive(b=spin(0.3)).batch(4)
    found = rows.headroom(seconds=1.0, backend="inline")
    assert labels(found)[:2] == ["a", "b"]  # 10 × 0.1 ms for each row that comes out, 0.3 ms


def test_random_steps_expressions_and_batch_steps_are_replayed() -> None:
    def noisy(x, rng):
        return x + rng.random()

    rows = sv.from_columns({"x": np.arange(100_000.0)}).shuffle(seed=1).derive(y=noisy)
    rows = rows.derive(z=sv.num("x").clip(0, 5).log1p()).filter(sv.col("x") % 2 == 0)
    found = rows.batch(16).derive(total=lambda y: y.sum()).headroom(seconds=1.0)
    assert set(labels(found)) >= {"read", "y", "z", "filter", "derive", "put", "batch"}
    assert all(step.rows_per_second > 0 for step in found.steps)


def test_chunks_are_read_again_too(tmp_path) -> None:
    pq.write_table(pa.table({"x": range(20_000)}), tmp_path / "a.parquet", row_group_size=1000)
    rows = sv.read_parquet(str(tmp_path / "a.parquet")).derive(y=spin(0.02)).batch(64)
    found = rows.headroom(seconds=0.6, backend="inline")
    assert found.lowest.label.startswith("y = ")
    assert any(step.label.startswith("read x") for step in found.steps)


def test_text_and_data() -> None:
    rows = sv.from_columns({"x": range(100_000)}).derive(a=spin(0.2), b=spin(0.02)).batch(8)
    found = rows.headroom(seconds=0.4, backend="inline")
    text = str(found)
    assert max(map(len, text.splitlines())) <= 100
    assert "The next gain is in `a = spinning`: if it were free, " in text
    assert "rows/s now (limit: the consumer's thread, stage 1, in use " in text
    data = found.to_dict()
    assert data["limit"] == "the consumer's thread, stage 1"
    assert data["lowest"] == data["steps"][0]["label"]
    assert set(data["steps"][0]) == {
        "label", "stage", "resource", "rows_per_second", "share", "gain", "scaled",
    }  # fmt: skip
    assert "<table" in found._repr_html_()


def test_headroom_of_rows_from_a_cache_says_that_no_step_ran() -> None:
    nothing = Headroom(10.0, Limit("the consumer's thread", None, 0.99), (), 1.0)
    assert str(nothing).startswith("10.0 rows/s now (limit: the consumer's thread, in use 99 % of")
    assert "the rows came from a cache" in " ".join(str(nothing).split())
    assert nothing.to_dict()["lowest"] is None
    assert "the rows came from a cache" in nothing._repr_html_()
    with pytest.raises(PlanError, match="none was run"):
        _ = nothing.lowest


def test_headroom_of_a_pipeline_without_rows_is_an_error() -> None:
    rows = sv.from_columns({"x": range(10)}).filter(lambda x: x > 100).batch(2)
    with pytest.raises(sv.PlanError, match="no row came out"):
        rows.headroom(seconds=0.1, backend="inline")


@pytest.mark.parametrize("seconds", [-1, 0, "a", None, float("nan"), True])
def test_seconds_that_are_no_duration_are_an_error_that_names_them(seconds: Any) -> None:
    rows = sv.from_columns({"x": range(10)}).batch(2)
    said = rf"seconds= (must be a positive number|takes numbers), not {seconds!r}"
    with rows.loader(backend="inline") as loader:
        for measure in (
            loader.measure,
            loader.headroom,
            lambda seconds: rows.explain(analyze=True, seconds=seconds),
            lambda seconds: rows.what_if(seconds=seconds),
            lambda seconds: rows.headroom(seconds=seconds),
        ):
            with pytest.raises(sv.PlanError, match=said):
                measure(seconds)
        with pytest.raises(sv.PlanError, match="not inf"):
            loader.headroom(float("inf"))


def test_a_loader_measures_for_as_long_as_its_pipeline_does() -> None:
    ours, theirs = (
        inspect.signature(one).parameters["seconds"].default
        for one in (sv.Pipeline.headroom, Loader.headroom)
    )
    assert ours == theirs


def test_kept_inputs_are_bounded() -> None:
    class Payload:
        nbytes = 100

    class Node:
        name, stage = "stage 1", object()

    inputs = KeptInputs(max_bytes=350)
    payloads = [Payload() for _ in range(20)]
    for payload in payloads:
        inputs.keep(Node, payload)
    assert inputs.of("stage 1") == payloads[-3:]
    Node.stage = object()  # the plan has changed: what came to the old stage is of no use
    inputs.keep(Node, payloads[0])
    assert inputs.of("stage 1") == payloads[:1]


def test_an_error_in_a_replay_is_raised() -> None:
    def work(turn, worker):
        yield 1
        if turn > 5:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        measure_rate(work, 2, 5.0)
