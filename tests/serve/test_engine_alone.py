"""A request is answered as if it were the only one, whatever else is in its batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serve.engine_tools import answers, opened, wait

import silva as sv
from silva.serve.engine.engine import Outcome

NAMES = ("a", "b", "c", "d")


def step(number: int, seconds: float, fails: int) -> Callable[..., Any]:
    """A function of columns that is slow, and fails on some values of them."""

    def made(*values: Any) -> Any:
        wait(seconds)
        found = hash((number, *values)) % 11
        if found == fails:
            raise ValueError(f"step {number} on {values}")
        return found

    return made


DRAWS = (
    lambda a, rng: a + int(rng.integers(5)),
    lambda b, rng: b + int(rng.integers(5)),
)


reads = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple)
slow = st.sampled_from([0.0, 0.0, 0.001, 0.003])
verbs = st.tuples(
    st.sampled_from(["derive", "derive", "derive", "filter", "expression", "random"]),
    reads,
    st.sampled_from(NAMES),
    slow,
    st.integers(0, 30),
)


def pipeline(drawn: list[Any], explodes: int | None) -> sv.Pipeline:
    made = sv.requests("id", *NAMES)
    for number, (verb, names, into, seconds, fails) in enumerate(drawn):
        fn = step(number, seconds, fails)
        if number == explodes:
            made = made.derive(part=lambda a: list(range(a % 4))).explode("part")
        if verb == "derive":
            made = made.derive(fn, into=(into,), reads=names)
        elif verb == "filter":
            made = made.filter(fn, reads=names)
        elif verb == "expression":
            made = made.derive(**{into: sv.col(names[0]) * 3 + sv.col(into)})
        else:
            made = made.derive(**{into: DRAWS[number % 2]})
    return made


def alone(made: sv.Pipeline, row: dict[str, Any], policy: Any) -> Any:
    try:
        return made.run([row], workers=0, backend="inline", on_error=policy)
    except sv.RowError as error:
        return error.step, str(error.__cause__)


def shown(outcome: Any, policy: Any) -> Any:
    assert isinstance(outcome, Outcome), outcome
    if outcome.failures and policy == "raise":
        first = outcome.failures[0]
        return first.step, str(first.cause)
    return outcome.rows


def check(
    made: sv.Pipeline, rows: list[dict[str, Any]], most: int | None, policy: Any, *, parts: bool
) -> None:
    expected = [alone(made, row, policy) for row in rows]

    async def twice(engine: Any) -> list[Any]:
        await answers(engine, rows[:8])  # what it learns changes its batches, threads and sharing
        return await answers(engine, rows)

    with opened(made, on_error=policy, most_rows=most) as engine:
        found = [shown(one, policy) for one in asyncio.run(twice(engine))]
    if parts:  # of several rows that fail, the stream names the first row, and a request the step
        found, expected = (
            ["failed" if isinstance(one, tuple) else one for one in ends]
            for ends in (found, expected)
        )
    assert found == expected


@st.composite
def cases(draw: st.DrawFn, most_steps: int, most_rows: int) -> Any:
    steps = draw(st.lists(verbs, min_size=1, max_size=most_steps))
    explodes = draw(st.none() | st.integers(0, most_steps))
    values = draw(st.lists(st.integers(0, 5), min_size=1, max_size=most_rows))
    draws = st.integers(0, 2)
    rows = [{"id": n, "a": v, "b": v % 3, "c": draw(draws), "d": 1} for n, v in enumerate(values)]
    most = draw(st.sampled_from([None, 1, 2, 5]))
    policy = draw(st.sampled_from(["raise", sv.Substitute(7)]))
    return pipeline(steps, explodes), rows, most, policy, explodes is not None


quiet = pytest.mark.filterwarnings("ignore:the epoch has no rows")


@quiet
@given(cases(5, 6))
@settings(max_examples=12)
def test_a_request_ends_as_if_it_were_alone(case: Any) -> None:
    made, rows, most, policy, parts = case
    check(made, rows, most, policy, parts=parts)


@quiet
@pytest.mark.rest
@given(cases(9, 24))
@settings(max_examples=150)
def test_a_request_ends_as_if_it_were_alone_in_longer_pipelines(case: Any) -> None:
    made, rows, most, policy, parts = case
    check(made, rows, most, policy, parts=parts)
