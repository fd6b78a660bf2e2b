"""Expressions become one where only the second reads the first, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.plan.show import show_plan
from silva.rewrite.rules.merge_derives import apply
from silva.rewrite.runner import optimize
from silva.testing import assert_same_stream

rows = sv.from_columns({"x": range(40), "y": np.arange(40) % 7})
x, y, a, b = (sv.col(name) for name in "xyab")


def lines(pipeline: sv.Pipeline) -> list[str]:
    shown = show_plan(apply(pipeline.plan).plan).splitlines()
    return [line.split("  [")[0] for line in reversed(shown)][1:]


def test_a_column_that_only_the_next_step_reads_is_no_step_of_its_own():
    pipeline = rows.derive(a=x + 1).derive(b=a * 2).select("b")
    assert lines(pipeline) == ["derive b = (x + 1) * 2", "select b"]
    assert_same_stream(pipeline.batch(7), backends=("inline",), fresh_process=False)


def test_a_column_that_the_next_step_writes_again():
    pipeline = rows.derive(x=x + 1).derive(x=x * 2).derive(x=x - y)
    assert lines(pipeline) == ["derive x = ((x + 1) * 2) - y"]


def test_steps_in_between_are_stepped_over():
    pipeline = rows.derive(a=x + 1).derive(z=lambda y: y).derive(b=a * 2).select("b", "z")
    assert lines(pipeline) == [
        "derive z = lambda(y)", "derive b = (x + 1) * 2", "select b, z",
    ]  # fmt: skip


def test_it_is_seen_across_a_shuffle_and_a_take():
    pipeline = rows.derive(a=x + 1).derive(b=a * 2).shuffle(seed=1).take(9).select("b")
    assert lines(pipeline)[0] == "derive b = (x + 1) * 2"


@pytest.mark.parametrize(
    "pipeline",
    [
        rows.derive(a=x + 1).derive(b=a * 2),  # a is a result
        rows.derive(a=x + 1).derive(b=a * a).select("b"),  # would be computed twice
        rows.derive(a=x + 1).derive(b=a * 2).derive(c=a - 1).select("b", "c"),
        rows.derive(a=lambda x: x + 1).derive(b=a * 2).select("b"),
        rows.derive(a=x + 1).derive(b=lambda a: a * 2).select("b"),
        rows.derive(a=x + 1).filter(y > 2).derive(b=a * 2).select("b"),
        rows.derive(a=x + 1).derive(x=y + 1).derive(b=a * 2).select("b"),  # x is another by then
        rows.derive(a=x + 1).derive(z=sv.impure(lambda y: y)).derive(b=a * 2).select("b"),
        rows.derive(a=x + 1).derive(c=y).derive(a=a * 2),  # a stands before c
        rows.derive(a=x + 1).derive(b=a * 2).derive(a=b - 1),  # a stands before b
        rows.derive(a=x + 1).derive(b=a * 2).rename(a="c").select("b"),
        rows.derive(a=x + 1).derive(b=a * 2).cache().select("b"),
        rows.derive(a=x + 1).derive(b=a * 2).map_rows(lambda row: {"n": len(row)}),
        rows.derive(a=sv.Expr(sv.plan.expr.Literal(5))).derive(b=x + a).select("b"),
        rows.batch(4).derive(a=x + 1).derive(b=a * 2).select("b"),
    ],
)
def test_it_must_not_fire(pipeline: sv.Pipeline):
    assert apply(pipeline.plan).plan == pipeline.plan
    assert_same_stream(pipeline, backends=("inline",), fresh_process=False, epochs=1)


def test_a_decode_that_may_shrink_does_not_learn_what_follows():
    image = sv.image("bytes").decode(shrink=True)
    photos = sv.from_columns({"bytes": [b""]})
    pipeline = photos.derive(a=image).derive(b=sv.image("a").resize(4, 4, "area")).select("b")
    assert apply(pipeline.plan).plan == pipeline.plan


def test_random_numbers_stay_those_of_the_step_they_were_written_in():
    data = np.random.default_rng(0).integers(0, 256, (12, 9, 9, 3), np.uint8)
    pipeline = (
        sv.from_columns({"x": list(data)})
        .derive(a=sv.image("x").random_crop(6).random_flip())
        .derive(b=sv.image("a").random_flip(0.5, "vertical").random_crop(3))
        .select("b")
        .batch(5)
    )
    plan, outcomes = optimize(pipeline.plan)
    assert [outcome.rule.name for outcome in outcomes] == ["merge_derives"]
    assert "random_flip" in show_plan(plan).splitlines()[-2]
    assert_same_stream(pipeline, backends=("inline", "threads"))


def test_it_is_left_out_where_bad_rows_are_substituted():
    pipeline = rows.derive(a=x + 1).derive(b=a * 2).select("b")
    plan, (outcome,) = optimize(pipeline.plan, substitutes=True)
    assert plan == pipeline.plan
    assert not outcome.applied
    assert outcome.why is not None
    assert "substituted" in outcome.why
