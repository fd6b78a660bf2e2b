"""What disks and networks cost survives a check, and is known before the second run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import silva as sv
from silva.cost.book import Book
from silva.cost.costs import Cost
from silva.planner.known_costs import DevicePace, Measured, from_book, write_down

PACE = DevicePace(disk=1e-8, network=1e-6)


def test_seconds_of_devices_stay_known_when_later_measurements_do_not_have_them() -> None:
    known = Measured(read=Cost(rows=10, disk=1000), pace=PACE)
    assert known.updated(Measured()).pace == PACE
    later = known.updated(Measured(pace=DevicePace(network=2e-6)))
    assert later.pace == DevicePace(disk=1e-8, network=2e-6)


def test_a_check_that_changes_the_plan_keeps_the_seconds_of_devices() -> None:
    rows = sv.from_columns({"x": np.arange(100)}).derive(y=lambda x: x).filter(lambda x: x > 3)
    with rows.batch(4).loader(workers=0) as loader:
        chooser = loader._planner.chooser
        chooser.known = [Measured(pace=PACE) for _ in chooser.known]
        chooser.begin(chooser.base)
        assert [known.pace for known in chooser.known] == [PACE]


def test_a_second_run_knows_the_seconds_of_devices_before_its_first_row(tmp_path: Path) -> None:
    rows = sv.from_columns({"x": np.arange(100)}).derive(y=lambda x: x).batch(4)
    with rows.loader(workers=0) as loader:
        (run,) = loader._planner.chooser.runs
    assert run.source is not None
    read = Cost(rows=100, kept=100, seconds=1.0, cpu=0.5, disk=100_000, network=200_000)
    write_down(Book(tmp_path), run.source, run.steps, Measured(read=read, pace=PACE))
    found = from_book(Book(tmp_path), run.source, run.steps)
    assert found.pace == PACE
    assert found.pace.seconds(found.read) == PACE.seconds(read)
    write_down(Book(tmp_path), run.source, run.steps, Measured(read=read))
    assert from_book(Book(tmp_path), run.source, run.steps).pace == PACE, "unknown says nothing"


def test_a_second_run_knows_the_loop_before_its_first_row(tmp_path: Path) -> None:
    rows = sv.from_columns({"x": np.arange(100)}).derive(y=sv.col("x") + 1).batch(4)
    with rows.loader(workers=0) as loader:
        (run,) = loader._planner.chooser.runs
    loop = Cost(rows=100, kept=100, seconds=3.0, cpu=1.0)
    write_down(Book(tmp_path), run.source, run.steps, Measured(loop=loop))
    found = from_book(Book(tmp_path), run.source, run.steps)
    assert (found.loop.seconds_a_row, found.loop.cpu_a_row) == (0.03, 0.01)
    assert found.updated(Measured()).loop == found.loop
