"""Where a stage runs when its steps have become others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.columns import Block
from silva.cost.experiment import Experiment
from silva.cost.machine import Machine
from silva.facts.collect import stage_facts
from silva.physical.stage.stage import Result
from silva.physical.written_form import segments
from silva.plan.decision import Quantity
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane
from silva.run.seams import Seams


def stage(**steps: Any) -> Any:
    """The only stage of a pipeline of these steps."""
    rows = sv.from_columns({"x": [b""]}).derive(**steps).select(*steps).batch(1)
    with rows.options(optimize=False).loader() as loader:
        [segment] = segments(loader._planner.physical())
    return segment.stage


def on_threads(first: Any) -> Lane:
    lane = Lane(first, "stage 1", None, 2, MemoryBudget(1 << 20))
    lane.move("threads", "it is faster there")
    lane.decided = True
    return lane


def test_operators_that_are_called_otherwise_stay_where_they_are():
    image = sv.image("x").decode()
    lane = on_threads(stage(image=image.grayscale().center_crop(8)))
    lane.follow(stage(image=image.center_crop(8).grayscale()))
    assert (lane.backend, lane.decided) == ("threads", True)


def test_other_steps_are_measured_anew():
    image = sv.image("x").decode()
    lane = on_threads(stage(image=image))
    lane.follow(stage(image=image, size=sv.image("x").info()))
    assert (lane.backend, lane.decided) == ("inline", False)


def test_functions_are_measured_anew():
    lane = on_threads(stage(y=lambda x: x))
    lane.follow(stage(y=lambda x: x[::-1]))
    assert (lane.backend, lane.decided) == ("inline", False)


def test_all_that_the_consumer_does_between_two_waits_is_its_own():
    """The CPU seconds of its own time are counted over all of it, as its seconds are."""
    lane = on_threads(stage(y=lambda x: x))
    lane.end_own()  # nothing was given to it yet
    assert lane.stats.own_cpu == 0.0
    lane.begin_own()
    start = time.thread_time()
    while time.thread_time() - start < 0.002:
        pass
    lane.end_own()
    lane.end_own()
    assert 0.002 <= lane.stats.own_cpu <= time.thread_time() - start + 0.001


def test_the_average_of_a_stage_is_not_that_of_its_latest_blocks():
    lane = Lane(stage(y=lambda x: x), "stage 1", "threads", 2, MemoryBudget(1 << 20))
    empty = Block({}, np.empty(0, np.uint64))
    for milliseconds in (500, 2, 2, 2, 2, 20):  # libraries are imported in the first
        lane.learn(Result(empty, 10, None, (), (), milliseconds / 1e3, 1e-3), 10)
    assert lane.average().seconds == pytest.approx(28e-3 / 50)


def test_rates_are_those_of_the_present_workers_alone():
    """While threads are added, each width has a rate of its own."""
    clock = [0.0]
    seams = Seams(clock=lambda: clock[0])
    lane = Lane(stage(y=lambda x: x), "stage 1", "threads", 8, MemoryBudget(1 << 20), seams)
    lane.begin(None, 0, None)
    empty = Block({}, np.empty(0, np.uint64))
    for width, blocks in ((2, 100), (4, 100), (8, 60)):
        lane.width.now = width
        assert lane.steady_pace is None, "blocks in flight were begun by others"
        assert not lane.settled
        for _ in range(blocks):
            # ten rows of 100 ms, and the more of them at once, the longer each takes
            clock[0] += 1.0 / width
            lane.learn(Result(empty, 10, None, (), (), 1.0 + width / 10, 1e-3), 10)
            lane.returned(clock[0], starting=False)
        assert lane.steady_pace == pytest.approx(10 * width)
        assert lane.settled
        assert lane.average().seconds == pytest.approx(0.1 + width / 100)


def test_the_backends_that_were_compared_are_shown_with_what_came_of_them():
    lane = on_threads(stage(y=lambda x: x))
    assert [one.what for one in stage_facts(lane).decisions if one.kind == "backend"] == ["threads"]
    start = lane.counters
    promised = {"threads": 190.0, "processes": 170.0}
    lane.compared = Experiment("inline", 100.0, promised, "threads", start.progress)
    later = start._replace(rows=60, elapsed=0.5, starved=0.4, busy=1.0, cpu=1.0, blocks=10)
    assert lane.compared.judge(later.progress) == "processes"
    lane.move("processes", "as measured")
    found = {one.what: one for one in stage_facts(lane).decisions if one.kind == "backend"}
    assert list(found) == ["processes", "inline", "threads"]
    assert (found["threads"].predicted, found["threads"].measured) == (
        Quantity(190.0),
        Quantity(120.0),
    )
    assert found["threads"].why_not == "slower"
    assert (found["processes"].predicted, found["processes"].why_not) == (Quantity(170.0), None)
    assert (found["inline"].measured, found["inline"].why_not) == (Quantity(100.0), "slower")
    assert found["threads"].measured_gain == 1.2


def work(lane: Lane, blocks: int, seconds: float, cpu: float | None = None) -> None:
    """Blocks of ten rows that take so many seconds each, more or less."""
    empty = Block({}, np.empty(0, np.uint64))
    for number in range(blocks):
        took = seconds * (1 + number % 3 / 10)
        lane.learn(Result(empty, 10, None, (), (), took, took if cpu is None else cpu), 10)
        lane.decide(10)


def beside_a_small_epoch(seams: Seams | None = None) -> Lane:
    """A stage that is not worth a worker: its epoch takes a tenth of a second."""
    memory = MemoryBudget(1 << 20)
    lane = Lane(stage(image=sv.image("x").decode()), "stage 1", None, 2, memory, seams)
    lane.begin(10_000, epoch=0, epochs=1)
    work(lane, 40, 1e-4)
    assert (lane.backend, lane.decided, lane.changes) == ("inline", True, [])
    return lane


def test_a_stage_that_becomes_slow_in_the_middle_of_an_epoch_gets_workers():
    lane = beside_a_small_epoch()
    work(lane, 40, 1e-2)
    assert lane.backend == "threads"
    (change,) = lane.changes
    assert "a row of stage 1 takes" in change.why
    assert change.predicted_gain > 1.5


def test_a_stage_that_waits_longer_than_before_gets_threads_on_one_core_too():
    """A disk that becomes slow takes no more CPU, so that threads can wait for it together."""
    lane = beside_a_small_epoch(Seams(machine=replace(Machine.here(), cpus=1)))
    work(lane, 40, 1e-2, cpu=1e-4)
    assert lane.backend == "threads"
    lane = beside_a_small_epoch(Seams(machine=replace(Machine.here(), cpus=1)))
    work(lane, 40, 1e-2)
    assert (lane.backend, lane.changes) == ("inline", [])


def test_a_loop_that_becomes_slow_gets_a_worker_that_runs_beside_it():
    clock = [0.0]
    seams = Seams(machine=replace(Machine.here(), cpus=1), clock=lambda: clock[0])
    lane = Lane(stage(y=sv.image("x").decode()), "stage 1", None, 1, MemoryBudget(1 << 20), seams)
    lane.begin(100_000, epoch=0, epochs=1)
    for own in (0.0, 2e-2):
        for _ in range(40):
            work(lane, 1, 1e-2)
            given = clock[0]
            clock[0] += own
            lane.returned(given, starting=False)
        if not own:
            assert (lane.backend, lane.changes) == ("inline", [])
    assert lane.backend == "threads"
    (change,) = lane.changes
    assert "a row of the loop takes" in change.why


def test_the_block_in_the_hands_of_the_consumer_is_not_yet_counted_as_its_work():
    """It takes 10 ms for a row, but has only begun with the second block."""
    clock = [0.0]
    lane = Lane(
        stage(y=lambda x: x), "stage 1", None, 2, MemoryBudget(1 << 20),
        Seams(clock=lambda: clock[0]),
    )  # fmt: skip
    empty = Block({}, np.empty(0, np.uint64))
    for rows in (4, 400):
        lane.learn(Result(empty, rows, None, (), (), 1e-3, 1e-3), rows)
        lane.decide(rows)
        if rows == 4:
            clock[0] += 0.04
            lane.returned(0.0, starting=False)
    assert (lane.own.rows, lane.own.seconds_a_row) == (4, 0.01)


def test_a_stage_that_is_sometimes_slow_stays_where_it_is():
    lane = beside_a_small_epoch()
    for _ in range(40):
        work(lane, 9, 1e-4)
        work(lane, 1, 1.2e-3)
    assert (lane.backend, lane.decided, lane.changes) == ("inline", True, [])
