"""What a cache was expected to save, and what it saved."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import silva as sv
from silva.facts.collect import decisions
from silva.facts.text import decision_line
from silva.plan.decision import Decision, Quantity
from silva.planner.cache_gains import Epochs
from silva.run.placement.measured import LaneStats
from silva.testing import stream

WITHOUT, WITH = "the plan", "the plan with a cache"
CACHE = Decision(
    "cache", "rows are cached", Quantity(500.0), default=Quantity(100.0), of="epochs that read it"
)


def _run(epochs: list[tuple[str, float, bool]]) -> Epochs:
    """Epochs of (plan, seconds of work, complete); the cache is chosen with the first."""
    stats = LaneStats()
    made = Epochs({"stage 1": SimpleNamespace(stats=stats)}, workers=1)
    made.promise(WITH, [CACHE], rows=100)
    for plan, spent, complete in epochs:
        made.begin(plan, whole=True)
        stats.busy += 0.75 * spent
        stats.keeping += 0.25 * spent
        made.end(plan, complete)
    return made


def test_an_epoch_from_the_cache_is_compared_with_the_steps() -> None:
    gain = _run([(WITH, 1.3, True), (WITH, 0.25, True)]).experiment
    assert gain.predicted_gain == pytest.approx(5.0)
    assert gain.measured_gain == pytest.approx(4.0), "100 rows at 0.01 s, in 0.25 s"
    (decision,) = decisions((), [CACHE], (), cache_gain=gain)
    line = decision_line(decision)
    assert "(epochs that read it: predicted 5.0×, measured 4.0×, 25 % too high)" in line


@pytest.mark.parametrize(
    "epochs",
    [
        [],
        [(WITH, 1.3, True)],
        [(WITHOUT, 1.0, True), (WITH, 1.3, True)],
        [(WITH, 1.3, True), (WITH, 0.1, False)],
        [(WITH, 0.3, False), (WITH, 1.2, True)],
    ],
)
def test_what_fills_the_cache_or_was_left_early_proves_nothing(epochs) -> None:
    assert _run(epochs).experiment.measured_gain is None


def test_the_first_prediction_is_the_one_that_is_compared() -> None:
    made = _run([(WITH, 1.3, True), (WITH, 0.25, True)])
    made.promise(WITH, [replace(CACHE, predicted=Quantity(400.0))], rows=100)
    assert made.experiment.predicted_gain == pytest.approx(5.0)


def test_explain_shows_the_measured_gain_of_a_cache() -> None:
    def slow(x):
        end = time.thread_time() + 5e-4
        while time.thread_time() < end:
            pass
        return np.full(50, x)

    pipeline = sv.from_columns({"x": range(600)}).derive(y=slow).batch(8)
    with pipeline.loader(backend="inline", epochs=5) as loader:
        for _ in range(5):
            stream(loader)
        told = loader.explain(analyze=True)
        why = loader.why("y")
    (cache,) = [decision for decision in told.facts.decisions if decision.name == "cache"]
    assert cache.measured_gain > 1, "a cache of what takes half a millisecond saves time"
    assert cache.predicted_gain > 1
    assert "epochs that read it: predicted" in " ".join(told.split())
    assert "measured" in " ".join(why.split()).partition("epochs that read it")[2].partition(")")[0]
