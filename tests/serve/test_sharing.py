"""Configurations share what they compute alike, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

import silva as sv
from silva.plan.choice import configurations
from silva.serve.models.model import Answer, Model, Question
from silva.serve.search.tuning.sharing import Shared

X = sv.col("x")


def runs(plan: Any, rows: int = 10) -> Shared:
    shared = Shared(plan, [{"x": n} for n in range(rows)])
    for one in configurations(plan):
        shared.run(one, range(rows))
    return shared


def counts(shared: Shared) -> dict[str, int]:
    """The rows that steps ran on, by the column that they write."""
    found: dict[str, int] = {}
    for label, rows in shared.ran.items():
        column = label.partition(" = ")[0]
        found[column] = found.get(column, 0) + rows
    return found


def test_steps_that_configurations_share_run_once() -> None:
    ops = [sv.col("hit") + 1, sv.col("hit") + 2, sv.col("hit") + 3]
    plan = sv.requests("x").derive(hit=lambda x: x).derive(y=sv.choice(*ops)).plan
    shared = runs(plan)
    (first,) = (label for label in shared.ran if label.startswith("hit"))
    assert (shared.ran[first], shared.asked[first]) == (10, 30)
    assert sum(shared.ran.values()) == 40


def test_branches_that_do_not_read_each_other_share() -> None:
    a = sv.choice(*[X + n for n in range(1, 5)], name="a")
    b = sv.choice(*[X * n for n in range(2, 6)], name="b")
    plan = sv.requests("x").derive(a=a).derive(b=b).derive(c=sv.col("a") + sv.col("b")).plan
    found = counts(runs(plan))
    assert (found["a"], found["b"]) == (40, 40)
    assert found["c"] <= 160


def test_a_filter_and_a_selection_keep_branches_apart() -> None:
    a = sv.choice(X + 1, X + 2, name="a")
    kept = sv.requests("x").derive(a=a).filter(lambda x: x % 2 == 0).derive(b=lambda x: -x)
    found = counts(runs(kept.rename({"b": "c"}).derive(d=lambda c: c).select("a", "d").plan))
    assert (found["b"], found["d"]) == (5, 5)


def test_steps_that_see_equal_values_share() -> None:
    odd = sv.choice(lambda x: x, lambda x: x + x % 2, name="first")
    found = counts(runs(sv.requests("x").derive(hit=odd).derive(y=lambda hit: hit).plan))
    assert found["y"] == 10 + 5


def test_shared_answers_are_those_of_each_configuration_alone() -> None:
    a = sv.choice(lambda x: x + 1, lambda x: [x, x], lambda x: (x, x), lambda x: float(x), name="a")
    plan = sv.requests("x").derive(a=a).derive(b=lambda a: type(a).__name__).plan
    shared, rows = Shared(plan, [{"x": n} for n in range(6)]), range(6)
    for one in configurations(plan):
        alone = Shared(plan, shared.rows).run(one, rows).answers
        assert repr(shared.run(one, rows).answers) == repr(alone)


def test_random_steps_draw_the_same_alone_and_shared() -> None:
    def draw(x: int, rng: np.random.Generator) -> float:
        return float(rng.random())

    plan = sv.requests("x").derive(a=sv.choice(X, X + 1)).derive(b=draw, c=draw).plan
    rows = [{"x": n} for n in range(4)]
    shared = Shared(plan, rows)
    (first, second) = (shared.run(one, range(4)).answers for one in configurations(plan))
    assert [one["b"] for one in first if one] == [one["b"] for one in second if one]
    assert all(one is not None and one["b"] != one["c"] for one in first)
    asked = [sv.requests("x").derive(a=X).derive(b=draw, c=draw).ask(x=n)["b"] for n in range(4)]
    assert asked == [one["b"] for one in first if one]


def test_a_prompt_that_is_kept_is_no_execution() -> None:
    model = _Repeats()
    plan = sv.requests("x").derive(y=model.generate(sv.choice("{x}", "again {x}"))).plan
    assert counts(runs(plan)) == {"y": 20}
    assert counts(runs(plan)) == {"y": 0}


class _Repeats(Model):
    @property
    def identity(self) -> str:
        return "repeats"

    def open(self) -> _Run:
        return _Run()


class _Run:
    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        return [Answer(question.messages[-1].text) for question in questions]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        raise NotImplementedError

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        raise NotImplementedError

    def close(self) -> None: ...
