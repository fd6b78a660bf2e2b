"""A plan is looked at again when a cost has changed, and changes only if that pays."""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import silva as sv
from silva.cost.costs import Cost, StepUse
from silva.cost.drift import Drift
from silva.cost.model import Work
from silva.plan.decision import Decision
from silva.planner.chosen import Chosen
from silva.planner.known_costs import Effort, Measured
from silva.planner.movable_runs import StepRun
from silva.planner.search import Deadline, Movable, search
from silva.planner.switching import Switching
from silva.run.placement.measured import LaneStats

ROWS = 4000


def first_filter(x):
    return x % 2 == 0


def second_filter(z):
    return z % 2 == 0


def two_filters(rows: int = ROWS) -> sv.Pipeline:
    """Filters that keep the same share of the rows: the cheaper one should come first."""
    found = sv.from_columns({"x": range(rows), "z": [n // 2 for n in range(rows)]})
    return found.filter(first_filter).filter(second_filter).batch(8)


class ScriptedCosts:
    """Declares what the two filters take, in seconds for a row, after each number of looks."""

    effort = Effort(0.0, math.inf, math.inf)

    def __init__(self, *seconds: tuple[float, float]) -> None:
        self._seconds = list(seconds)
        self._looks = 0

    def before(self, run: StepRun) -> Measured:
        return self._measured(run, self._seconds[0])

    def now(self, run: StepRun) -> Measured:
        self._looks += 1
        return self._measured(run, self._seconds[min(self._looks, len(self._seconds) - 1)])

    def _measured(self, run: StepRun, seconds: tuple[float, float]) -> Measured:
        steps = {
            step.id: Cost(100, 50, 100 * took, 100 * took)
            for step, took in zip(run.steps, seconds, strict=True)
        }
        return Measured(Cost(100, 100, 1e-6, 1e-6, {"x": 800, "z": 800}), Cost(), steps)

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


class CostsAfterTheFirstBatch:
    """Declares the seconds for a row and the share of rows kept of each step, once it is asked."""

    effort = Effort(0.0, math.inf, math.inf)

    def __init__(self, steps: dict[str, tuple[float, float]]) -> None:
        self._steps = {
            name: Cost(100, round(100 * keeps), 100 * took, 100 * took)
            for name, (took, keeps) in steps.items()
        }

    def before(self, run: StepRun) -> Measured:
        return Measured()

    def now(self, run: StepRun) -> Measured:
        steps = {step.id: self._steps[step.id] for step in run.steps}
        return Measured(Cost(100, 100, 1e-6, 1e-6, {"x": 800, "z": 800}), Cost(), steps)

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


def read(loader: sv.Loader) -> tuple[list[str], list[str]]:
    """The batches of an epoch, and the state after each of them."""
    states = []
    batches = []
    for batch in loader:
        batches.append(batch["x"].tolist())
        states.append(json.dumps(loader.state_dict()))
    return batches, states


def history(loader: sv.Loader) -> list[Decision]:
    return list(loader.facts().history)


def test_a_step_that_becomes_slow_moves_behind_the_others() -> None:
    costs = ScriptedCosts(*[(1.0, 2.0)] * 20, *[(10.0, 2.0)])
    plain = two_filters().options(optimize=False).loader(backend="inline")
    with two_filters().loader(backend="inline").with_seams(costs=costs) as loader:
        assert read(loader) == read(plain)
        (change,) = history(loader)
        assert change.what == "order"
        assert "10.0× as long" in change.why
        assert "filter first_filter(x)" in change.why
        assert change.predicted_gain == pytest.approx(11.0 / 7.0, rel=0.05)


def test_a_state_saved_before_the_change_loads_after_it_and_back() -> None:
    plain = two_filters(200).options(optimize=False).loader(backend="inline")
    expected, states = read(plain)
    for number, state in enumerate(states[::5]):
        costs = ScriptedCosts(*[(1.0, 2.0)] * 3, *[(10.0, 2.0)])
        loader = two_filters(200).loader(backend="inline").with_seams(costs=costs)
        loader.load_state_dict(json.loads(state))
        batches, after = read(loader)
        assert batches == expected[5 * number + 1 :]
        assert after == states[5 * number + 1 :]


def test_a_cost_that_changes_too_little_moves_nothing() -> None:
    costs = ScriptedCosts(*[(1.0, 1.0), (1.04, 1.0), (1.0, 1.05)] * 40)
    with two_filters().loader(backend="inline").with_seams(costs=costs) as loader:
        read(loader)
        assert history(loader) == []


def test_a_step_that_few_rows_reach_does_not_hide_what_a_change_saves() -> None:
    branches = [sv.from_columns({"x": range(ROWS), "z": range(ROWS)}) for _ in range(2)]
    rows = sv.concat([b.filter(first_filter).filter(second_filter) for b in branches])
    pipeline = rows.derive(y=lambda x: x).batch(8)
    costs = CostsAfterTheFirstBatch({"filter#0": (2.0, 0.1), "filter#1": (1.0, 0.1), "y#0": (9, 1)})
    with pipeline.loader(backend="inline").with_seams(costs=costs) as loader:
        read(loader)
        (change,) = history(loader)
    before, after = 2 * (2.0 + 0.1 * 1.0), 2 * (1.0 + 0.1 * 2.0)  # in both branches
    reached = 2 * 0.1 * 0.1 * 9
    assert change.predicted_gain == pytest.approx((before + reached) / (after + reached), rel=0.05)


def test_costs_that_alternate_do_not_make_plans_alternate() -> None:
    """Each return to a plan must be better by another 10 %: a cost that doubles and halves moves
    the plan only so often."""
    costs = ScriptedCosts(*[(1.0, 2.0), (1.0, 2.0), (4.0, 2.0), (4.0, 2.0)] * 150)
    with two_filters().loader(backend="inline").with_seams(costs=costs) as loader:
        read(loader)
        assert 1 <= len(history(loader)) <= 12


# What planning costs.


class LastRun(ScriptedCosts):
    """Costs of an earlier run, which say that the order should change, within bounds."""

    effort = Effort(0.0, 1.0, 0.05)


def first_look(seconds: float, *ticks: float) -> sv.Loader:
    """A loader before its first batch; a row takes so many seconds, and the clock of planning goes
    on by `ticks`, the last one again and again."""
    clock = itertools.accumulate(itertools.chain(ticks, itertools.repeat(ticks[-1])))
    loader = (
        two_filters()
        .loader(backend="inline")
        .with_seams(costs=LastRun((10 * seconds, seconds)), cpu_clock=lambda: next(clock))
    )
    with loader:
        loader._planner.start(0)
    return loader


def changed_before_the_first_row(loader: sv.Loader) -> bool:
    return [choice.what for choice in loader._planner.chooser.present.choices] == ["order"]


def test_a_first_batch_waits_for_planning_at_most_a_twentieth_of_its_work() -> None:
    """A look at two filters is estimated to take about a millisecond, or ten if it must import."""
    assert changed_before_the_first_row(first_look(1.0, 0.0))
    assert not changed_before_the_first_row(first_look(1e-5, 0.0))
    # reading what earlier runs cost has taken too long already
    assert not changed_before_the_first_row(first_look(1e-2, 0.0, 10.0, 0.0))


def test_a_search_that_takes_longer_than_was_expected_ends_before_the_first_batch_is_late() -> None:
    looks = []

    class Clock:
        """Every look at the clock takes a tenth of what the first batch may wait."""

        def __call__(self) -> float:
            looks.append(1)
            return sum(looks)

    # which of two resources is the bottleneck depends on the order: sets must be looked at
    steps = [
        Movable(Work(seconds=float(n % 3), memory=float(n % 4)), 0.5, 0, True) for n in range(10)
    ]
    found = search(steps, deadline=Deadline(10, Clock()))
    assert len(looks) == 10, "of 2 ** 10 sets of steps"
    assert sorted(found.order) == list(range(10))
    assert found == search(steps, deadline=Deadline(0, lambda: 1))


@pytest.mark.parametrize(("look", "looks"), [(0.0, True), (10.0, False)])
def test_looks_that_would_take_more_than_their_share_of_the_run_do_not_happen(
    look: float, looks: bool
) -> None:
    """The share is a thousand times the run, which takes milliseconds. The rest of planning counts
    as well: where a stage runs, and checks."""
    clock = itertools.count(0.0, look)
    costs = ScriptedCosts(*[(1.0, 2.0)] * 20, *[(10.0, 2.0)])
    costs.effort = Effort(0.0, 1e3, math.inf)
    pipeline = two_filters().loader(backend="inline")
    with pipeline.with_seams(costs=costs, cpu_clock=lambda: next(clock)) as loader:
        read(loader)
        planning = loader.facts().planning
        assert (history(loader) != []) == looks
    assert planning.seconds == planning.plans + planning.backends + planning.checks
    assert (planning.seconds > 0) == (look > 0)
    assert (planning.backends > 0) == (look > 0)


def test_what_the_first_look_imports_is_not_expected_of_the_next_one(monkeypatch) -> None:
    """A look waits if one more would take too long; the search is imported only once."""
    search = "silva.planner.choose"
    monkeypatch.delitem(sys.modules, search, raising=False)
    costs = ScriptedCosts(*[(1.0, 2.0)] * 20, *[(10.0, 2.0)])
    costs.effort = Effort(0.0, math.inf, math.inf)
    pipeline = two_filters().loader(backend="inline")
    clock = {"cpu_clock": lambda: 100.0 * (search in sys.modules)}
    with pipeline.with_seams(costs=costs, **clock) as loader:
        read(loader)
        assert history(loader) != []
        assert loader.facts().planning.plans == 100.0
        assert loader._planner.chooser._look_seconds == 0.0


# Drift.


def blocks(mean: float, spread: float, count: int, seed: int) -> list[StepUse]:
    """Blocks whose seconds vary log-normally, as on a busy machine."""
    draw = random.Random(seed)
    every = (10 * mean * draw.lognormvariate(-(spread**2) / 2, spread) for _ in range(count))
    return [StepUse(seconds, seconds, 10, 10) for seconds in every]


def follow(uses: list[StepUse]) -> list[int]:
    """The numbers of blocks after which a drift was seen."""
    cost, drift, found = Cost(), Drift(), []
    for number, use in enumerate(uses):
        cost.add(use)
        if drift.compare({"step": cost}):
            found.append(number)
    return found


@pytest.mark.parametrize("spread", [0.05, 0.3, 0.8])
def test_noise_is_no_drift(spread: float) -> None:
    seen = [follow(blocks(1e-3, spread, 2000, seed)) for seed in range(5)]
    assert sum(map(len, seen)) <= 1, "of 1,250 comparisons"


def test_a_pause_of_the_machine_is_no_drift() -> None:
    uses = blocks(1e-3, 0.1, 400, seed=1)
    for pause in (100, 211, 322):
        uses[pause] = uses[pause]._replace(seconds=1.0)
    assert follow(uses) == []


@pytest.mark.parametrize("times", [0.1, 1.5, 10.0])
def test_a_cost_that_changes_is_seen_within_three_stretches(times: float) -> None:
    uses = blocks(1e-3, 0.1, 160, seed=2) + blocks(times * 1e-3, 0.1, 160, seed=3)
    (seen,) = follow(uses)
    assert 160 <= seen < 160 + 3 * 8


@pytest.mark.parametrize("times", [0.0, 0.2, 5.0])
def test_a_loop_whose_batches_span_blocks_is_seen_to_change(times: float) -> None:
    """A batch ends in every second or third block only, so that blocks differ a lot."""
    uses = [
        StepUse(seconds * (number % 5 in (1, 4)), 0.0, 10, 10)
        for number, seconds in enumerate([1.0] * 200 + [times] * 200)
    ]
    (seen,) = follow(uses)
    assert 200 <= seen < 350


def test_a_filter_that_keeps_another_share_has_drifted() -> None:
    uses = blocks(1e-3, 0.1, 80, seed=4)
    uses += [use._replace(rows_out=3) for use in blocks(1e-3, 0.1, 80, seed=5)]
    (seen,) = follow(uses)
    assert seen >= 80


def test_steps_that_were_replaced_are_followed_from_their_start() -> None:
    drift = Drift()
    for mean in (1e-3, 1e-2):
        cost = Cost()
        for use in blocks(mean, 0.1, 100, seed=6):
            cost.add(use)
            assert not drift.compare({"step": cost})


# Weighing.


def lane(rows_to_come: int, busy: float = 1.0, rows: int = 1000, ahead: int = 100) -> Any:
    return SimpleNamespace(
        stats=LaneStats(busy=busy, rows_in=rows),
        rows_left=rows_to_come,
        rows_to_come=rows_to_come,
        rows_ahead=ahead,
        blocks=SimpleNamespace(next_rows=lambda: 0),
        width=SimpleNamespace(now=1),
    )


PLANS = [sv.from_columns({"x": range(n)}).batch(1) for n in (1, 2, 3)]
A, B, C = (pipeline.plan for pipeline in PLANS)


def test_a_change_must_save_more_than_the_rows_in_flight() -> None:
    """A row takes 1 ms, 100 of them are repeated, and the other plan saves half of each."""
    assert not Switching({"": lane(rows_to_come=150)}).pays(B, 0.5e-3, 1e-3)
    assert Switching({"": lane(rows_to_come=250)}).pays(B, 0.5e-3, 1e-3)


def test_a_gain_within_the_error_is_no_gain() -> None:
    assert not Switching({"": lane(rows_to_come=10**9)}).pays(B, 0.95e-3, 1e-3)


def test_the_measured_cost_of_a_change_counts_for_the_next_one() -> None:
    stage = lane(rows_to_come=1000, ahead=0)
    switching = Switching({"": stage})
    assert switching.pays(B, 0.5e-3, 1e-3)
    for _ in range(9):
        switching.count_batch()
    stage.stats.starved = 0.09
    switching.change(Chosen(A, A), Chosen(B, B), "for a test", 2.0, None)
    stage.stats.starved += 1.0  # workers started
    switching.count_batch()
    assert switching.cost == pytest.approx(1.0, abs=0.02)
    assert not switching.pays(C, 0.5e-3, 1e-3), "it saves 0.5 s"


def test_a_plan_that_is_measured_to_be_slower_is_left_for_good() -> None:
    stage = lane(rows_to_come=10**6, busy=2.0, rows=2000)
    switching = Switching({"": stage})
    before, after = Chosen(A, A), Chosen(B, B)
    switching.change(before, after, "for a test", 2.0, None)
    stage.stats.busy, stage.stats.rows_in = 3.0, 2500  # twice as slow, not as fast
    assert "it takes 2 ms per row, and the plan before it took 1 ms" in (switching.judge() or "")
    assert switching.go_back(after) is before
    assert not switching.pays(B, 1e-6, 1e-3)
    (change,) = switching.history()
    assert (change.predicted_gain, change.measured_gain) == (2.0, 0.5)
