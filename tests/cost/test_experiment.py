"""What runs is decided by what it did, where that is not what was predicted."""

from __future__ import annotations

import pytest

from silva.cost.experiment import MARGIN, SECONDS, Experiment, Progress

START = Progress(rows=0, seconds=0.0, waited=0.0)


def after(
    rows_a_second: float, seconds: float = 2.0, waiting: float = 0.9, since: Progress = START
) -> Progress:
    """The counters of what did so much while the consumer waited for a share of it."""
    return since._replace(
        rows=since.rows + int(rows_a_second * seconds),
        seconds=since.seconds + seconds,
        waited=since.waited + waiting * seconds,
    )


def trial(**promised: float) -> Experiment[str]:
    return Experiment("inline", 100.0, dict(promised), next(iter(promised)), START)


def test_a_backend_that_reaches_its_prediction_is_kept() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge(after(170.0)) == "threads"
    assert not made.open


def test_nothing_is_said_before_there_is_something_to_see() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge(after(10.0, seconds=0.1)) is None
    assert made.judge(after(170.0, seconds=SECONDS / 2)) is None
    assert made.open


def test_a_consumer_that_does_not_wait_tells_nothing_about_the_stage() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge(after(50.0, waiting=0.02)) == "threads"


def test_what_another_place_promises_is_tried_and_the_best_is_kept() -> None:
    made = trial(threads=190.0, processes=180.0)
    bad = after(90.0, seconds=0.5)
    assert made.judge(bad) == "processes"
    assert made.open
    assert made.judge(after(130.0, since=bad)) == "processes"
    assert not made.open
    assert made.seen == {"inline": 100.0, "threads": 90.0, "processes": 130.0}


@pytest.mark.parametrize("promised", [{"threads": 190.0}, {"threads": 190.0, "processes": 105.0}])
def test_where_workers_do_not_help_the_consumer_goes_on_alone(promised: dict[str, float]) -> None:
    made = trial(**promised)
    assert made.judge(after(102.0)) == "inline"
    assert not made.open


def test_the_first_place_is_returned_to_where_the_second_is_worse() -> None:
    made = trial(threads=190.0, processes=180.0)
    some = after(140.0)
    assert made.judge(some) == "processes"
    assert made.judge(after(110.0, since=some)) == "threads"


def test_measurements_of_cold_workers_are_ignored() -> None:
    made = trial(processes=190.0)
    made.settling = 5
    made.begin(START)
    cold = after(20.0)._replace(blocks=4)
    assert made.judge(cold) is None
    few = after(20.0, since=cold)._replace(blocks=6)
    assert made.judge(few) is None, "as many blocks are measured as were left out"
    assert made.judge(after(180.0, since=cold)._replace(blocks=9)) == "processes"


def test_a_prediction_made_on_cold_rows_is_not_used_later() -> None:
    """Rows took 10 ms when nothing was imported, and 2 ms later: alone, 500 a second."""
    made = trial(threads=180.0, processes=200.0)
    made.cpu = 10e-3
    slow = after(400.0, seconds=0.5)._replace(cpu=0.4)
    assert made.judge(slow) == "processes"
    assert made.seen["inline"] == pytest.approx(500.0)
    assert made.promised["processes"] == pytest.approx(1000.0)
    best = after(900.0, since=slow)._replace(cpu=0.4 + 3.6)
    assert made.judge(best) == "processes"


def test_warm_rows_do_not_make_bringing_results_back_any_faster() -> None:
    made = trial(threads=190.0, processes=180.0)
    made.cpu, made.most = 0.01, {"processes": 200.0}
    seen = after(300.0)
    assert made.judge(seen._replace(cpu=0.001 * seen.rows)) == "inline"  # ten times as fast, warm
    assert "processes" not in made.seen


def test_cores_that_are_slower_together_do_not_excuse_a_place() -> None:
    made = trial(threads=190.0)
    made.cpu = 10e-3
    assert made.judge(after(95.0)._replace(cpu=3.0)) == "inline"
    assert made.seen["inline"] == 100.0


def test_a_change_that_costs_nothing_is_kept_unless_it_is_slower() -> None:
    for pace, kept in ((98.0, "order"), (90.0, "before")):
        made = Experiment("before", 100.0, {"order": 110.0}, "order", START, margin=1 / MARGIN)
        assert made.judge(after(pace)) == kept
        assert made.measured_gain == pytest.approx(pace / 100 if kept == "order" else 1.0)


def test_what_was_slower_than_the_default_is_not_kept_because_little_was_promised() -> None:
    made = trial(threads=112.0)
    assert made.judge(after(95.0)) == "inline"


def test_a_candidate_for_which_the_consumer_waits_a_little_is_left_only_if_it_is_slower() -> None:
    made = trial(threads=190.0, processes=180.0)
    assert made.judge(after(140.0, waiting=0.2)) == "threads"
    made = trial(threads=190.0, processes=180.0)
    assert made.judge(after(90.0, waiting=0.2)) == "processes"


def test_a_loop_that_begins_to_take_its_time_does_not_make_workers_look_slower() -> None:
    """Nothing was handed out while the stage ran inline; now the loop takes 10 ms a row."""
    made = Experiment("inline", 100.0, {"threads": 190.0}, "threads", START, own=0.0)
    assert made.judge(after(90.0, waiting=0.1)) == "threads"
    assert made.seen["inline"] == pytest.approx(50.0)
    slower = Experiment("inline", 100.0, {"threads": 190.0}, "threads", START, own=0.0)
    assert slower.judge(after(45.0, waiting=0.55)) == "inline"
