"""The rule `drop_unread`: what nobody reads is not run, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.plan.show import show_plan
from silva.rewrite.rules.drop_unread import apply
from silva.testing import assert_same_stream, digest

rows = sv.from_columns({"x": range(4)})


def test_a_step_that_nobody_reads_goes():
    written = rows.derive(a=lambda x: x).derive(b=lambda x: x).select("b")
    assert "derive a" not in show_plan(apply(written.plan).plan)
    assert "derive b" in show_plan(apply(written.plan).plan)


def test_a_step_that_is_read_or_impure_stays():
    read = rows.derive(a=lambda x: x).derive(b=lambda a: a).select("b")
    assert "derive a" in show_plan(apply(read.plan).plan)
    noisy = rows.derive(a=sv.impure(lambda x: x)).select("x")
    assert "derive a" in show_plan(apply(noisy.plan).plan)


def test_the_order_of_the_columns_stays_when_one_is_written_twice():
    twice = rows.derive(m=lambda x: x).derive(n=lambda x: x).derive(m=lambda x: -x)
    found = twice.batch(4).head(1)[0]
    assert list(found) == list(twice.options(optimize=False).batch(4).head(1)[0])


ragged = sv.from_columns(
    {"x": range(20), "n": [[0] * (i % 5 + 1) for i in range(20)], "g": [i // 4 for i in range(20)]}
)


def slow(x: int) -> int:
    slow.calls += 1  # type: ignore[attr-defined]  # a global would be part of its fingerprint
    return x * x


slow.calls = 0  # type: ignore[attr-defined]


def streamed(pipeline: sv.Pipeline, **given: Any) -> list[tuple[str, str]]:
    """Each batch as a digest, with the state after it."""
    loader = pipeline.loader(backend="inline", **given)
    return [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]


BATCHED: dict[str, sv.Pipeline] = {
    "select": ragged.derive(z=slow).batch(6).select("x"),
    "the last dropped": ragged.derive(z=slow).batch(per_rank=6, drop_last=True).select("x"),
    "padded": ragged.derive(z=slow).batch(6, pad={"n": -1, "z": 0}).select("n"),
    "padded, not selected": ragged.derive(z=slow).batch(6, pad=0).select("x"),
    "tokens": ragged.derive(z=slow).batch(tokens=12, by="n").select("x"),
    "bucket": ragged.derive(z=slow).bucket(by="n", sizes={2: 3, 9: 2}).select("x"),
    "grouped": ragged.derive(z=slow).batch(6, grouped=("g",)).select("x"),
    "another order": ragged.derive(z=slow).batch(6).select("g", "x"),
    "renamed": ragged.derive(z=slow).batch(6).rename(x="y").select("y", "g"),
    "renamed itself": ragged.derive(z=slow).batch(6).rename(z="y").select("x"),
    "names swapped": ragged.derive(z=slow).batch(6).rename(x="z", z="x").select("z"),
    "a step of batches": ragged.derive(z=slow).batch(6).derive(s=lambda x: x + 1).select("s"),
    "an unread step of batches": ragged.derive(z=slow).batch(6).derive(s=lambda z: z).select("x"),
    "a filter of batches": ragged.derive(z=slow).batch(6).filter(lambda g: g.sum() > 6).select("x"),
    "taken": ragged.derive(z=slow).batch(6).take(2).select("x"),
    "shuffled": ragged.shuffle(seed=1).derive(z=slow).batch(6).select("x"),
    "random": ragged.derive(z=slow).batch(6).derive(r=lambda x, rng: x + rng.random()).select("r"),
}  # fmt: skip


@pytest.mark.parametrize("pipeline", BATCHED.values(), ids=BATCHED)
def test_what_nobody_reads_after_batch_is_not_computed_before_it(pipeline: sv.Pipeline) -> None:
    slow.calls = 0  # type: ignore[attr-defined]
    found = streamed(pipeline)
    assert slow.calls == 0
    assert "derive z" not in show_plan(apply(pipeline.plan).plan)
    assert found == streamed(pipeline.options(optimize=False))
    assert found == streamed(sv.Pipeline(pipeline.plan).options(disable=["drop_unread"]))


NEEDED: dict[str, sv.Pipeline] = {
    "collate": ragged.derive(z=slow).batch(6, collate=lambda rows: {"x": len(rows[0])}).select("x"),
    "whole batches": ragged.derive(z=slow).batch(6).map_rows(
        lambda row: {"x": len(row)}, into=("x",)
    ),
    "counted by": ragged.derive(n=lambda n, x: n[: slow(x) % 3 + 1]).batch(
        tokens=12, by="n"
    ).select("x"),
    "grouped by": ragged.derive(z=slow).batch(6, grouped=(("g", "z"),)).select("g"),
    "read by a filter": ragged.derive(z=slow).batch(6).filter(lambda z: z.sum() > 9).select("x"),
    "impure": ragged.derive(z=sv.impure(lambda x: slow(x))).batch(6).select("x"),
    "fixed chunks": ragged.derive(
        z=sv.batched(lambda x: np.array([slow(int(i)) for i in x]), size=4)
    ).batch(6).select("x"),
    "nothing else": ragged.select("x").derive(z=slow).select("z").batch(6),
}  # fmt: skip


@pytest.mark.parametrize("pipeline", NEEDED.values(), ids=NEEDED)
def test_what_batches_need_is_computed(pipeline: sv.Pipeline) -> None:
    slow.calls = 0  # type: ignore[attr-defined]
    found = streamed(pipeline)
    assert slow.calls >= 20
    assert found == streamed(pipeline.options(optimize=False))


def test_the_mask_of_an_evaluation_goes_where_it_went() -> None:
    plain = ragged.derive(z=slow).batch(8)
    for pipeline in (plain.select("x"), plain.derive(s=lambda x: x)):
        assert streamed(pipeline, eval=True) == streamed(
            pipeline.options(optimize=False), eval=True
        )


def test_a_batch_keeps_a_column_where_no_other_is_left() -> None:
    ids = ragged.derive(z=slow).batch(6).derive(one=sv.col("x") * 0).select("one")
    assert streamed(ids) == streamed(ids.options(optimize=False))


def test_a_stream_of_pruned_batches_does_not_depend_on_how_it_is_run() -> None:
    pipeline = ragged.shuffle(seed=3).derive(z=slow).batch(4).rename(x="y").select("y")
    assert_same_stream(pipeline, workers=(2,))
