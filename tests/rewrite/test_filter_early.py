"""Filters go before the steps that they do not need, and nowhere else."""

from __future__ import annotations

import numpy as np

import silva as sv
from silva.plan.show import show_plan
from silva.rewrite.rules.filter_early import apply
from silva.testing import assert_same_stream

rows = sv.from_columns({"x": range(40), "y": np.arange(40) % 7})
x, y, z = sv.col("x"), sv.col("y"), sv.col("z")


def lines(pipeline: sv.Pipeline) -> list[str]:
    """The plan, from the source up, one word or two a line."""
    shown = show_plan(apply(pipeline.plan).plan).splitlines()
    return [" ".join(line.split("[")[0].split()[:4]) for line in reversed(shown)][1:]


def test_a_filter_goes_before_what_it_does_not_read():
    pipeline = rows.derive(z=lambda x: x + 1).derive(w=lambda z: z * 2).filter(y > 2)
    assert lines(pipeline) == ["filter y > 2", "derive z = lambda(x)", "derive w = lambda(z)"]
    pipeline = rows.derive(z=lambda x: x + 1).derive(w=lambda z: z * 2).filter(z > 2)
    assert lines(pipeline) == ["derive z = lambda(x)", "filter z > 2", "derive w = lambda(z)"]


def test_conjunctions_are_taken_apart():
    pipeline = rows.derive(z=lambda x: x + 1).filter((y > 2) & (z < 9) & (x != 3))
    assert lines(pipeline) == [
        "filter y > 2",
        "filter x != 3",
        "derive z = lambda(x)",
        "filter z < 9",
    ]
    pipeline = rows.derive(z=lambda x: x + 1).filter((z > 2) & (z < 9))
    assert len(lines(pipeline)) == 2  # nothing gained: left as it was written


def test_plain_arithmetic_overtakes_functions():
    slow = rows.derive(z=lambda x: x + 1).filter(lambda z: z % 2).filter(y > 2)
    assert lines(slow) == ["filter y > 2", "derive z = lambda(x)", "filter lambda(z)"]
    functions = rows.derive(z=lambda x: x + 1).filter(lambda z: z % 2).filter(lambda y: y > 2)
    assert lines(functions)[-1] == "filter lambda(y)"


def test_what_is_never_crossed():
    for pipeline in (
        rows.shuffle(seed=1).filter(y > 2),
        rows.derive(z=sv.impure(lambda x: x)).filter(y > 2),
        rows.derive(z=sv.batched(lambda x: x, size=4)).filter(y > 2),
        rows.map_rows(lambda row: row).filter(y > 2),
        rows.take(9).filter(y > 2),
        rows.derive(z=lambda x: x).cache().filter(y > 2),
        rows.derive(y=lambda x: x).filter(y > 2),
        rows.derive(z=lambda x: x).filter(sv.impure(lambda y: y > 2)),
    ):
        assert apply(pipeline.plan).plan == pipeline.plan


def test_rows_that_are_dropped_are_not_computed():
    def fails(x):
        if x < 30:
            raise ValueError(x)
        return x

    pipeline = rows.derive(z=fails).filter(x >= 30)
    assert len(pipeline.head(99)) == 10
    said = pipeline.explain()
    assert "filter_early: rows that are dropped should cost little" in said
    assert "· x >= 30" in said


def test_the_stream_is_the_same():
    noisy = rows.shuffle(seed=2).derive(z=lambda x, rng: x + int(rng.integers(9)))
    pipeline = noisy.derive(w=lambda z: z * 2).filter((y > 1) & (z % 2 == 0)).batch(4)
    assert_same_stream(pipeline, workers=(2,))
    assert_same_stream(pipeline.filter(lambda x: x.sum() % 2 == 0), backends=("inline",))
