"""Deadlines, hang-ups and objectives: what nobody awaits is not done, and batches leave time."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from tests.serve.engine_tools import answers, opened, turns

import silva as sv
from silva.serve.deadline import limit
from silva.serve.engine.engine import Engine, Late


def learn(engine: Engine, column: str, row: float) -> None:
    """Lets a step of an engine take so many seconds per row, as far as it knows."""
    (found,) = (one for one in engine.stations if one.unit.step.writes == (column,))
    for rows in (1, 64):
        found.curve.add(rows, row * rows)
    found.batches = 2


def test_a_batch_leaves_time_for_the_longest_path_after_it() -> None:
    sizes: list[int] = []

    @sv.batched
    def first(x):
        sizes.append(len(x))
        return x

    asked = sv.requests("x").derive(a=first)
    asked = asked.derive(b=lambda a: a + 1, c=lambda a: a + 2).derive(d=lambda b, c: b + c)
    with opened(asked, slo=1.0, clock=lambda: 0.0) as engine:
        for column, row in {"a": 0.02, "b": 0.1, "c": 0.3, "d": 0.21}.items():
            learn(engine, column, row)
        found = asyncio.run(answers(engine, [{"x": n} for n in range(64)]))
    assert sizes[0] == 24  # (1.0 - 0.3 - 0.21) / 0.02, and not less for `b`
    assert [one.rows[0]["d"] for one in found] == [2 * n + 3 for n in range(64)]


def test_a_queue_counts_as_the_batches_that_it_will_be() -> None:
    with opened(sv.requests("x").derive(y=lambda x: x)) as engine:
        learn(engine, "y", 0.1)
        (station,) = engine.stations
        assert round(station.expected, 6) == 0.1
        station.waiting = OrderedDict.fromkeys(range(4))  # type: ignore[arg-type]
        assert round(station.expected, 6) == 0.5


def test_without_batches_each_request_is_a_call() -> None:
    sizes: list[int] = []

    @sv.batched
    def first(x):
        sizes.append(len(x))
        return x

    with opened(sv.requests("x").derive(y=first), most_rows=1) as engine:
        asyncio.run(answers(engine, [{"x": n} for n in range(20)]))
    assert sizes == [1] * 20


def test_a_request_that_is_given_up_is_not_begun() -> None:
    begun: list[int] = []
    go = threading.Event()

    def first(x):
        begun.append(x)
        go.wait(timeout=60)
        return x

    async def every(engine: Engine) -> Any:
        asked = [asyncio.ensure_future(engine.answer({"x": n}, deadline=60)) for n in range(6)]
        await turns()
        for one in asked[1:5]:
            one.cancel()
        await turns()
        (station,) = engine.stations
        assert len(station.waiting) == 1
        go.set()
        return [await asked[0], await asked[5]]

    with opened(sv.requests("x").derive(y=first)) as engine:
        asyncio.run(every(engine))
    assert begun == [0, 5]


def test_no_step_after_a_hang_up_is_run() -> None:
    begun = threading.Event()
    go = threading.Event()
    later: list[int] = []

    def first(x):
        begun.set()
        go.wait(timeout=60)
        return x

    async def every(engine: Engine) -> None:
        asked = asyncio.ensure_future(engine.answer({"x": 1}, deadline=60))
        await asyncio.to_thread(begun.wait, 60)
        asked.cancel()
        await turns()
        go.set()
        while engine.stations[0].abandoned:
            await asyncio.sleep(0)
        await turns()

    with opened(sv.requests("x").derive(y=first).derive(z=lambda y: later.append(y))) as engine:
        asyncio.run(every(engine))
    assert later == []


def test_a_step_can_see_how_long_it_is_awaited() -> None:
    seen: list[float] = []

    def asks(x):
        told = limit()
        assert told is not None
        seen.append(told.left())
        return x

    asked = sv.requests("x").derive(y=asks)
    asked.ask(x=1, deadline=20.0)
    assert 0 < seen[0] <= 20
    assert limit() is None


def test_a_step_is_told_when_nobody_awaits_it() -> None:
    told: list[bool] = []
    begun = threading.Event()
    ended = threading.Event()

    def asks(x):
        given_up = threading.Event()
        found = limit()
        assert found is not None
        found.when_given_up(given_up.set)
        begun.set()
        told.append(given_up.wait(timeout=60) and found.is_given_up and found.left() == 0)
        ended.set()
        return x

    async def every(engine: Engine) -> None:
        first = asyncio.ensure_future(engine.answer({"x": 1, "who": 1}, deadline=60))
        second = asyncio.ensure_future(engine.answer({"x": 1, "who": 2}, deadline=60))
        await asyncio.to_thread(begun.wait, 60)
        first.cancel()
        await turns()
        assert not told  # the second one awaits the same call
        second.cancel()
        await asyncio.to_thread(ended.wait, 60)

    with opened(sv.requests("x", "who").derive(y=asks)) as engine:
        asyncio.run(every(engine))
    assert told == [True]


def test_a_late_answer_is_no_answer() -> None:
    now = [0.0]

    def slow(x):
        now[0] = 100.0
        return x

    with opened(sv.requests("x").derive(y=slow), clock=lambda: now[0]) as engine:
        (late,) = asyncio.run(answers(engine, [{"x": 1}], deadline=60))
    assert isinstance(late, Late)
    assert late.waits_for.startswith("y = ")


def test_an_open_index_outlives_its_files(tmp_path: Path) -> None:
    passages = sv.from_columns({"id": [1], "text": ["a red fox"]})
    index = passages.to_index(tmp_path / "idx", keyword="text", workers=0)
    with opened(sv.requests("q").derive(hits=index.search("q"))) as engine:
        assert not engine.is_warm
        asyncio.run(engine.warm())
        assert engine.is_warm
        more = sv.from_columns({"id": [2], "text": ["a hen"]})
        index.add(more, workers=0).gc()
        for n in range(10):  # other indices that are opened push no pinned one out
            other = passages.to_index(tmp_path / str(n), keyword="text", workers=0)
            other.lookup([1])
        (found,) = asyncio.run(answers(engine, [{"q": "fox"}]))
    assert [hit["id"] for hit in found.rows[0]["hits"]] == [1]


def test_no_batch_but_the_first_is_run_again_to_check_a_batched_function() -> None:
    """Clients wait for each batch: offline, the 128th, 256th, … is checked, too."""
    calls: list[int] = []

    @sv.batched
    def double(x: Any) -> Any:
        calls.append(len(x))
        return [2 * one for one in x]

    async def ask(engine: Engine) -> None:
        for number in range(300):
            await answers(engine, [{"x": 4 * number + i} for i in range(4)])

    with opened(sv.requests("x").derive(y=double)) as engine:
        asyncio.run(ask(engine))
    assert 1200 < sum(calls) <= 1200 + 2 * 4  # once on the loop, once on a thread
