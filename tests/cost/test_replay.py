"""A replayed run: what workers, cores, the GIL, the disk and the loop allow, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from silva.cost.model import Placed, Work
from silva.cost.replay import Own, Replay

IDLE = Own(0.0)


def rate(work: Work, backend: str, workers: int, cores: int = 2, own: Own = IDLE) -> float:
    stage = Placed("stage 1", work, backend, workers)
    return Replay((stage,), cores, own).run().rows_per_second


CPU = Work(4e-3, 4e-3)
PYTHON = Work(4e-3, 4e-3, 4e-3)
SLEEP = Work(4e-3)


@pytest.mark.parametrize("workers", [2, 3, 8, 64])
def test_more_workers_than_cores_are_no_faster(workers: int) -> None:
    assert rate(CPU, "processes", workers) == pytest.approx(500)
    assert rate(CPU, "threads", workers) == pytest.approx(500)


def test_rows_that_wait_are_as_fast_as_there_are_workers() -> None:
    assert rate(SLEEP, "threads", 8) == pytest.approx(2000)
    assert rate(SLEEP, "inline", 0) == pytest.approx(250)


@pytest.mark.parametrize("workers", [63, 65, 200, 10**6, 10**9])
def test_any_number_of_workers_is_replayed_with_few(workers: int) -> None:
    """The simulated blocks do not grow with the workers, and the rate is that of all of them."""
    stage = Placed("stage 1", SLEEP, "threads", workers)
    found = Replay((stage,), 2, IDLE).run()
    assert found.rows_per_second == pytest.approx(250 * workers, rel=0.05)
    assert len(found.trace.finished) < 1000
    assert rate(CPU, "processes", workers) == pytest.approx(500)
    assert rate(SLEEP, "threads", workers, own=Own(1e-3)) == pytest.approx(1000, rel=0.05)


def test_pools_of_different_widths_are_replayed_with_few_blocks() -> None:
    read, decode = Placed("read", SLEEP, "threads", 61), Placed("decode", CPU, "processes", 63)
    found = Replay((read, decode), 2, IDLE).run()
    assert found.rows_per_second == pytest.approx(500, rel=0.05)
    assert len(found.trace.finished) < 3000


def test_threads_that_hold_the_gil_are_no_faster_than_one() -> None:
    assert rate(PYTHON, "threads", 1) == pytest.approx(250)
    assert rate(PYTHON, "threads", 8) == pytest.approx(250)
    assert rate(PYTHON, "processes", 8) == pytest.approx(500)


def test_the_disk_is_shared_by_all_workers() -> None:
    read = SLEEP._replace(disk=1e-3)
    assert rate(read, "threads", 2) == pytest.approx(500)
    assert rate(read, "threads", 64) == pytest.approx(1000)


def test_the_loop_overlaps_with_workers_and_not_with_inline_stages() -> None:
    own = Own(2e-3)
    assert rate(SLEEP, "inline", 0, own=own) == pytest.approx(1 / 6e-3)
    assert rate(SLEEP, "threads", 8, own=own) == pytest.approx(500)


def test_a_loop_that_computes_takes_a_share_of_the_cores() -> None:
    assert rate(CPU, "processes", 8, own=Own(1e-3)) == pytest.approx(500)
    assert rate(CPU, "processes", 8, own=Own(1e-3, 1e-3)) == pytest.approx(400)


def test_stages_share_workers_and_inline_stages_the_loop() -> None:
    read, decode = Placed("read", SLEEP, "inline", 0), Placed("decode", SLEEP, "threads", 2)
    both = Replay((read, decode), 2, Own(1e-3)).run()
    assert both.rows_per_second == pytest.approx(1 / 5e-3)
    threads = Replay((replace(read, backend="threads", workers=2), decode), 2, Own(0.0)).run()
    assert threads.rows_per_second == pytest.approx(250, rel=0.05)


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_time_in_which_rows_stood_in_each_others_way_is_found(backend: str) -> None:
    """A row that took 8 ms beside others, and 4 ms of a core, did not wait by itself."""
    crowded = Placed("stage 1", CPU._replace(seconds=8e-3), backend, 4)
    found = Replay((crowded,), 2, Own(0.0)).without_contention()
    assert found.stages[0].work.seconds == pytest.approx(4e-3, rel=0.05)
    asleep = Placed("stage 1", SLEEP, backend, 4)
    found = Replay((asleep,), 2, Own(0.0)).without_contention()
    assert found.stages[0].work.seconds == pytest.approx(4e-3)


def test_time_behind_other_programs_is_not_waiting_that_workers_overlap() -> None:
    work = CPU._replace(seconds=9e-3, queued=5e-3)
    crowded = Placed("stage 1", work, "processes", 2)
    found = Replay((crowded,), 2, Own(0.0)).without_contention()
    more = replace(found, stages=(replace(found.stages[0], workers=8),))
    assert more.run().rows_per_second == pytest.approx(found.run().rows_per_second)


def test_an_epoch_of_few_blocks_does_not_keep_many_workers_busy() -> None:
    """25 blocks are four rounds of eight workers, and thirteen of two: 3.25 times as fast."""
    short = Replay((Placed("stage 1", SLEEP, "threads", 8),), 2, IDLE, blocks=25)
    fewer = replace(short, stages=(replace(short.stages[0], workers=2),))
    assert short.run().rows_per_second / fewer.run().rows_per_second == pytest.approx(13 / 4)
    long = replace(short, blocks=100_000)
    assert long.run().rows_per_second == replace(short, blocks=None).run().rows_per_second


def test_an_epoch_is_no_faster_with_more_workers_than_blocks() -> None:
    short = Replay((Placed("stage 1", SLEEP, "threads", 25),), 2, IDLE, blocks=25)
    more = replace(short, stages=(replace(short.stages[0], workers=10**6),))
    assert more.run().rows_per_second == short.run().rows_per_second == pytest.approx(25 / 4e-3)


def test_more_threads_hinder_each_other_more_often() -> None:
    """A sixth of the time under the GIL: two threads meet there seldom, eight nearly always, so
    that they are far from four times as fast."""
    mixed = Work(2.45e-3, 0.41e-3, 0.41e-3)
    gain = rate(mixed, "threads", 8) / rate(mixed, "threads", 2)
    assert 1.9 < gain < 2.4
    assert rate(PYTHON, "threads", 8) == pytest.approx(rate(PYTHON, "threads", 2))
