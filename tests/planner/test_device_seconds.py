"""What disks and networks cost survives a check, and is known before the second run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import silva as sv
from silva.cost.book import Book
from silva.cost.costs import Cost
from silva.plan.function import show_step
from silva.plan.node import Filter, walk
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


def first_choice(rows: sv.Pipeline, known: Measured, **options: object) -> sv.Loader:
    """A loader of a pipeline of which an earlier run has measured the costs, before its first
    row."""
    with rows.loader(workers=2, **options) as earlier:
        (run,) = earlier._planner.chooser.runs
    assert run.source is not None
    steps = dict(zip((step.id for step in run.steps), known.steps.values(), strict=True))
    write_down(Book(), run.source, run.steps, replace(known, steps=steps))
    loader = rows.loader(workers=2, **options)
    loader._planner.start(0)
    return loader


def cost(seconds: float, kept: int = 100, **more: object) -> Cost:
    return Cost(rows=100, kept=kept, seconds=100 * seconds, cpu=100 * seconds, **more)


@pytest.mark.parametrize(
    ("device", "of_a_row"), [("disk", {"disk": 1_000_000}), ("network", {"network": 1_000_000})]
)
def test_rows_that_came_slowly_in_an_earlier_run_are_cached_from_the_first_row_on(
    device: str, of_a_row: dict[str, int]
) -> None:
    """Reading takes 10 µs of a worker: nothing but the device makes it worth a cache."""
    rows = sv.from_columns({"x": np.arange(100)}).derive(y=drawn).batch(32)
    read = cost(1e-5, columns={"x": 800}, **of_a_row)
    for pace, expected in ((DevicePace(), []), (DevicePace(**{device: 1e-6}), ["cache"])):
        known = Measured(read=read, steps={"y": cost(2e-3, columns={"y": 800})}, pace=pace)
        with first_choice(rows, known, epochs=10) as loader:
            choices = loader._planner.chooser.present.choices
            assert [choice.what for choice in choices] == expected


def test_a_filter_comes_before_what_an_earlier_run_read_slowly(tmp_path: Path) -> None:
    """Reading and the filter that needs it take less of a worker than the other filter."""
    for number in range(100):
        (tmp_path / f"{number}.bin").write_bytes(b"silva")
    rows = sv.read_files(f"{tmp_path}/*.bin").filter(is_long).filter(is_even).batch(32)
    late = cost(1e-5, columns={"bytes": 500}, disk=1_000_000)
    slow = DevicePace(disk=1e-6)
    for pace, expected in ((DevicePace(), "is_long is_even"), (slow, "is_even is_long")):
        steps = {"is_long": cost(5e-4, kept=50), "is_even": cost(1e-3, kept=50)}
        known = Measured(read=cost(1e-6), late=late, steps=steps, pace=pace)
        with first_choice(rows, known) as loader:
            nodes = walk(loader._planner.plan)
            order = [show_step(node.step) for node in nodes if isinstance(node, Filter)]
            assert " ".join(one.split("(")[0] for one in order) == expected


def drawn(x: int, rng: np.random.Generator) -> float:
    return x + float(rng.random())


def is_long(bytes: bytes) -> bool:
    return len(bytes) > 3


def is_even(path: str) -> bool:
    return int(Path(path).stem) % 2 == 0
