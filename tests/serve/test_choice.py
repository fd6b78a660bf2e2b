"""Choices: parameters, operands and steps that a plan leaves open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def every(pipeline: sv.Pipeline, column: str, **row: object) -> dict[tuple[object, ...], object]:
    """What each configuration gives for a row, by the values of the choices; None where a filter
    drops it."""
    found = {}
    for one in configurations(pipeline.plan):
        answer = Pipeline(resolve(pipeline.plan, one)).ask(**row)
        found[tuple(one.values())] = None if answer is None else answer[column]
    return found


def test_methods_of_built_in_columns_take_choices() -> None:
    size = sv.requests("b").derive(y=sv.image("b").resize(sv.choice(4, 8)).flip())
    photo = np.zeros((6, 6, 3), np.uint8)
    shapes = {k: np.shape(v) for k, v in every(size, "y", b=photo).items()}
    assert shapes == {(4,): (4, 4, 3), (8,): (8, 8, 3)}
    words = sv.text("s").split(sv.choice(None, "-")).length()
    assert every(sv.requests("s").derive(y=words), "y", s="a b-c") == {(None,): 2, ("-",): 2}
    either = sv.choice(sv.text("s").lower(), sv.text("s").upper(), name="case").strip()
    assert every(sv.requests("s").derive(y=either), "y", s=" a") == {(0,): "a", (1,): "A"}
    number = sv.num(sv.choice("x", "z")).clip(low=sv.choice(0, 5))
    clip = sv.requests("x", "z").derive(y=number)
    assert every(clip, "y", x=3, z=7) == {("x", 0): 3, ("x", 5): 5, ("z", 0): 7, ("z", 5): 7}


def test_explain_names_the_parameter_of_a_method_and_the_value_taken() -> None:
    open_one = sv.requests("s").derive(y=sv.text("s").replace(sv.choice("a", "b"), "-").length())
    told = str(open_one.over([{"s": "ab"}]).explain())
    assert "choice old: the first of 2 values is taken, `'a'`; tune() finds the best" in told
    assert "(s.replace(old='a', new='-', regex=False) with old=choice('a', 'b')).length()" in repr(
        open_one
    )


def test_choices_stand_within_lists_and_beside_each_other() -> None:
    kept = sv.requests("x").filter(X.is_in([1, sv.choice(2, 3, name="other")]))
    assert every(kept, "x", x=3) == {(2,): None, (3,): 3}
    least = sv.requests("x").filter(sv.num("x").clip(high=sv.choice(1, 9)) > sv.choice(2, 3))
    assert every(least, "x", x=3) == {(1, 2): None, (1, 3): None, (9, 2): 3, (9, 3): None}
    both = sv.choice(1, 2)
    same = sv.requests("x").derive(y=sv.num("x").clip(both, both))
    assert every(same, "y", x=5) == {(1,): 1, (2,): 2}


def test_cascades_and_loops_take_choices_in_all_of_their_arguments() -> None:
    small, large = sv.num("x").clip(high=sv.choice(1, 2)), X * sv.choice(10, 20, name="factor")
    answer = sv.cascade(small, large, accept=X, threshold=sv.choice(2, 5))
    found = every(sv.requests("x").derive(y=answer), "y", x=3)
    assert found == {
        (1, 10, 2): 1, (1, 10, 5): 30, (1, 20, 2): 1, (1, 20, 5): 60,
        (2, 10, 2): 2, (2, 10, 5): 30, (2, 20, 2): 2, (2, 20, 5): 60,
    }  # fmt: skip
    turn = sv.requests("x").derive(x=X // sv.choice(2, 3, name="by"))
    turns = sv.loop(turn, until=sv.choice(2, 1, name="end") > X, at_most=sv.choice(9, 2))
    lengths = every(sv.requests("x").derive(y=turns).derive(y=lambda y: len(y)), "y", x=9)
    assert lengths == {
        (2, 2, 9): 3, (2, 2, 2): 2, (2, 1, 9): 4, (2, 1, 2): 2,
        (3, 2, 9): 2, (3, 2, 2): 2, (3, 1, 9): 3, (3, 1, 2): 2,
    }  # fmt: skip


def test_the_condition_of_a_search_takes_choices(tmp_path: Path) -> None:
    passages = sv.from_columns({"year": [1969, 1971], "text": ["A red fox.", "A red hen."]})
    index = passages.to_index(tmp_path / "index", keyword="text", workers=0)
    hits = index.search("q", where=sv.col("year") > sv.choice(1960, 1970, name="since"))
    counts = sv.requests("q").derive(y=hits).derive(y=lambda y: len(y))
    assert every(counts, "y", q="red") == {(1960,): 2, (1970,): 1}


def test_verbs_that_take_no_choice_say_so() -> None:
    rows = sv.from_columns({"x": [1]})
    refused = [
        (
            lambda: rows.shuffle(window=sv.choice(1, 2)),
            r"shuffle\(window=…\) takes no choice\(1, 2\)",
        ),
        (lambda: rows.batch(sv.choice(1, 2)), r"batch\(…\) takes no choice"),
        (lambda: rows.map_rows(sv.choice(len, abs)), r"map_rows\(…\) takes no choice"),
        (lambda: rows.select(sv.choice("x", "y")), r"select\(…\) takes no choice"),
        (lambda: sv.text("x").split(by=sv.choice(1, 2)), "split has no argument 'by'"),
        (lambda: rows.evaluate([{"x": 1}], X * sv.choice(1, 2)), "leaves nothing open"),
    ]
    for attempt, message in refused:
        with pytest.raises(sv.PlanError, match=message):
            attempt()
