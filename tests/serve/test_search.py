"""Choices, their search and metrics: what they say holds."""

from __future__ import annotations

import pytest

import silva as sv
from silva.pipeline import Pipeline
from silva.plan.choice import choices_of, configurations, resolve
from silva.serve.search.sharing import Shared

X = sv.col("x")


def open_pipeline() -> sv.Pipeline:
    return (
        sv.requests("x")
        .derive(hit=sv.choice(X, X + 1, name="retriever"))
        .derive(
            answer=sv.choice(sv.col("hit") * 2, sv.col("hit") * 2 + 1, sv.col("hit"), name="reader")
        )
    )


def test_the_first_value_of_a_choice_is_taken() -> None:
    assert open_pipeline().ask(x=3) == {"x": 3, "hit": 3, "answer": 6}
    assert open_pipeline().run([{"x": 3}]) == [{"x": 3, "hit": 3, "answer": 6}]


def test_every_configuration_is_an_ordinary_pipeline() -> None:
    plan = open_pipeline().plan
    assert list(choices_of(plan)) == ["retriever", "reader"]
    answers = [Pipeline(resolve(plan, one)).ask(x=3)["answer"] for one in configurations(plan)]
    assert answers == [6, 7, 3, 8, 9, 4]
    with pytest.raises(sv.PlanError, match="no choice 'k'"):
        resolve(plan, {"k": 1})


def test_one_choice_in_two_places_is_one() -> None:
    model = sv.models.Recorded("none.json")
    most = sv.choice(3, 4)
    both = sv.requests("x").derive(
        a=model.generate("{x}", max_tokens=most), b=model.generate("also {x}", max_tokens=most)
    )
    assert len(configurations(both.plan)) == 2


def test_the_best_configuration_wins_for_a_share_of_the_work() -> None:
    dev = [{"x": n, "gold": 2 * n} for n in range(128)]
    tuned = open_pipeline().tune(dev, maximize=lambda answer, gold: answer == gold)
    assert tuned.front[0].configuration == {"retriever": 0, "reader": 0}
    assert tuned.best.ask(x=5)["answer"] == 10
    assert tuned.executions <= 0.6 * tuned.exhaustive


def test_equal_configurations_are_not_ranked() -> None:
    same = sv.requests("x").derive(y=sv.choice(X * 2, X + X, name="op"))
    tuned = same.tune([{"x": n} for n in range(64)], maximize=lambda x, y: y == 2 * x)
    assert len(tuned.front) + sum("slower" in str(c.why_not) for c in tuned.candidates) == 2
    assert not any("scores more" in str(c.why_not) for c in tuned.candidates)


def test_steps_that_configurations_share_run_once() -> None:
    plan = (
        sv.requests("x")
        .derive(hit=lambda x: x)
        .derive(y=sv.choice(sv.col("hit") + 1, sv.col("hit") + 2, sv.col("hit") + 3, name="op"))
        .plan
    )
    shared = Shared(plan, [{"x": n} for n in range(10)])
    for one in configurations(plan):
        shared.run(one, range(10))
    (first,) = (label for label in shared.ran if label.startswith("hit"))
    assert (shared.ran[first], shared.asked[first]) == (10, 30)
    assert sum(shared.ran.values()) == 40


def test_metrics_compare_as_people_do() -> None:
    row = {"a": "The  Rhine.", "g": ["rhine", "Rhein"], "h": [{"id": 1}, {"id": 2}], "ids": [2, 9]}
    assert sv.exact_match("a", "g")(row) == 1
    assert sv.f1("a", "g")({**row, "a": "in river Rhine"}) == pytest.approx(0.5)
    assert sv.recall_at(2, "h", "ids")(row) == 0.5
    with pytest.raises(sv.ColumnError, match="'gold'"):
        sv.f1("a", "gold")(row)
