"""Where a stage runs is decided by what it did there, where that is not what was predicted."""

from __future__ import annotations

import pytest

from silva.run.placement.measured import Counters
from silva.run.placement.trial import SECONDS, Trial

START = Counters(rows=0, elapsed=0.0, starved=0.0, busy=0.0, cpu=0.0, blocks=0)


def after(
    rows_a_second: float, seconds: float = 2.0, waiting: float = 0.9, since: Counters = START
) -> Counters:
    """The counters of a stage that did so much while the consumer waited for a share of it."""
    return since._replace(
        rows=since.rows + int(rows_a_second * seconds),
        elapsed=since.elapsed + seconds,
        starved=since.starved + waiting * seconds,
    )


def trial(**promised: float) -> Trial:
    return Trial(100.0, dict(promised), START, settling=0)  # type: ignore[arg-type]


def test_a_backend_that_reaches_its_prediction_is_kept() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge("threads", after(170.0)) == "threads"
    assert not made.open


def test_nothing_is_said_before_there_is_something_to_see() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge("threads", after(10.0, seconds=0.1)) is None
    assert made.judge("threads", after(170.0, seconds=SECONDS / 2)) is None
    assert made.open


def test_a_consumer_that_does_not_wait_tells_nothing_about_the_stage() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge("threads", after(50.0, waiting=0.1)) == "threads"


def test_what_another_place_promises_is_tried_and_the_best_is_kept() -> None:
    made = trial(threads=190.0, processes=180.0)
    bad = after(90.0, seconds=0.5)
    assert made.judge("threads", bad) == "processes"
    assert made.open
    assert made.judge("processes", after(130.0, since=bad)) == "processes"
    assert not made.open
    assert made.describe() == (
        "100 rows/s without workers, 90 rows/s on threads, 130 rows/s on processes"
    )


@pytest.mark.parametrize("promised", [{"threads": 190.0}, {"threads": 190.0, "processes": 105.0}])
def test_where_workers_do_not_help_the_consumer_goes_on_alone(promised: dict[str, float]) -> None:
    made = trial(**promised)
    assert made.judge("threads", after(102.0)) == "inline"
    assert not made.open


def test_the_first_place_is_returned_to_where_the_second_is_worse() -> None:
    made = trial(threads=190.0, processes=180.0)
    some = after(140.0)
    assert made.judge("threads", some) == "processes"
    assert made.judge("processes", after(110.0, since=some)) == "threads"


def test_measurements_of_cold_workers_are_ignored() -> None:
    made = Trial(100.0, {"processes": 190.0}, START, settling=5)
    cold = after(20.0)._replace(blocks=4)
    assert made.judge("processes", cold) is None
    assert made.judge("processes", after(180.0, since=cold)._replace(blocks=9)) == "processes"


def test_a_prediction_made_on_cold_rows_is_not_used_later() -> None:
    """Rows took 10 ms when nothing was imported, and 2 ms later: alone, 500 a second."""
    made = Trial(100.0, {"threads": 180.0, "processes": 200.0}, START, settling=0, cpu=10e-3)
    slow = after(400.0, seconds=0.5)._replace(cpu=0.4)
    assert made.judge("threads", slow) == "processes"
    assert made.alone == pytest.approx(500.0)
    assert made.promised["processes"] == pytest.approx(1000.0)
    best = after(900.0, since=slow)._replace(cpu=0.4 + 3.6)
    assert made.judge("processes", best) == "processes"


def test_cores_that_are_slower_together_do_not_excuse_a_place() -> None:
    made = Trial(100.0, {"threads": 190.0}, START, settling=0, cpu=10e-3)
    assert made.judge("threads", after(95.0)._replace(cpu=3.0)) == "inline"
    assert made.alone == 100.0
