"""What is constantly true goes, as long as nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.plan.expr import Literal
from silva.plan.show import show_plan
from silva.rewrite.rules.fold_constants import apply
from silva.testing import assert_same_stream

rows = sv.from_columns({"x": np.arange(20, dtype=np.uint8), "n": [None, 1, 2, 3] * 5})
x, n = sv.col("x"), sv.col("n")
one, two, yes, no = (sv.Expr(Literal(value)) for value in (1, 2, True, False))


def lines(pipeline: sv.Pipeline) -> list[str]:
    return show_plan(apply(pipeline.plan).plan).splitlines()[::-1][1:]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ((x > 3) & True, ["filter x > 3"]),
        (True & (x > 3), ["filter x > 3"]),
        ((x > 3) | False, ["filter x > 3"]),
        ((x > 3) ^ (two < one), ["filter x > 3"]),
        (~~(n > 1), ["filter n > 1"]),
        ((x > 3) & ((one + one) * 3 < 7), ["filter x > 3"]),
        (one < two, []),
        (yes, []),
        (yes & (one < two), []),
    ],
)
def test_what_is_known_beforehand_is_not_asked(condition: sv.Expr, shown: list[str]):
    pipeline = rows.filter(condition)
    assert lines(pipeline) == shown
    assert_same_stream(pipeline.batch(3), backends=("inline",), fresh_process=False)


@pytest.mark.parametrize(
    "condition",
    [
        (x > 3) & False,  # rows may be null, or fail
        (x > 3) | True,
        x & True,  # bool of what was uint8
        ~~x,
        n & True,
        no,
        one,
        (one // 0) == 1,
    ],
)
def test_it_must_not_fire_in_a_filter(condition: sv.Expr):
    pipeline = rows.filter(condition)
    assert apply(pipeline.plan).plan == pipeline.plan


@pytest.mark.parametrize("value", [one + two, x + one * two, x * (one < two), one < two])
def test_it_must_not_fire_where_a_type_could_change(value: sv.Expr):
    pipeline = rows.derive(y=value).derive(z=x + sv.col("y"))
    assert apply(pipeline.plan).plan == pipeline.plan
    assert_same_stream(pipeline.batch(3), backends=("inline",), fresh_process=False)


def test_predicates_in_columns_keep_their_nulls():
    pipeline = rows.derive(y=(n > 1) & True, z=~~(x > 3)).batch(6)
    assert lines(pipeline)[:2] == ["derive y = n > 1", "derive z = x > 3"]
    assert_same_stream(pipeline, backends=("inline",), fresh_process=False)
