"""Forecasts before a run: nobody is promised more than the machine has, and nothing is moved."""

from __future__ import annotations

import time
from itertools import accumulate

import pytest
from busy import spin

import silva as sv
from silva.cost.model import Work
from silva.cost.replay import Own
from silva.errors import PlanError
from silva.insight.expected_run import StageLoad, Trial, Workers, spread_of
from silva.insight.forecast import forecast
from silva.loader import forecasts
from silva.options import LoaderOptions

COMPUTES = Work(4e-3, 4e-3, 2e-4)
WAITS = Work(4e-3, 1e-5, 1e-5)


def expect(work: Work, rows: float | None = 1e6, own: float = 0.0, **workers):
    allowed = Workers(**{"count": 2, "most_threads": 2, "cores": 2} | workers)
    return forecast((StageLoad("s", work, block_rows=12),), Own(own), rows, allowed)


@pytest.mark.parametrize("backend", [None, "inline", "threads", "processes"])
@pytest.mark.parametrize("workers", [1, 2, 8, 64])
@pytest.mark.parametrize("work", [COMPUTES, WAITS, Work(4e-3, 2e-3, 2e-3)])
def test_a_forecast_lies_in_its_interval_and_below_the_bound(backend, workers, work) -> None:
    found = expect(work, count=workers, most_threads=workers, backend=backend)
    assert 0 < found.low <= found.rows_per_second <= found.high
    assert found.rows_per_second <= found.steady * 1.001
    assert found.steady <= found.bound * 1.02


def test_eight_workers_on_two_cores_compute_twice_as_fast_at_most() -> None:
    alone = expect(COMPUTES, backend="inline").steady
    for backend in ("threads", "processes"):
        eight = expect(COMPUTES, count=8, most_threads=8, backend=backend).steady
        assert alone < eight <= 2 * alone * 1.001


def test_eight_workers_that_wait_are_eight_times_as_fast() -> None:
    alone = expect(WAITS, backend="inline").steady
    assert expect(WAITS, count=8, most_threads=8, backend="threads").steady > 7 * alone


def test_a_slow_trainer_is_the_limit() -> None:
    found = expect(COMPUTES, own=0.1)
    assert found.limit == "the consumer's thread"
    assert found.rows_per_second <= 10


def test_short_runs_wait_for_their_workers() -> None:
    rates = [
        expect(COMPUTES, rows, backend="processes").rows_per_second for rows in (50, 500, 50_000)
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] / 2


def test_threads_whose_rows_wait_become_more_in_long_runs() -> None:
    few, many = (expect(WAITS, 500_000, most_threads=most) for most in (2, 32))
    assert many.rows_per_second > 8 * few.rows_per_second
    short = expect(WAITS, 500, most_threads=32)
    assert short.rows_per_second < many.rows_per_second / 8


def test_later_epochs_read_the_cache() -> None:
    loads, two = (StageLoad("s", COMPUTES, block_rows=12),), Workers(2, 2, 2)
    plain = forecast(loads, Own(0.0), 3000, two, epochs=3)
    cached = forecast(loads, Own(0.0), 3000, two, epochs=3, cached=1e6)
    assert cached.rows_per_second == pytest.approx(3 * plain.rows_per_second, rel=0.1)


def test_a_trial_whose_rate_varies_makes_the_interval_wider() -> None:
    loads, two = (StageLoad("s", COMPUTES, block_rows=12),), Workers(2, 2, 2)
    steady = spread_of([0.1 * n for n in range(200)])
    uneven = spread_of(list(accumulate(0.1 if n < 150 else 0.4 for n in range(200))))
    assert steady < 0.05 < 0.3 < uneven
    found = [
        forecast(loads, Own(0.0), 1e6, two, tried=Trial(None, spread=s)) for s in (steady, uneven)
    ]
    assert found[0].rows_per_second == found[1].rows_per_second
    wide = [(one.high - one.low) / one.rows_per_second for one in found]
    assert wide[1] > 1.2 * wide[0]


def test_an_interval_holds_a_run_that_differs_by_two_deviations_of_its_trials() -> None:
    loads, two = (StageLoad("s", COMPUTES, block_rows=12),), Workers(2, 2, 2)
    for spread in (0.1, 0.3, 0.9):
        found = forecast(loads, Own(0.0), 1e6, two, tried=Trial(None, spread=spread))
        assert found.high > (1 + 2 * spread) * found.rows_per_second
        assert found.low < found.rows_per_second / (1 + 2 * spread)


def test_a_run_as_short_as_its_trial_takes_as_long_however_many_rows_were_expected() -> None:
    loads, two = (StageLoad("s", COMPUTES, block_rows=12),), Workers(2, 2, 2)
    for expected in (None, 30, 100, 400):
        tried = Trial(None, rows=100, seconds=2.0, ended=True)
        found = forecast(loads, Own(0.0), expected, two, tried=tried)
        assert found.rows_per_second == pytest.approx(50)


@pytest.mark.parametrize("backend", [None, "inline", "threads", "processes"])
def test_a_longer_run_goes_on_as_its_trial_ended(backend) -> None:
    loads, two = (StageLoad("s", COMPUTES, block_rows=12),), Workers(2, 2, 2, backend)
    tried = Trial(None, rows=100, seconds=2.0, pace=100.0)
    found = forecast(loads, Own(0.0), 1000, two, tried=tried)
    assert found.rows_per_second == pytest.approx(1000 / (2 + 900 / 100), rel=0.05)


def test_epochs_that_read_a_cache_follow_what_was_tried() -> None:
    loads, one = (StageLoad("s", COMPUTES, block_rows=12),), Workers(0, 0, 2, "inline")
    for rows, seconds in ((100, 1.0), (1000, 10.0), (1500, 10.5)):  # the last one read the cache
        tried = Trial(None, rows=rows, seconds=seconds, pace=100.0)
        found = forecast(loads, Own(0.0), 3000, one, epochs=3, cached=1000.0, tried=tried)
        assert found.rows_per_second == pytest.approx(3000 / 12, rel=0.05)


def test_a_forecast_takes_no_row_from_the_run() -> None:
    pipeline = sv.from_columns({"x": range(100)}).shuffle(seed=1).derive(y=lambda x: -x).batch(10)
    expected = [batch["y"].tolist() for batch in pipeline.loader(workers=0)]
    found = pipeline.forecast(epochs=2)
    assert found.low < found.rows_per_second < found.high
    assert [batch["y"].tolist() for batch in pipeline.loader(workers=0)] == expected


def test_a_forecast_needs_rows_and_a_possible_trainer() -> None:
    numbers = sv.from_columns({"x": [1, 2, 3]})
    with pytest.raises(PlanError, match="kept none"), pytest.warns(UserWarning, match="kept none"):
        numbers.filter(sv.col("x") > 5).forecast()
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(PlanError, match="seconds per batch"):
            numbers.forecast(consumer=seconds)


def test_explain_forecasts_what_the_book_knows(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SILVA_PROFILES", str(tmp_path))
    pipeline = sv.from_columns({"x": range(200)}).derive(y=spin(1)).select("y").batch(8)
    assert "forecast: " not in pipeline.explain()
    with pipeline.loader(backend="inline") as loader:
        list(loader)
        assert "forecast: " not in loader.explain()  # it has been measured
    explained = pipeline.explain(backend="inline")
    assert "measured by earlier runs" in explained
    rate = float(explained.split("forecast: ")[1].split(" rows/s")[0].replace(",", ""))
    assert 0 < rate <= 1000  # however busy the machine is


@pytest.mark.rest
def test_the_forecast_of_a_real_run_is_near_its_clock() -> None:
    rows = 600
    pipeline = sv.from_columns({"x": range(rows)}).derive(y=spin(1)).select("y").batch(8)
    ratios = []
    for _ in range(3):  # the machine may be busy at any one of them
        found = pipeline.forecast(backend="inline")
        began = time.perf_counter()
        with pipeline.loader(backend="inline") as loader:
            list(loader)
        ratios.append(found.rows_per_second * (time.perf_counter() - began) / rows)
    assert min(abs(ratio - 1) for ratio in ratios) < 0.25


@pytest.mark.rest
def test_a_trial_goes_on_until_nothing_is_compared() -> None:
    """What is still being tried says little of the run, however long it has taken to start."""
    pipeline = sv.from_columns({"x": range(1 << 20)}).derive(y=spin(1)).select("y").batch(8)
    asked = LoaderOptions(workers=2, backend="processes")
    tried, facts = forecasts._run_until(time.monotonic(), pipeline.plan, asked, consumer=0.0)
    assert all(stage.settled for stage in facts.stages)
    assert not tried.ended
    assert tried.rows > 8  # more than the batch after which its time was over


def test_the_time_for_a_trial_begins_with_its_first_batch(monkeypatch) -> None:
    """Workers may take longer to start than the trial may take."""
    monkeypatch.setattr(forecasts, "_UNSETTLED_SECONDS", 1e-9)
    pipeline = sv.from_columns({"x": range(1 << 20)}).derive(y=lambda x: x).batch(8)
    tried, _ = forecasts._run_until(time.monotonic(), pipeline.plan, LoaderOptions(workers=2), 0.0)
    assert tried.rows > 8
