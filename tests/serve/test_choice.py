"""Choices: parameters, operands and steps that a plan leaves open."""

from __future__ import annotations

import pytest

import silva as sv
from silva.pipeline import Pipeline
from silva.plan.choice import choices_of, configurations, resolve

X = sv.col("x")


def open_pipeline() -> sv.Pipeline:
    return (
        sv.requests("x")
        .derive(hit=sv.choice(X, X + 1, name="retriever"))
        .derive(
            answer=sv.choice(sv.col("hit") * 2, sv.col("hit") * 2 + 1, sv.col("hit"), name="reader")
        )
    )


def answers(pipeline: sv.Pipeline, x: int) -> list[object]:
    """What each configuration answers."""
    every = [resolve(pipeline.plan, one) for one in configurations(pipeline.plan)]
    return [Pipeline(plan).ask(x=x)["y"] for plan in every]


def test_the_first_value_of_a_choice_is_taken() -> None:
    assert open_pipeline().ask(x=3) == {"x": 3, "hit": 3, "answer": 6}
    assert open_pipeline().run([{"x": 3}]) == [{"x": 3, "hit": 3, "answer": 6}]


def test_explain_says_that_the_first_value_is_taken() -> None:
    told = str(open_pipeline().over([{"x": 1}]).explain())
    assert "choice retriever: the first of 2 values is taken, `x`; tune() finds the best" in told
    assert "choice reader: the first of 3 values is taken, `hit * 2`" in told
    assert "choice(hit * 2, (hit * 2) + 1, hit)" in repr(open_pipeline())


def test_every_configuration_is_an_ordinary_pipeline() -> None:
    plan = open_pipeline().plan
    assert list(choices_of(plan)) == ["retriever", "reader"]
    found = [Pipeline(resolve(plan, one)).ask(x=3)["answer"] for one in configurations(plan)]
    assert found == [6, 7, 3, 8, 9, 4]
    with pytest.raises(sv.PlanError, match="no choice 'k'"):
        resolve(plan, {"k": 1})
    with pytest.raises(sv.PlanError, match="is one of"):
        resolve(plan, {"reader": 3})


def test_one_choice_in_two_places_is_one() -> None:
    model = sv.models.Recorded("none.json")
    most = sv.choice(3, 4)
    both = sv.requests("x").derive(
        a=model.generate("{x}", max_tokens=most), b=model.generate("also {x}", max_tokens=most)
    )
    assert len(configurations(both.plan)) == 2


def test_a_choice_may_be_an_operand() -> None:
    assert answers(sv.requests("x").derive(y=X + sv.choice(1, 3)), 2) == [3, 5]
    assert answers(sv.requests("x").derive(y=sv.choice(1, 3, name="less") - X), 2) == [-1, 1]
    assert answers(sv.requests("x").derive(y=(sv.choice(1, 3) < X) | (X == 0)), 2) == [True, False]
    with pytest.raises(sv.PlanError, match="None is null"):
        X + sv.choice(None, 1)


def test_a_choice_may_be_a_whole_step() -> None:
    assert answers(sv.requests("x").derive(y=sv.choice(lambda x: -x, lambda x: 2 * x)), 2) == [
        -2,
        4,
    ]
    kept = sv.requests("x").filter(sv.choice(lambda x: x > 1, lambda x: x > 3, name="least"))
    found = [Pipeline(resolve(kept.plan, one)).ask(x=2) for one in configurations(kept.plan)]
    assert found == [{"x": 2}, None]
    with pytest.raises(sv.PlanError, match="reads 'z'"):
        sv.requests("x").derive(y=sv.choice(lambda x: x, lambda z: z))


def test_values_that_compare_equal_are_different_values() -> None:
    y = sv.choice(0, 0.0, False, name="zero")
    found = answers(sv.requests("x").derive(y=y), 2)
    assert [type(one) for one in found] == [int, float, bool]
    model = sv.models.Recorded("none.json")
    warm = sv.requests("x").derive(y=model.generate("{x}", top_p=sv.choice(1, 1.0, 0.5)))
    assert len(configurations(warm.plan)) == 3
    with pytest.raises(sv.PlanError, match="are the same"):
        sv.choice(1, 2, 1)


def test_reranking_may_be_left_out() -> None:
    hits = [{"id": n, "score": float(-n), "text": "a" * n} for n in (1, 2, 3)]

    def length(question: str, text: str) -> float:
        return len(text)

    either = sv.rerank("q", "hits", by=sv.choice(None, length), keep=2)
    rows = sv.requests("q", "hits").derive(y=either)
    found = [resolve(rows.plan, one) for one in configurations(rows.plan)]
    ids = [[hit["id"] for hit in Pipeline(one).ask(q="a", hits=hits)["y"]] for one in found]
    assert ids == [[1, 2], [3, 2]]
