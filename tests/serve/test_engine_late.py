"""An objective that is missed already: batches stay large, so that those behind keep theirs."""

from __future__ import annotations

import asyncio
import math

import pytest
from tests.serve.engine_tools import answers, opened

import silva as sv
from silva.serve.engine.curve import Curve


@pytest.mark.parametrize(("waited", "rows"), [(0.0, 49), (0.5, 24), (5.0, 49)])
def test_late_requests_make_no_batch_small(waited: float, rows: int) -> None:
    sizes: list[int] = []
    asked = 64
    calls = 0

    @sv.batched
    def first(x):
        sizes.append(len(x))
        return x

    def clock() -> float:
        """All arrive at 0, and their first batch is made after they have waited."""
        nonlocal calls
        calls += 1
        return 0.0 if calls <= asked else waited

    with opened(sv.requests("x").derive(y=first), slo=1.0, clock=clock) as engine:
        (station,) = engine.stations
        for count in (1, 64):
            station.curve.add(count, 0.02 + 0.02 * count)
        station.batches = 2
        asyncio.run(answers(engine, [{"x": n} for n in range(asked)]))
    assert sizes[0] == rows


@pytest.mark.parametrize("seconds", [0.0, 0.005, 1.0, math.inf])
def test_rows_that_cost_nothing_are_taken_together(seconds: float) -> None:
    curve = Curve()
    for rows in (1, 8):
        curve.add(rows, 0.01)
    assert curve.most_rows(seconds, waiting=10) == 10


def test_no_batch_is_made_small_for_one_that_makes_more_late() -> None:
    """The oldest of 150 would be in time in a batch of 25, and most of those behind it not."""
    sizes: list[int] = []

    @sv.batched
    def first(x):
        sizes.append(len(x))
        return x

    arrivals = iter([0.001 * n for n in range(150)])
    made = sv.requests("x").derive(y=first)
    with opened(made, slo=0.2, clock=lambda: next(arrivals, 0.15)) as engine:
        (station,) = engine.stations
        for count in (1, 150):
            station.curve.add(count, 0.04 + 0.0004 * count)
        station.batches = 2
        asyncio.run(answers(engine, [{"x": n} for n in range(150)]))
    assert sizes[0] == 150
