"""Requests in a program and offline: the same answers, however they arrive."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.conftest import Upstream

import silva as sv
from silva.serve.engine.curve import Curve
from silva.serve.engine.engine import Engine, Late

ROWS = [{"x": n % 7, "t": "ab" * (n % 3)} for n in range(60)]


def pipeline() -> sv.Pipeline:
    return (
        sv.requests("x", "t")
        .derive(y=lambda x: x * x, z=sv.col("x") + 1)
        .derive(drawn=lambda y, rng: y + int(rng.integers(1000)))
        .filter(lambda x: x != 3)
        .derive(n=sv.text("t").length())
        .derive(w=lambda y, z, n: y + z + n)
        .select("x", "drawn", "w")
    )


def outcomes(rows: list[dict[str, Any]], made: sv.Pipeline) -> list[Any]:
    async def every() -> list[Any]:
        engine = Engine(made.plan)
        try:
            found = await asyncio.gather(*(engine.answer(row, deadline=60) for row in rows))
        finally:
            engine.close()
        return [one.rows[0] if one.rows else None for one in found]

    return asyncio.run(every())


@given(st.permutations(range(len(ROWS))))
def test_answers_do_not_depend_on_arrival(order: list[int]) -> None:
    made = pipeline()
    offline = iter(made.run(ROWS, workers=0))
    expected = [None if row["x"] == 3 else next(offline) for row in ROWS]
    online = outcomes([ROWS[i] for i in order], made)
    assert online == [expected[i] for i in order]


def test_an_id_makes_equal_requests_draw_independently() -> None:
    drawn = sv.requests("id", "x").derive(r=lambda x, rng: float(rng.random()))
    first, again, other = (drawn.ask(id=i, x=1)["r"] for i in (1, 1, 2))
    assert first == again != other


def test_branches_that_do_not_depend_on_each_other_run_at_the_same_time() -> None:
    meet = threading.Barrier(2)

    def one(x):
        meet.wait(timeout=30)
        return x

    def two(x):
        meet.wait(timeout=30)
        return x

    both = sv.requests("x").derive(a=one, b=two).derive(c=sv.col("a") + sv.col("b"))
    assert both.ask(x=2)["c"] == 4


def test_a_filter_spares_the_steps_after_it() -> None:
    seen: list[int] = []

    def costly(x):
        seen.append(x)
        return x

    asked = sv.requests("x").derive(y=costly).filter(sv.col("x") > 1)
    assert asked.ask(x=1) is None
    assert asked.ask(x=2) == {"x": 2, "y": 2}
    assert seen == [2]


def test_requests_share_batches_of_a_model(upstream: Upstream) -> None:
    asked = sv.requests("t").derive(v=upstream.model(concurrency=1).embed("t"))

    async def every() -> None:
        await asyncio.gather(*(asked.ask_async(t=f"text {n}") for n in range(40)))

    asyncio.run(every())
    assert sum(len(call["input"]) for call in upstream.calls) == 40
    assert len(upstream.calls) < 20


def test_a_deadline_names_what_the_request_waits_for(upstream: Upstream) -> None:
    upstream.script = [1.5]
    asked = sv.requests("q").derive(answer=upstream.model().generate("{q}"))
    with pytest.raises(Late, match="answer = "):
        asked.ask(q="a", deadline=0.2)


def test_one_bad_request_fails_alone() -> None:
    def half(x):
        return 10 / x

    asked = sv.requests("x").derive(y=half)

    async def every() -> list[Any]:
        asks = (asked.ask_async(x=n) for n in (1, 0, 2))
        return await asyncio.gather(*asks, return_exceptions=True)

    good, bad, also = asyncio.run(every())
    assert (good["y"], also["y"]) == (10, 5)
    assert isinstance(bad, sv.RowError)
    assert "ZeroDivisionError" in str(bad)


@pytest.mark.parametrize(
    "verb",
    [
        lambda p: p.shuffle(),
        lambda p: p.take(1),
        lambda p: p.batch(2),
        lambda p: p.sample(weights="x"),
        lambda p: p.pack("x", 4),
        lambda p: sv.mix({p: 1.0, sv.requests("x"): 1.0}),
    ],
)
def test_what_is_for_training_is_refused(verb: Any) -> None:
    with pytest.raises(sv.PlanError):
        verb(sv.requests("x")).ask(x=1)


def test_exploded_requests_give_lists() -> None:
    listed = sv.requests("x").derive(y=lambda x: list(range(x)))
    parts = listed.explode("y").filter(lambda y: y != 1)
    assert parts.ask(x=3) == [{"x": 3, "y": 0}, {"x": 3, "y": 2}]
    assert parts.run([{"x": 3}]) == [{"x": 3, "y": 0}, {"x": 3, "y": 2}]


def test_joins_are_the_same_online() -> None:
    prices = {"item": ["tea", "jam"], "price": [3.5, 2.0]}
    asked = sv.requests("item").join(prices, on="item")
    assert asked.ask(item="jam") == {"item": "jam", "price": 2.0}
    assert asked.run([{"item": "oil"}]) == [asked.ask(item="oil")]


def test_arrays_and_types_are_those_of_the_row() -> None:
    asked = sv.requests("x").derive(v=lambda x: np.arange(x))

    async def every() -> list[Any]:
        return await asyncio.gather(*(asked.ask_async(x=n) for n in (1, 3, 2)))

    assert [row["v"].tolist() for row in asyncio.run(every())] == [[0], [0, 1, 2], [0, 1]]


@given(st.floats(1e-4, 1.0), st.floats(1e-6, 0.1), st.integers(1, 200))
def test_a_batch_fits_the_time_that_there_is(call: float, row: float, waiting: int) -> None:
    curve = Curve()
    for rows in (1, 2, 4, 8, 16, 32, 64, 128):
        curve.add(rows, call + row * rows)
    seconds = 2 * call
    count = curve.most_rows(seconds, waiting)
    assert 1 <= count <= waiting
    assert count == 1 or call + row * count <= seconds * 1.01
