"""Costs by the size of rows: a profile of small rows does not mislead about large ones."""

from __future__ import annotations

import time

import numpy as np
import pytest

import silva as sv
from silva.cost.book import Book
from silva.cost.bytes_fit import Line
from silva.cost.costs import Cost, StepUse
from silva.planner.known_costs import Measured, from_book, write_down
from silva.planner.movable_runs import step_runs
from silva.testing import stream


def shrink(x):
    return x[::2]


def is_wanted(y):
    return y[0] == 0


def _run(size: int, rows: int = 8):
    data = np.zeros((rows, size), np.uint8)
    pipeline = sv.from_columns({"x": data}).derive(y=shrink).filter(is_wanted).batch(4)
    (run,) = step_runs(pipeline.plan)
    return run


def _cost(size: int, per_row: float, per_byte: float) -> Cost:
    """Of a step that takes so long, and writes half of what it reads."""
    cost = Cost()
    for _ in range(3):
        seconds = 10 * (per_row + per_byte * size)
        cost.add(StepUse(seconds, seconds, 10, 10, (("y", 5 * size),), bytes_in=10 * size))
    return cost


def _noted(book: Book, *sizes: int, per_row: float = 1e-3, per_byte: float = 1e-6) -> None:
    for size in sizes:
        run = _run(size)
        first, second = run.steps
        steps = {first.id: _cost(size, per_row, per_byte), second.id: _cost(size // 2, per_row, 0)}
        write_down(book, run.source, run.steps, Measured(steps=steps))


def _known(book: Book, size: int) -> list[Cost]:
    run = _run(size)
    found = from_book(book, run.source, run.steps)
    return [found.steps[step.id] for step in run.steps if step.id in found.steps]


def test_a_profile_of_small_rows_does_not_mislead_about_large_ones(tmp_path) -> None:
    book = Book(tmp_path)
    _noted(book, 2_000, 8_000)
    shrinking, filtering = _known(book, 1_000_000)
    assert shrinking.seconds_a_row == pytest.approx(1.001, rel=0.01), "1 ms and 1 µs a byte"
    assert shrinking.bytes_a_row("y") == pytest.approx(500_000, rel=0.01)
    assert filtering.seconds_a_row == pytest.approx(1e-3, rel=0.01), "not a matter of bytes"


def test_of_rows_of_one_size_large_ones_are_taken_to_cost_by_their_bytes(tmp_path) -> None:
    book = Book(tmp_path)
    _noted(book, 4_000)
    (shrinking, _) = _known(book, 400_000)
    assert shrinking.seconds_a_row == pytest.approx(100 * 5e-3, rel=0.01)
    tiny = Book(tmp_path / "tiny")
    _noted(tiny, 40)
    assert _known(tiny, 80)[0].seconds_a_row == pytest.approx(1.04e-3, rel=0.01)


def test_the_same_source_is_known_as_it_was(tmp_path) -> None:
    book = Book(tmp_path)
    _noted(book, 2_000, 8_000)
    assert _known(book, 2_000)[0].seconds_a_row == pytest.approx(3e-3)


def test_nothing_is_assumed_about_rows_of_unknown_size(tmp_path) -> None:
    book = Book(tmp_path)
    _noted(book, 2_000)
    run = _run(9_000)
    source = run.source.source
    object.__setattr__(source, "row_bytes", dict)
    assert from_book(book, run.source, run.steps).steps == {}


def test_a_fitted_line_is_never_negative() -> None:
    falling = Line().seen(10, 10_000, 1.0).seen(10, 50_000, 0.5)
    assert falling.slope == 0
    steep = Line().seen(10, 10_000, 0.0).seen(10, 20_000, 1.0)
    assert steep.at(0) >= 0


def test_bytes_that_come_in_are_measured_in_the_run() -> None:
    def slow(x):
        end = time.thread_time() + 1e-4
        while time.thread_time() < end:
            pass
        return x[:4]

    data = np.zeros((400, 2_000), np.uint8)
    pipeline = sv.from_columns({"x": data}).derive(y=slow).select("y").batch(8)
    with pipeline.loader(backend="inline") as loader:
        stream(loader)
        cost = loader._executor.lanes["stage 1"].stats.steps[1]
    assert cost.by_size.size == pytest.approx(2_000, rel=0.1)
    assert cost.grows.mean < 200
