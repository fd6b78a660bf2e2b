"""The number of workers settles at what a trainer needs, and changes nothing in the stream."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Block
from silva.cost.experiment import Progress
from silva.cost.machine import Machine
from silva.physical.stage.stage import Result
from silva.run.memory import MemoryBudget
from silva.run.placement.lane import Lane
from silva.run.placement.sizing import MOST_THREADS, Growth, Width
from silva.run.pools.threads import ThreadPool
from silva.run.seams import Seams
from silva.testing import stream


@given(st.integers(2, 64), st.floats(0.01, 1.0))
def test_the_width_settles_at_what_is_needed(most: int, share: float) -> None:
    width, need = Width(most), share * most
    waited = busy = 0.0
    late_changes = 0
    for second in range(600):
        before = width.changes
        width.look(float(second), waited, busy)
        late_changes += (width.changes - before) * (second >= 400)
        done = min(width.now, need)
        busy += done
        waited += 1 - done / need
    assert width.now >= need * 0.99
    assert width.now <= math.ceil(need / 0.8) + 1
    assert late_changes <= 4


@given(st.integers(2, 16), st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4))
def test_the_width_follows_a_demand_that_changes(most: int, shares: list[float]) -> None:
    width = Width(most)
    waited = busy = now = 0.0
    for share in shares:
        need = share * most
        for _ in range(80):
            width.look(now, waited, busy)
            done = min(width.now, need)
            busy, waited, now = busy + done, waited + 1 - done / need, now + 1
        assert width.now >= need * 0.99


@given(
    st.floats(4.0, 40.0),
    st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=1, max_size=4),
    st.floats(0.0, 6.0),
)
def test_workers_that_take_seconds_to_start_are_not_asked_for_twice(
    node: float, demands: list[float], starting: float
) -> None:
    width = Width(math.ceil(5 * node))
    asked = [0.0] * width.now
    """When each of the workers in use was asked for."""
    waited = busy = now = 0.0
    for share in [0.25, *demands]:
        need, began, highest = share * node, now, 0
        before = width.now
        while now < began + starting + 15:
            there = sum(now - since >= starting for since in asked)
            width.look(now, waited, busy, complete=there == width.now)
            asked = asked[: width.now] + [now] * (width.now - len(asked))
            done = min(there, need)
            busy, waited, now = busy + done / 10, waited + (1 - done / need) / 10, now + 0.1
            highest = max(highest, width.now)
            assert now < began + starting + 5 or there >= 0.99 * need, "they follow within seconds"
        most = math.ceil(1.25 * need)
        assert highest <= max(before, most), "no more are asked for than a quarter above the need"
        assert 0.99 * need <= width.now <= most


def test_other_widths_give_the_same_stream() -> None:
    pipeline = sv.from_columns({"x": range(3000)}).derive(y=lambda x, rng: x + rng.random())
    expected = stream(pipeline.batch(10).loader(backend="inline"))
    for backend in ("threads", "processes"):
        with pipeline.batch(10).loader(backend=backend, workers=3) as loader:
            found = []
            for number, batch in enumerate(loader):
                found.append(batch)
                for lane in loader._executor.lanes.values():
                    lane.width.now = 1 + number % 3
        from silva.testing import digest

        assert [digest(batch) for batch in found] == expected


def test_where_work_comes_unevenly_more_of_it_is_done_ahead() -> None:
    width = Width(2)
    for second in range(1, 20):  # both workers have time to spare, and yet the trainer waits
        width.look(now=float(second), waited=0.03 * second, busy=1.8 * second, idle=second)
    assert (width.now, width.ahead) == (2, 8)


def test_a_trainer_that_only_waits_has_more_done_ahead_at_once() -> None:
    width = Width(2)
    for look in range(4):
        width.look(now=0.5 * look, waited=0.5 * look, busy=0.9 * look, idle=look)
    assert width.ahead == 8


def test_where_workers_have_no_time_to_spare_doing_more_ahead_would_not_help() -> None:
    width = Width(2)
    for second in range(1, 20):
        width.look(now=float(second), waited=0.5 * second, busy=1.99 * second)
    assert (width.now, width.ahead) == (2, 2)


def test_where_workers_always_had_more_to_do_nothing_is_gained_by_doing_more_ahead() -> None:
    width = Width(2)
    for second in range(1, 20):  # they share their threads with another stage
        width.look(now=float(second), waited=0.5 * second, busy=1.2 * second)
    assert (width.now, width.ahead) == (2, 2)


def test_one_long_wait_says_little_of_what_is_asked_for() -> None:
    for complete, most in ((True, 5), (False, 2)):
        width = Width(64, demand=1.5)
        assert width.now == 2
        width.look(now=0.0, waited=0.0, busy=0.0)
        width.look(now=1.0, waited=0.0, busy=1.5, complete=complete)
        width.look(now=6.0, waited=4.99, busy=2.0, complete=complete)  # a block that took long
        assert width.now <= most


def grown(growth: Growth, *, helps: int, useful: float = 1e3, waits: float = 1.0) -> list[int]:
    """The numbers of threads over 20 s in which up to `helps` threads do 100 rows a second each, in
    blocks of five, and the trainer waits for a share of its time."""
    now, found = Progress(), []
    for tenth in range(1, 200):
        rows, seconds = now.rows + min(growth.now, helps) * 10, tenth / 10
        now = Progress(rows, seconds, waits * seconds, blocks=int(rows / 5))
        growth.judge(now)
        if growth.due(now):
            growth.look(now, useful)
        found.append(growth.now)
    return found


@given(st.integers(1, 8), st.integers(1, 200))
def test_threads_of_rows_that_wait_double_as_long_as_that_helps(least: int, helps: int) -> None:
    found = grown(Growth(least, MOST_THREADS), helps=helps)
    best = min(max(helps, least), MOST_THREADS)
    assert best / 2 <= found[-1] <= min(2 * best, MOST_THREADS)
    assert all(after <= 2 * before for before, after in itertools.pairwise(found))
    assert len(set(found[100:])) == 1, "it settles"


def test_threads_that_do_not_help_are_taken_back_for_good() -> None:
    growth = Growth(2, 32)
    found = grown(growth, helps=2)
    assert found[-1] == 2
    assert max(found) == 4
    assert found.count(4) <= 15
    assert growth.note == "2 threads, no faster with 4"


def test_there_are_no_more_threads_than_are_of_use_or_asked_for() -> None:
    assert max(grown(Growth(2, 32), helps=100, useful=12.7)) == 12
    assert max(grown(Growth(2, 2), helps=100)) == 2
    assert max(grown(Growth(2, 32), helps=100, waits=0.01)) == 2


def lane_on_threads(seconds: float, cpu: float, share: float) -> Lane:
    rows = sv.from_columns({"x": range(3)}).derive(y=lambda x: x)
    stage = rows.loader(backend="inline")._lowered().stage
    seams = Seams(machine=Machine(cpus=2, memory=1 << 30))
    lane = Lane(stage, "stage 1", "threads", 2, MemoryBudget(1 << 30), seams)
    lane.growth.most = MOST_THREADS
    lane.probe._held, lane.probe._free = share, 1 - share
    for half_second in range(1, 40):
        count = min(lane.growth.now, int(seconds / max(cpu / 2, share * cpu)))
        stats, done = lane.stats, count / seconds / 2
        stats.rows_in += int(done)
        stats.blocks += 10
        stats.busy, stats.cpu = stats.busy + done * seconds, stats.cpu + done * cpu
        stats.starved = stats.elapsed = half_second / 2
        lane.grow()
    return lane


def test_a_stage_that_waits_has_more_threads_than_cores_and_one_that_computes_has_not() -> None:
    assert lane_on_threads(10e-3, 0.1e-3, 0.0).width.most == MOST_THREADS
    assert lane_on_threads(10e-3, 9e-3, 0.0).width.most == 2
    assert lane_on_threads(10e-3, 2e-3, 0.0).width.most in (8, 9, 10)  # two cores, fully used
    assert lane_on_threads(10e-3, 2e-3, 1.0).width.most in (3, 4, 5)  # one GIL


def lane_beside_others(in_line: float, *, counted: bool) -> Lane:
    """A stage on threads whose blocks wait 30 ms each. While it tries 16 threads, other work keeps
    each of them in line for a core for so many seconds of a block more."""
    rows, now = sv.from_columns({"x": range(3)}).derive(y=lambda x: x), [0.0]
    stage = rows.loader(backend="inline")._lowered().stage
    seams = Seams(machine=Machine(cpus=2, memory=1 << 30), clock=lambda: now[0])
    lane = Lane(stage, "stage 1", "threads", 2, MemoryBudget(1 << 30), seams)
    lane.growth.most = MOST_THREADS
    block = Block({}, np.empty(0, np.uint64))
    while now[0] < 10:
        queued = in_line if lane.growth.now == 16 else 0.0
        now[0] += (0.03 + queued) / lane.growth.now
        seen = queued if counted else 0.0
        lane.learn(Result(block, 10, None, (), (), 0.03 + queued, 1e-4, queued=seen), 10)
        lane.stats.starved = now[0]
        lane.grow()
    return lane


def test_other_work_on_the_machine_does_not_take_threads_back() -> None:
    assert lane_beside_others(0.02, counted=True).growth.now == MOST_THREADS
    assert lane_beside_others(0.02, counted=False).growth.now == 8  # as if 16 were no faster
    assert lane_beside_others(0.0, counted=True).growth.now == MOST_THREADS


def test_a_stage_with_other_steps_begins_with_few_threads_again() -> None:
    lane = lane_on_threads(10e-3, 0.1e-3, 0.0)
    lane.follow(sv.from_columns({"x": [1]}).derive(z=lambda x: x).loader()._lowered().stage)
    assert lane.width.most == lane.width.now == lane.growth.now == 2


def test_threads_are_started_when_they_are_first_used() -> None:
    pool = ThreadPool(2, 8)
    pool.start()
    try:
        assert pool.stacks().count("worker-") == 2
        pool.use(5)
        pool.use(3)
        assert pool.stacks().count("worker-") == 5
    finally:
        pool.close()
