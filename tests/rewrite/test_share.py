"""Common expressions are computed once, into a column that nobody sees."""

from __future__ import annotations

import numpy as np
import pytest

import silva as sv
from silva.plan.schema import columns
from silva.plan.show import show_plan
from silva.rewrite.rules.share import apply
from silva.rewrite.runner import optimize
from silva.testing import assert_same_stream

LINES = ["a b c", "", "forest green", " a  a ", "one two three four", "x"] * 4
rows = sv.from_columns({"line": LINES, "n": range(24), "u": np.arange(24, dtype=np.uint8)})
words = sv.text("line").split()


def lines(pipeline: sv.Pipeline) -> list[str]:
    return show_plan(apply(pipeline.plan).plan).splitlines()[::-1][1:]


def test_a_filter_and_a_column_split_the_text_once():
    pipeline = rows.filter(words.length() > 1).derive(ids=words.hash(50).truncate(2))
    assert lines(pipeline) == [
        "derive shared_1 = line.split()",
        "filter shared_1.length() > 1",
        "derive ids = shared_1.hash(buckets=50, seed=0).truncate(n=2, side='right')",
        "select line, n, u, ids",
    ]
    assert columns(apply(pipeline.plan).plan) == columns(pipeline.plan)
    assert_same_stream(pipeline.batch(5), backends=("inline", "threads"), fresh_process=False)


def test_the_largest_expression_is_shared_and_its_parts_with_it():
    hashed = words.hash(9)
    pipeline = rows.derive(a=hashed.truncate(1), b=hashed.length(), c=words.length())
    assert lines(pipeline)[:3] == [
        "derive shared_2 = line.split()",
        "derive shared_1 = shared_2.hash(buckets=9, seed=0)",
        "derive a = shared_1.truncate(n=1, side='right')",
    ]
    assert_same_stream(pipeline.batch(5), backends=("inline",), fresh_process=False)


def test_within_one_expression_too():
    pipeline = rows.derive(a=words.length() + words.length())
    assert lines(pipeline)[0] == "derive shared_1 = line.split().length()"


def test_vocabularies_that_are_equal_are_one():
    pipeline = rows.derive(a=words.to_ids({"a": 1}, 0).truncate(1), b=words.to_ids({"a": 1}, 0))
    assert lines(pipeline)[0].startswith("derive shared_1 = line.split().to_ids(")
    pipeline = rows.derive(a=words.to_ids({"a": 1}, 0).truncate(1), b=words.to_ids({"a": 2}, 0))
    assert lines(pipeline)[0] == "derive shared_1 = line.split()"


def test_no_name_is_taken():
    pipeline = rows.rename(n="shared_1").derive(a=words.length(), b=words.hash(3))
    assert lines(pipeline)[1] == "derive shared_2 = line.split()"


clip = sv.num("u").clip
image = sv.image("line")


@pytest.mark.parametrize(
    "pipeline",
    [
        rows.derive(a=sv.col("n") + 1, b=sv.col("n") + 1),  # costs less than a column
        rows.derive(a=words.length()).derive(line=lambda n: str(n)).derive(b=words.length()),
        rows.derive(a=image.random_flip(), b=image.random_flip()),
        rows.derive(a=clip(0, 5), b=clip(0.0, 5.0)),  # equal to Python, but of two types
        rows.derive(a=clip(0, 5) + 1, b=words.length(), c=clip(0, 6) + 1),
        rows.derive(a=words.length()).shuffle(seed=1).derive(b=words.length()),
        rows.derive(
            a=image.decode(shrink=True).resize(4, 4, "area"), b=image.decode(shrink=True).flip()
        ),
        rows.batch(4).derive(a=words.length(), b=words.length()),
    ],
)
def test_it_must_not_fire(pipeline: sv.Pipeline):
    assert apply(pipeline.plan).plan == pipeline.plan


def test_a_scene_is_not_shared():
    scene = sv.image("line", boxes="n").decode()
    pipeline = rows.derive(scene.flip(), into=("a", "b")).derive(
        scene.resize(4, 4), into=("c", "d")
    )
    assert apply(pipeline.plan).plan == pipeline.plan


def test_a_row_that_fails_is_skipped_as_before():
    to_ids = words.to_ids({"a": 1, "b": 2})
    pipeline = rows.derive(a=to_ids.truncate(1)).derive(b=to_ids.length()).batch(2)
    outcomes = optimize(pipeline.plan)[1]
    assert [outcome.rule.name for outcome in outcomes] == ["share"]
    assert_same_stream(pipeline, backends=("inline",), fresh_process=False, on_error=sv.Skip())


def test_it_is_left_out_where_bad_rows_are_substituted():
    pipeline = rows.derive(a=words.length(), b=words.hash(9))
    assert optimize(pipeline.plan, substitutes=True)[0] == pipeline.plan
