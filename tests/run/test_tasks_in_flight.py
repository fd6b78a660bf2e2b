"""The tasks in flight of a stage: their rows and bytes are kept up to date, not counted anew."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silva.columns import Array, Block
from silva.physical.stage.stage import Result
from silva.run.pools.task import Flight, Task, TasksInFlight
from silva.run.pools.threads import InlinePool


def result(rows: int) -> Result:
    block = Block({"x": Array(np.zeros(rows))}, np.arange(rows, dtype=np.uint64))
    return Result(block, rows, None, (), (), 0.0, 0.0)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 9).map(lambda rows: ("add", rows)),
            st.just(("take", 0)),
            st.integers(0, 9).map(lambda at: ("finish", at)),
            st.integers(0, 9).map(lambda at: ("fail", at)),
            st.just(("forward", 0)),
        ),
        max_size=60,
    )
)
def test_what_it_knows_is_what_counting_would_give(acts: list[tuple[str, int]]) -> None:
    flights, model, pool = TasksInFlight(), [], InlinePool()
    for number, (act, value) in enumerate(acts):
        if act == "add":
            task: Any = Task(None, None, None)  # type: ignore[arg-type]
            task.landed = flights.landed
            flights.add(Flight(number, task, pool, value))
            model.append((number, task, value))
        elif act == "take" and model:
            flight = flights.take()
            assert (flight.trail, flight.task, flight.rows) == model.pop(0)
        elif act in ("finish", "fail") and value < len(model):
            _, task, rows = model[value]
            task.finish([result(rows)] if act == "finish" else None, None)
        elif act == "forward" and model:
            done = [i for i, (_, task, _) in enumerate(model) if task.done]
            assert flights.bring_forward() == bool(done)
            if done:
                model.insert(0, model.pop(done[0]))
        flights.look()
        done_bytes = sum(r.block.nbytes for _, t, _ in model for r in t.results or ())
        running = [(task, rows) for _, task, rows in model if not task.done]
        assert flights.trails() == [trail for trail, _, _ in model]
        assert (len(flights), flights.done) == (len(model), len(model) - len(running))
        assert flights.rows == sum(rows for _, _, rows in model)
        assert flights.running_rows == sum(rows for _, rows in running)
        assert flights.done_bytes == done_bytes


def test_what_comes_after_nobody_wants_it_is_not_kept() -> None:
    flights, tasks = TasksInFlight(), [Task(None, None, None) for _ in range(3)]  # type: ignore[arg-type]
    for task in tasks:
        task.landed = flights.landed
        flights.add(Flight(None, task, InlinePool(), 1))
    tasks[0].finish([result(1)])
    flights.cancel()
    tasks[1].finish([result(1)])
    assert not flights.landed
    assert all(task.cancelled for task in tasks)


def test_a_task_holds_no_results_that_somebody_has_or_nobody_wants() -> None:
    """A worker that was lost without a word may hold the task for ever."""
    taken, early, late = (Task(None, None, None) for _ in range(3))  # type: ignore[arg-type]
    for task in (taken, early):
        task.finish([result(1)])
    assert len(taken.take()) == 1
    early.cancel()
    late.cancel()
    late.finish([result(1)])
    assert [task.results for task in (taken, early, late)] == [None, None, None]
