"""Equal questions in flight are asked once, and each request has an answer of its own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.engine_tools import answers, opened, turns

import silva as sv
from silva.serve.engine.engine import Late
from silva.serve.engine.same import key_of
from silva.serve.tenant import Tenant


class Gated:
    """A function that counts its calls, and returns from none before it is told to."""

    def __init__(self, make: Any = lambda x: [x]) -> None:
        self.calls: list[Any] = []
        self.open = threading.Event()
        self._make = make

    def __call__(self, x):
        self.calls.append(x)
        self.open.wait(timeout=60)
        return self._make(x)


async def gated(engine: Any, gate: Gated, rows: list[dict[str, Any]]) -> list[Any]:
    """The answers to requests that are all in flight before any of them is answered."""
    every = asyncio.ensure_future(answers(engine, rows))
    await turns()
    gate.open.set()
    return await every


def test_d_duplicates_are_exactly_d_fewer_calls() -> None:
    gate = Gated()
    rows = [{"x": n % 40, "who": n} for n in range(400)]
    random.Random(1).shuffle(rows)
    with opened(sv.requests("x", "who").derive(y=gate)) as engine:
        found = asyncio.run(gated(engine, gate, rows))
        assert engine.stations[0].shared == 360
    assert [one.rows for one in found] == [[{**row, "y": [row["x"]]}] for row in rows]
    assert Counter(gate.calls) == dict.fromkeys(range(40), 1)


def test_no_two_requests_have_the_same_list() -> None:
    gate = Gated()
    with opened(sv.requests("x").derive(y=gate)) as engine:
        found = asyncio.run(gated(engine, gate, [{"x": 1}] * 5))
    assert len({id(one.rows[0]["y"]) for one in found}) == 5
    assert len(gate.calls) == 1


@pytest.mark.parametrize(
    "mark",
    [
        sv.impure,
        lambda gate: lambda x, rng: (gate(x), int(rng.integers(1 << 30))),
        lambda gate: lambda x: (gate(x), random.random()),
    ],
)
def test_what_is_random_or_has_side_effects_is_asked_by_each(mark: Any) -> None:
    gate = Gated()
    asked = sv.requests("id", "x").derive(y=mark(gate), reads=None)
    rows = [{"id": n, "x": 1} for n in range(6)]
    with opened(asked) as engine:
        found = asyncio.run(gated(engine, gate, rows))
        assert engine.stations[0].shared == 0
    assert repr([one.rows[0] for one in found]) == repr(asked.run(rows, workers=0))


def test_objects_that_cannot_be_copied_are_made_for_each() -> None:
    class Own:
        pass

    gate = Gated(lambda x: Own())
    with opened(sv.requests("x").derive(y=gate)) as engine:
        found = asyncio.run(gated(engine, gate, [{"x": 1}] * 4))
    assert len({id(one.rows[0]["y"]) for one in found}) == 4


def test_equal_requests_fail_alike_under_keys_of_their_own() -> None:
    gate = Gated(lambda x: 1 / x)
    asked = sv.requests("id", "x").derive(y=gate)
    rows = [{"id": n, "x": 0} for n in range(4)]
    with opened(asked) as engine:
        found = asyncio.run(gated(engine, gate, rows))
    assert gate.calls == [0, 0]  # what fails on a block is done again, row by row
    keys = [one.failures[0].key for one in found]
    for row, key in zip(rows, keys, strict=True):
        with pytest.raises(sv.RowError) as told:
            asked.ask(**row)
        assert told.value.key == key


def test_who_follows_is_answered_though_the_first_one_hangs_up() -> None:
    gate = Gated()

    async def every(engine: Any) -> Any:
        first, second = (
            asyncio.ensure_future(engine.answer({"x": 1, "who": n}, deadline=60)) for n in range(2)
        )
        await turns()
        first.cancel()
        await turns()
        gate.open.set()
        return await second

    with opened(sv.requests("x", "who").derive(y=gate)) as engine:
        assert asyncio.run(every(engine)).rows == [{"x": 1, "who": 1, "y": [1]}]
    assert gate.calls == [1]


def test_a_call_that_was_given_up_is_not_followed() -> None:
    gate = Gated()

    async def every(engine: Any) -> Any:
        (late,) = await answers(engine, [{"x": 1}], deadline=0.1)
        assert isinstance(late, Late)
        again = asyncio.ensure_future(engine.answer({"x": 1}, deadline=60))
        await turns()
        gate.open.set()
        return await again

    with opened(sv.requests("x").derive(y=gate)) as engine:
        assert asyncio.run(every(engine)).rows == [{"x": 1, "y": [1]}]
    assert gate.calls == [1, 1]


def test_tenants_share_no_calls() -> None:
    gate = Gated()
    tenants = [Tenant("a"), Tenant("b")]

    async def every(engine: Any) -> None:
        asked = [engine.answer({"x": 1}, deadline=60, tenant=one) for one in tenants * 3]
        running = asyncio.gather(*asked)
        await turns()
        gate.open.set()
        await running

    with opened(sv.requests("x").derive(y=gate)) as engine:
        asyncio.run(every(engine))
    assert gate.calls == [1, 1]


def test_equal_searches_run_once(tmp_path: Path) -> None:
    passages = sv.from_columns({"text": ["a red fox", "a hen", "a dog"]})
    index = passages.to_index(tmp_path / "idx", keyword="text", workers=0)
    rows = [{"q": q} for q in ["red fox", "hen"] * 20]
    asked = sv.requests("q").derive(hits=index.search("q"))
    with opened(asked) as engine:
        found = asyncio.run(answers(engine, rows))
        assert engine.stations[0].rows == 2
        assert engine.stations[0].shared == 38
    assert [one.rows[0] for one in found] == asked.run(rows, workers=0)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 1) | st.text("ab", max_size=2)
    | st.binary(max_size=1) | st.sampled_from([np.arange(2), np.arange(2.0), np.float32(1), -0.0]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner)
    | st.tuples(inner),
    max_leaves=4,
)  # fmt: skip


@given(plain, plain)
def test_values_are_the_same_only_if_no_function_can_tell_them_apart(a: Any, b: Any) -> None:
    if key_of(a) == key_of(b):
        assert repr(a) == repr(b)
        assert type(a) is type(b)
