"""What fails or hangs costs nobody else an answer."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from tests.serve.engine_tools import answers, opened, wait

import silva as sv
from silva.lifetime import Thread
from silva.physical.stage.global_generators import GATE
from silva.serve.engine import engine as engines
from silva.serve.engine.engine import Engine, Late, Outcome


def checked(x):
    wait(0.005)
    if x == 0:
        raise ValueError("bad")
    return x


def cleaned(y):
    wait(0.02)
    return y.upper()


@pytest.mark.parametrize("policy", ["raise", sv.Substitute(-1)])
def test_a_failure_in_one_branch_does_not_undo_another_branch(policy: Any) -> None:
    asked = sv.requests("x", "y").derive(a=checked, y=cleaned)

    async def every(engine: Engine) -> list[Outcome]:
        for _ in range(2):  # so that later batches hold several requests
            await answers(engine, [{"x": n, "y": "a"} for n in range(1, 9)])
        return await answers(engine, [{"x": n, "y": f"a{n}"} for n in (5, 6, 0, 7, 8)])

    with opened(asked, on_error=policy) as engine:
        found = asyncio.run(every(engine))
    good = [{"x": n, "y": f"A{n}", "a": n} for n in (5, 6, 7, 8)]
    assert [one.rows[0] for one in found if not one.failures] == good
    (bad,) = (one for one in found if one.failures)
    assert bad.rows == ([] if policy == "raise" else [{"x": 0, "y": "A0", "a": -1}])
    assert bad.substituted == (policy != "raise")


def test_of_two_failing_branches_the_first_step_is_named() -> None:
    failed = threading.Event()

    def one(x):
        failed.wait(timeout=30)
        raise ValueError

    def two(x):
        failed.set()
        raise KeyError

    asked = sv.requests("x").derive(a=one, b=two)
    with pytest.raises(sv.RowError, match=r"`a = .*ValueError"):
        asked.ask(x=1)


def test_a_substitute_may_be_dropped_by_a_filter() -> None:
    asked = sv.requests("x").derive(y=lambda x: 1 / x).filter(sv.col("y") > 0)
    with opened(asked, on_error=sv.Substitute(-1.0)) as engine:
        (dropped, kept) = asyncio.run(answers(engine, [{"x": 0}, {"x": 1}]))
    assert dropped.dropped_by is not None
    assert dropped.substituted
    assert not kept.substituted


def test_a_filter_that_fails_has_no_substitute() -> None:
    asked = sv.requests("x").filter(lambda x: 1 / x)
    with opened(asked, on_error=sv.Substitute(-1.0)) as engine:
        (failed,) = asyncio.run(answers(engine, [{"x": 0}]))
    assert failed.failures
    assert not failed.substituted
    assert failed.dropped_by is None


def test_a_filter_after_an_explode_cannot_fail_on_a_request_without_parts() -> None:
    listed = sv.requests("x").derive(part=lambda x: list(range(x))).explode("part")
    asked = listed.filter(lambda x: 1 / x > 0)
    assert asked.ask(x=0) == asked.run([{"x": 0}, {"x": 0}], workers=0) == []


def test_a_step_that_became_slow_leaves_the_event_loop_and_its_request_is_late() -> None:
    def slow(x):
        wait(0.3)
        return x

    with opened(sv.requests("x").derive(y=slow)) as engine:
        engine.stations[0].quick.in_place = True  # as after many quick calls
        (late,) = asyncio.run(answers(engine, [{"x": 1}], deadline=0.1))
        assert isinstance(late, Late)
        assert not engine.stations[0].quick.in_place


def test_a_call_that_hangs_does_not_block_its_step() -> None:
    over = threading.Event()

    def hangs(x):
        if x == 1:
            over.wait(timeout=60)
        return x

    async def every(engine: Engine) -> tuple[Any, Any]:
        (late,) = await answers(engine, [{"x": 1}], deadline=0.1)
        (good,) = await answers(engine, [{"x": 2}])
        assert engine.stations[0].abandoned == 1
        over.set()
        while engine.stations[0].abandoned:
            await asyncio.sleep(0)
        return late, good

    with opened(sv.requests("x").derive(y=hangs)) as engine:
        late, good = asyncio.run(every(engine))
    assert isinstance(late, Late)
    assert good.rows == [{"x": 2, "y": 2}]


def test_a_call_that_hangs_does_not_block_steps_that_draw_from_global_generators() -> None:
    over = threading.Event()

    def hangs(x):
        if x == 1:
            over.wait(timeout=60)
        return x

    async def every(engine: Engine) -> tuple[Any, Any]:
        (late,) = await answers(engine, [{"x": 1}], deadline=0.1)
        return late, (await answers(engine, [{"x": 2}], deadline=30))[0]

    drawn = sv.requests("x").derive(y=hangs).derive(z=lambda y: y + random.random())
    with opened(drawn) as engine:
        late, good = asyncio.run(every(engine))
        over.set()
    assert isinstance(late, Late)
    assert good.rows == drawn.run([{"x": 2}], workers=0)


def test_the_event_loop_waits_for_nobody_who_has_the_global_generators() -> None:
    held, free = threading.Event(), threading.Event()
    told: list[bool] = []

    def hold() -> None:
        with GATE.alone():
            held.set()
            told.append(free.wait(timeout=20))

    holder = threading.Thread(target=hold)
    with opened(sv.requests("x").derive(y=lambda x: x)) as engine:
        engine.stations[0].quick.in_place = True
        holder.start()
        held.wait(timeout=60)
        with_gate = GATE.passers  # a thread that runs none of these counts as gone
        GATE.passers = with_gate | {hold.__code__}
        (late,) = asyncio.run(answers(engine, [{"x": 1}], deadline=0.1))
        free.set()
        holder.join()
        GATE.passers = with_gate
    assert isinstance(late, Late)
    assert told == [True]  # it had the generators until the request was late


def test_calls_that_hang_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_MOST_ABANDONED", 2)
    over = threading.Event()
    begun = []

    def hangs(x):
        begun.append(x)
        over.wait(timeout=60)
        return x

    async def every(engine: Engine) -> None:
        for n in range(4):
            assert isinstance((await answers(engine, [{"x": n}], deadline=0.1))[0], Late)
        assert engine.stations[0].abandoned == 2
        assert not engine.stations[0].waiting

    with opened(sv.requests("x").derive(y=hangs)) as engine:
        asyncio.run(every(engine))
        over.set()
    assert begun == [0, 1, 2]


def test_calls_that_wait_overlap() -> None:
    meet = threading.Barrier(16)

    def waits(x):
        if x < 0:
            wait(0.05)
        else:
            meet.wait(timeout=60)
        return x

    async def every(engine: Engine) -> list[Outcome]:
        await answers(engine, [{"x": -1}])
        return await answers(engine, [{"x": n} for n in range(16)])

    with opened(sv.requests("x").derive(y=waits)) as engine:
        found = asyncio.run(every(engine))
    assert [one.rows[0]["y"] for one in found] == list(range(16))


def test_async_functions_are_refused_when_they_are_written() -> None:
    async def later(x):
        return x

    with pytest.raises(sv.PlanError, match="async def"):
        sv.requests("x").derive(y=later)


def test_requests_cannot_be_joined_with_requests() -> None:
    other = sv.requests("x").derive(z=lambda x: -x)
    with pytest.raises(sv.PlanError, match="one by one"):
        sv.requests("x").join(other, on="x")


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", {1: 2}])
def test_requests_without_an_identity_are_refused(value: Any) -> None:
    asked = sv.requests("x").derive(y=lambda x: 1)
    for ask in (lambda: asked.ask(x=value), lambda: asked.run([{"x": value}])):
        with pytest.raises(sv.PlanError, match="64 bits"):
            ask()


def test_floats_that_are_no_numbers_stay_what_they_are() -> None:
    asked = sv.requests("x").derive(y=lambda x: x)
    for value in (float("nan"), float("inf")):
        assert repr(asked.ask(x=value)) == repr(asked.run([{"x": value}])[0])


def test_a_failure_is_not_lost_to_an_earlier_step_that_ends_after_it() -> None:
    """Steps that run at the same time: the later one fails first."""
    failed = threading.Event()

    def first(x: int) -> int:
        failed.wait(30)
        wait(0.05)  # the other one has gone back to the loop
        return x

    def second(y: int) -> int:
        try:
            return 1 // y
        finally:
            failed.set()

    made = sv.requests("x", "y").derive(a=first).derive(b=second)
    with opened(made) as engine:
        (outcome,) = asyncio.run(answers(engine, [{"x": 1, "y": 0}]))
    assert isinstance(outcome, Outcome)
    assert [type(one.cause) for one in outcome.failures] == [ZeroDivisionError]


def test_requests_fail_at_once_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the step goes on when there are threads again."""

    def step(x):
        return x + 1

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def every(engine: Any) -> None:
        with monkeypatch.context() as without:
            without.setattr(Thread, "start", refuse)
            lost = await answers(engine, [{"x": 1}, {"x": 1}, {"x": 2}], deadline=60)
        assert [str(one) for one in lost] == [
            "a thread cannot be started: can't start new thread"
        ] * 3
        (found,) = await answers(engine, [{"x": 1}])
        assert found.rows == [{"x": 1, "y": 2}]

    with opened(sv.requests("x").derive(y=step)) as engine:
        asyncio.run(every(engine))
