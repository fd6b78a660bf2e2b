"""A race of configurations: what it claims holds, and a budget goes to those that promise most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from silva.serve.search.tuning.paired import log_evidence, needed_evidence
from silva.serve.search.tuning.racing import Race, off_the_front


class Planted:
    """A contest whose scores and costs are known."""

    def __init__(
        self,
        scores: np.ndarray,
        costs: Sequence[float] | None = None,
        late: Sequence[bool] | None = None,
    ) -> None:
        """`scores`: a row for each row, a column for each candidate. `late`: who breaks a bound,
        which is never shown."""
        self.scores = scores
        self.cost = np.ones(scores.shape[1]) if costs is None else np.asarray(costs)
        self.late = [False] * scores.shape[1] if late is None else late
        self.executions = 0

    def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
        self.executions += len(rows)
        return self.scores[list(rows), candidate, None]

    def costs(self, candidate: int) -> np.ndarray:
        return self.cost[candidate : candidate + 1]

    def costs_no_more(self, candidate: int, other: int) -> bool:
        return bool(self.cost[candidate] <= self.cost[other])

    def meets(self, candidate: int) -> bool:
        return not self.late[candidate]

    def misses(self, candidate: int) -> str | None:
        return None

    def seems_to_miss(self, candidate: int) -> str | None:
        return "late" if self.late[candidate] else None

    def spent(self) -> float:
        return self.executions


def race(contest: Planted, budget: float | None = None) -> Race:
    rows, count = contest.scores.shape
    made = Race(contest, count, range(rows), delta=0.05, budget=budget)
    made.run()
    return made


def planted(seed: int, rows: int = 600) -> tuple[Planted, set[int]]:
    """Six costs with sixteen candidates each: one a step of .05 above all others that cost no more,
    the others .05 to .15 below it. Two candidates' scores have a correlation of about .4."""
    rng = np.random.default_rng(seed)
    level, place = np.divmod(np.arange(96), 16)
    means = 0.55 + 0.05 * level - np.where(place == 0, 0, 0.05 * (1 + place % 3))
    constraints = np.quantile(rng.standard_normal(100_000), means)
    drawn = np.sqrt(0.6) * rng.standard_normal((rows, 1))
    drawn = drawn + np.sqrt(0.4) * rng.standard_normal((rows, 96))
    contest = Planted((drawn < constraints).astype(float), costs=1.0 + level)
    return contest, set(np.flatnonzero(place == 0).tolist())


def alike(rng: np.random.Generator, means: Sequence[float], rows: int = 400) -> np.ndarray:
    """Scores of 0 and 1 with these means; rows differ in difficulty."""
    hard = rng.random((rows, 1))
    own = rng.random((rows, len(means)))
    drawn = np.where(rng.random((rows, len(means))) < 0.7, hard, own)
    return (drawn < np.asarray(means)).astype(float)


def test_equal_configurations_are_seldom_called_worse() -> None:
    wrong = 0
    for seed in range(60):
        contest = Planted(alike(np.random.default_rng(seed), [0.8] * 12, 200))
        wrong += bool(race(contest).beaten_by)
    assert wrong <= 0.05 * 60


def test_the_best_configuration_is_not_lost_by_looking_often() -> None:
    wrong = 0
    for seed in range(60):
        means = [0.85, *[0.8] * 11]
        wrong += 0 in race(Planted(alike(np.random.default_rng(seed), means, 200))).beaten_by
    assert wrong <= 0.05 * 60


def test_evidence_grows_as_rarely_as_promised_at_any_look() -> None:
    rng, alpha, draws = np.random.default_rng(0), 0.1, 400
    crossed = 0
    for _ in range(draws):  # sparse differences with a mean of 0
        won = rng.choice([-1.0, 0.0, 1.0], p=[0.04, 0.92, 0.04], size=300)
        crossed += any(log_evidence(won[:n]) >= np.log(1 / alpha) for n in range(10, 301, 10))
    assert crossed / draws <= alpha


def test_what_is_clearly_worse_is_left_early() -> None:
    contest = Planted(alike(np.random.default_rng(0), [0.9, *[0.3] * 11]))
    found = race(contest)
    assert set(found.beaten_by) == set(range(1, 12))
    assert contest.executions <= 0.4 * contest.scores.size


def test_what_costs_less_stays() -> None:
    found = race(Planted(alike(np.random.default_rng(0), [0.9, 0.3]), costs=[2.0, 1.0]))
    assert found.racing == [0, 1]


def test_what_breaks_a_bound_leaves_nobody_out() -> None:
    scores = alike(np.random.default_rng(0), [0.95, 0.5])
    assert race(Planted(scores)).beaten_by == {1: 0}
    assert race(Planted(scores, late=[True, False])).beaten_by == {}


def test_a_budget_is_spent_on_what_promises_most() -> None:
    means = [0.9, 0.88, *np.linspace(0.3, 0.8, 22)]
    contest = Planted(alike(np.random.default_rng(0), means))
    found = race(contest, budget=0.25 * contest.scores.size)
    assert contest.executions <= 0.25 * contest.scores.size
    most = max(map(len, found.scores))
    assert {0, 1} <= {i for i, one in enumerate(found.scores) if len(one) == most}


@pytest.mark.rest
@pytest.mark.parametrize(("share", "least"), [(0.25, 0.9), (0.12, 0.65)])
def test_a_part_of_the_executions_finds_a_front_that_is_hard_to_tell(
    share: float, least: float
) -> None:
    found, seeds = 0.0, 20
    for seed in range(seeds):
        contest, front = planted(seed)
        made = race(contest, budget=share * contest.scores.size)
        assert contest.executions <= share * contest.scores.size
        most = max(len(made.scores[i]) for i in made.racing)
        last = [i for i in made.racing if len(made.scores[i]) == most]
        means = [made.scores[i].mean(axis=0) for i in last]
        off = off_the_front(means, [contest.costs(i) for i in last])
        found += len(front & {i for place, i in enumerate(last) if place not in off}) / len(front)
        assert not front & made.beaten_by.keys()
    assert found / seeds >= least


def test_a_small_budget_leaves_no_part_of_the_front_behind() -> None:
    rng, level = np.random.default_rng(0), np.repeat(np.arange(4), 6)
    means = 0.3 + 0.2 * level - np.where(np.arange(24) % 6 == 0, 0, 0.25)
    contest = Planted(alike(rng, means.tolist()), costs=1.0 + level)
    found = race(contest, budget=0.12 * contest.scores.size)
    assert contest.executions <= 0.12 * contest.scores.size
    most = max(map(len, found.scores))
    assert {0, 6, 12, 18} <= {i for i, one in enumerate(found.scores) if len(one) == most}


def test_several_metrics_are_beaten_only_where_all_of_them_show_it() -> None:
    rng = np.random.default_rng(0)
    worse, mixed, best = np.stack(
        [alike(rng, means) for means in ([0.4, 0.4], [0.4, 0.9], [0.8, 0.8])]
    )

    class Several(Planted):
        def answer(self, candidate: int, rows: Sequence[int]) -> np.ndarray:
            return [worse, mixed, best][candidate][list(rows)]

    assert race(Several(worse[:, :1].repeat(3, axis=1))).beaten_by == {0: 2}


def test_a_claim_takes_the_more_evidence_the_more_there_are() -> None:
    assert needed_evidence(96, 0.05) > needed_evidence(2, 0.05) == pytest.approx(np.log(40))
