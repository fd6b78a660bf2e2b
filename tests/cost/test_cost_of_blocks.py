"""What a block costs however few rows it has, and what a worker that is queued costs."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import silva as sv
from silva.columns import Block
from silva.cost.book import Book
from silva.cost.costs import Cost, StepUse
from silva.physical.stage.stage import Result
from silva.planner.choose import choose
from silva.planner.known_costs import Measured
from silva.planner.movable_runs import step_runs
from silva.run.placement.measured import LaneStats

PER_BLOCK, PER_ROW = 400e-6, 1e-7


def measured(sizes: list[int], keeps: float, per_block: float, per_row: float) -> Cost:
    cost = Cost()
    for rows in sizes:
        spent = per_block + rows * per_row
        cost.add(StepUse(spent, spent, rows, round(keeps * rows)))
    return cost


def test_a_filter_that_few_rows_reach_is_not_taken_for_a_slow_one() -> None:
    """A join takes 400 µs for a block of any size; behind a filter, 20 rows of a block are left."""
    rows = sv.from_columns({"a": list(range(1000)), "b": list(range(1000))})
    plan = rows.filter(lambda a: a % 50 == 0).filter(sv.col("b") % 2 == 0).batch(8).plan
    (run,) = step_runs(plan)
    slow, cheap = run.steps
    sizes = [900, 1000, 1100, 1200] * 4
    left = [rows // 50 for rows in sizes]
    for per_block, moves in ((PER_BLOCK, True), (0.0, False)):
        per_row = PER_ROW if moves else PER_BLOCK / 20
        costs = {
            slow.id: measured(sizes, 1 / 50, 0.0, 10e-6),
            cheap.id: measured(left, 0.5, per_block, per_row),
        }
        known = Measured(measured(sizes, 1.0, 0.0, 1e-7), Cost(), costs)
        chosen = choose(plan, [known], epochs=1, workers=0, locations=())
        assert bool(chosen.choices) == moves


def test_the_cost_of_blocks_is_not_read_into_noise() -> None:
    draw = random.Random(0)
    for _ in range(200):
        cost = Cost()
        for _ in range(12):
            rows = draw.randint(40, 60)
            spent = rows * 1e-4 * draw.lognormvariate(0.0, 0.4)
            cost.add(StepUse(spent, spent, rows, rows))
        assert cost.block_share < 0.5
    assert Cost().block_share == 0.0
    assert measured([50] * 20, 1.0, PER_BLOCK, PER_ROW).block_share == 0.0, "one size"


def test_the_cost_of_blocks_is_kept_for_later_runs(tmp_path) -> None:
    cost = measured([10, 20, 30, 40] * 4, 1.0, PER_BLOCK, PER_ROW)
    assert cost.block_share > 0.9
    book = Book(tmp_path)
    book.put("f00d", cost)
    assert book.get("f00d").block_share == pytest.approx(cost.block_share, rel=1e-6)
    assert book.get("f00d").rows_a_block == pytest.approx(25.0)
    half = cost.since(measured([10, 20, 30, 40] * 2, 1.0, PER_BLOCK, PER_ROW))
    assert half.block_share == pytest.approx(cost.block_share, rel=1e-6)


def test_time_in_line_for_a_core_is_not_a_cost_of_steps() -> None:
    """On a busy machine a worker is held up in one step or another, for longer than it works."""
    uses = (StepUse(1e-3, 1e-3, 10, 10), StepUse(9e-3, 2e-3, 10, 5), StepUse(5e-3, 0.0, 5, 5))
    result = Result(
        Block({}, np.arange(5)), 10, None, (), (), 15e-3, 3e-3, uses[:2], uses[2], queued=6e-3
    )
    stats = LaneStats()
    for _ in range(3):
        stats.add(result, 10, 0)
        stats.add_steps(result, None)
    read, step = stats.steps
    assert read.seconds_a_row == pytest.approx(1e-4)
    assert step.seconds_a_row == pytest.approx(9e-4 - 7 / 12 * 6e-4)
    assert stats.late.seconds_a_row == pytest.approx((5e-3 - 5 / 12 * 6e-3) / 5)
    assert stats.worked == pytest.approx(3 * 9e-3)
    at_rest = LaneStats()
    at_rest.add_steps(replace(result, queued=0.0), None)
    assert at_rest.steps[1].seconds_a_row == pytest.approx(9e-4)
