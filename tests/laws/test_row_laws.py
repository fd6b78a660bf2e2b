"""The laws of rows, on random pipelines: filters go before renames, into concats and before
explodes; columns that are dropped after batch are not computed; functions run once where they can.
The stream, the states after each batch and the rows that fail are those of the plan as written."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import silva as sv
from silva.rewrite.runner import optimize
from silva.testing import digest, replanned

PARTS = "parts"
VERBS = ["derive", "derive", "derive twice", "rename", "rename", "filter", "filter", "select"]


def scaled(value: Any) -> int:
    return len(str(value)) * 7 % 5


def picky(value: Any) -> int:
    if str(value).endswith("3"):
        raise ValueError(value)
    return len(str(value))


def even(value: Any) -> bool:
    return len(str(value)) % 2 == 0


def drawn(value: Any) -> bool:
    """Draws from the global generator, which silva finds out while it runs."""
    return bool(np.random.random() < 0.7)


@st.composite
def sources(draw) -> sv.Pipeline:
    count = draw(st.integers(0, 80))
    numbers = st.lists(st.integers(-40, 40), min_size=count, max_size=count)
    words = st.lists(st.sampled_from(["a", "bb", "c3"]), min_size=count, max_size=count)
    parts = [list(range(i % 4)) for i in range(count)]
    return sv.from_columns({"x": draw(numbers), "y": draw(words), PARTS: parts})


Verb = tuple[str, int, Any, Any]
"""A verb, the place of the column that it uses, a function that derives and one that filters."""


def verbs(fails: bool) -> st.SearchStrategy[list[Verb]]:
    derives = st.sampled_from([scaled, picky] if fails else [scaled])
    filters = st.sampled_from([even, drawn])
    return st.lists(
        st.tuples(st.sampled_from(VERBS), st.integers(0, 9), derives, filters), max_size=5
    )


def extended(pipeline: sv.Pipeline, steps: list[Verb], mark: str) -> sv.Pipeline:
    """The pipeline with some more verbs, which call what they make after `mark`."""
    for number, (verb, place, derives, filters) in enumerate(steps):
        there = [name for name in pipeline.columns if name != PARTS]
        name, made = there[place % len(there)], f"{mark}{number}"
        if verb == "rename":
            pipeline = pipeline.rename(**{name: made})
        elif verb == "filter":
            pipeline = pipeline.filter(filters, reads=[name])
        elif verb == "select":
            pipeline = pipeline.select(name, *(n for n in pipeline.columns if n != name))
        else:
            pipeline = pipeline.derive(derives, into=made, reads=[name])
            if verb == "derive twice":
                pipeline = pipeline.derive(derives, into=f"{made}_", reads=[name])
    return pipeline


@st.composite
def pipelines(draw, fails: bool) -> sv.Pipeline:
    first = draw(verbs(fails))
    branches = [extended(draw(sources()), first, "a") for _ in range(draw(st.integers(1, 2)))]
    pipeline = sv.concat(branches) if len(branches) > 1 else branches[0]
    pipeline = extended(pipeline, draw(verbs(fails)), "b")
    if draw(st.integers(0, 2 * len(branches))) == 0:
        pipeline = extended(pipeline.explode(PARTS), draw(verbs(fails)), "c")
    kept = draw(st.lists(st.sampled_from(pipeline.columns), min_size=1, unique=True))
    size = draw(st.integers(1, 7))
    if draw(st.booleans()):
        return pipeline.select(*kept).batch(size)
    return pipeline.batch(size).select(*kept)


def told(loader: sv.Loader) -> list[Any]:
    """Each batch with the state after it, and the rows that failed."""
    found: list[Any] = [(digest(batch), json.dumps(loader.state_dict())) for batch in loader]
    return [*found, [(failure.key, failure.step) for failure in loader.failures]]


@given(pipelines(fails=False), st.integers(0, 99))
@settings(max_examples=60)
def test_the_stream_and_the_states_are_those_of_the_plan_as_written(pipeline, seed):
    expected = told(pipeline.options(optimize=False).loader(backend="inline"))
    assert told(pipeline.loader(backend="inline")) == expected
    assert told(replanned(pipeline.loader(backend="inline"), seed)) == expected


@given(pipelines(fails=True))
@settings(max_examples=40)
def test_failures_are_counted_as_in_the_plan_as_written(pipeline):
    """A step that nobody reads is not run, so plans are compared with one that drops the same."""
    disabled = [name for name in used(pipeline) if name != "drop_unread"]
    expected = told(pipeline.options(disable=disabled).loader(backend="inline", on_error=sv.Skip()))
    found = told(pipeline.loader(backend="inline", on_error=sv.Skip()))
    assert [batch[0] for batch in found[:-1]] == [batch[0] for batch in expected[:-1]]
    assert found[-1] == expected[-1]


def used(pipeline: sv.Pipeline) -> list[str]:
    return [o.rule.name for o in optimize(pipeline.plan)[1] if o.applied]


def test_the_pipelines_above_use_the_rules_of_filters():
    """So that the tests before this one mean something."""
    found: Counter[str] = Counter()

    @given(pipelines(fails=False))
    @settings(max_examples=600)
    def count(pipeline: sv.Pipeline) -> None:
        found.update(used(pipeline))

    count()
    assert {
        "drop_unread",
        "filter_early",
        "filter_before_rename",
        "filter_into_concat",
        "filter_before_explode",
    } <= set(found)
