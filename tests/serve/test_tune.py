"""`tune`: what it claims about configurations holds, and it refuses what rows cannot show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.plan.choice import configurations
from silva.serve.models.model import Answer, Model, Question
from silva.serve.search.intervals import mean_interval, quantile_interval
from silva.serve.search.metrics import metric_of
from silva.serve.search.tuning.contest import Bounds, Configurations
from silva.serve.search.tuning.paired import log_evidence, needed_evidence
from silva.serve.search.tuning.racing import Race
from silva.serve.search.tuning.sharing import Shared

X = sv.col("x")


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
        return self.scores[list(rows), candidate]

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


# The verb.


def doubled(count: int) -> list[dict[str, Any]]:
    return [{"x": n, "gold": 2 * n} for n in range(count)]


def right(y: Any, gold: Any) -> bool:
    return bool(y == gold)


def test_best_refuses_what_rows_cannot_tell_apart() -> None:
    same = sv.requests("x").derive(y=sv.choice(X * 2, X + X, X * 3, name="op"))
    tuned = same.tune(doubled(64), maximize=right)
    assert {one.configuration["op"] for one in tuned.tied} | {0, 1} == {0, 1}
    with pytest.raises(sv.PlanError, match=r"64 rows cannot tell .*op=x.*, from op=x"):
        _ = tuned.best
    assert not any("scores more" in str(one.why_not) for one in tuned.candidates[:2])
    assert not any("slower" in str(one.why_not) for one in tuned.candidates)
    assert tuned.front[0].pipeline.ask(x=4) == {"x": 4, "y": 8}


def test_best_says_how_many_more_rows_would_tell() -> None:
    def close(x: int) -> int:
        return 2 * x + (x % 16 == 0)

    both = sv.requests("x").derive(y=sv.choice(close, lambda x: 2 * x, name="reader"))
    few = both.tune(doubled(32), maximize=right)
    with pytest.raises(sv.PlanError, match=r"About \d+ more rows") as error:
        _ = few.best
    (more,) = re.findall(r"About (\d+) more", str(error.value))
    assert both.tune(doubled(32 + int(more)), maximize=right).best.ask(x=16)["y"] == 32


def test_a_search_needs_rows_and_a_budget() -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    wrong: list[tuple[list[Any], Mapping[str, Any], str]] = [
        ([], {}, "at least one row"),
        (doubled(9), {"seconds": 0.0}, "positive"),
        (doubled(9), {"executions": 0}, "from 1 up"),
        (doubled(9), {"executions": 9, "seconds": 1.0}, "not both"),
        (doubled(9), {"p95": 0.0}, "above 0"),
        (doubled(9), {"delta": 1.5}, "between 0 and 1"),
    ]
    for rows, arguments, message in wrong:
        with pytest.raises(sv.PlanError, match=message):
            both.tune(rows, maximize=right, **arguments)
    with pytest.raises(sv.PlanError, match="divide by the largest"):
        both.tune(doubled(9), maximize=lambda y: y)


@pytest.mark.parametrize("budget", [{"executions": 16}, {"seconds": 1e-9}])
def test_what_the_budget_did_not_reach_is_not_ranked(budget: dict[str, Any]) -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    tuned = both.tune(doubled(64), maximize=right, **budget)
    assert [len(one.scores) for one in tuned.candidates] == [16, 0]
    assert "before it was run" in str(tuned.candidates[1].why_not)
    with pytest.raises(sv.PlanError, match="larger one may tell"):
        _ = tuned.best
    assert "op=" in str(tuned)
    assert "not run" in tuned._repr_html_()


def test_a_search_shows_what_was_left_out_and_why() -> None:
    sums = (X + n for n in range(1000, 1011))
    several = sv.requests("x").derive(y=sv.choice(*sums, X * 2, name="op"))
    tuned = several.tune(doubled(64), maximize=right)
    lines = str(tuned).splitlines()
    assert lines[1].endswith("op=x * 2")
    assert lines[2].startswith("  left out: op=x + 10")
    assert lines[2].endswith(": op=x * 2 scores more and costs no more")
    assert lines[10] == "  and 3 more: see tuned.candidates"
    assert "left out" not in tuned._repr_html_()
    assert repr(tuned.front[0]).startswith("<op=x * 2; 1.000")


def test_rows_without_an_id_are_numbered() -> None:
    both = sv.requests("id", "x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    assert both.tune(doubled(64), maximize=right).best.ask(id=1, x=4)["y"] == 8
    with pytest.raises(sv.PlanError, match="row 0 has no 'x'"):
        both.tune([{"gold": 1}], maximize=right)


def test_a_configuration_that_breaks_a_bound_is_not_on_the_front() -> None:
    model = Slow("bound", answers="right")
    open_model = sv.choice("{x}", "long {x}", name="prompt")
    both = sv.requests("x").derive(y=model.generate(open_model))
    dev = [{"x": str(n)} for n in range(60)]
    tuned = both.tune(dev, maximize=lambda y: len(y) / 10, cost=1.5e-6)
    assert [one.configuration["prompt"] for one in tuned.front] == ["{x}"]
    assert "costs 2e-06" in str(tuned.candidates[1].why_not)
    assert tuned.front[0].tokens.value == 1
    assert tuned.best.ask(x="4")["y"] == "4"


def test_a_picture_shows_the_front(tmp_path: Path) -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    tuned = both.tune(doubled(32), maximize=right)
    for name in ("front.svg", "front.png"):
        assert tuned.plot(tmp_path / name).stat().st_size > 1000
    with pytest.raises(sv.PlanError, match=r"\.png or an \.svg"):
        tuned.plot(tmp_path / "front.txt")


# Latency: what a request takes alone, also where answers are kept.


class _Run:
    def __init__(self, slow: Slow) -> None:
        self.slow = slow

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        self.slow.asked.extend(q.messages[-1].text for q in questions)
        texts = [question.messages[-1].text for question in questions]
        return [Answer(text, "stop", len(text.split()), 0) for text in texts]

    def embed(self, texts: list[str]) -> list[np.ndarray | Exception]:
        raise NotImplementedError

    def score(self, pairs: list[tuple[str, str]]) -> list[float | Exception]:
        self.slow.asked.extend(prompt for prompt, _ in pairs)
        return [float(prompt.endswith(answer)) for prompt, answer in pairs]

    def close(self) -> None: ...


class Slow(Model):
    """A model that repeats its prompt, and notes what it is really asked."""

    price = (1e0, 0.0)

    def __init__(self, name: str, answers: str = "") -> None:
        self.name = name
        self.asked: list[str] = []

    @property
    def identity(self) -> str:
        return f"slow {self.name}"

    def open(self) -> _Run:
        return _Run(self)


def test_kept_answers_count_with_the_time_that_they_took() -> None:
    model = Slow("kept")
    both = sv.requests("x").derive(y=model.generate(sv.choice("{x}", "{x}!", name="prompt")))
    rows = [{"x": f"{n}"} for n in range(8)]
    (one, _) = configurations(both.plan)
    first, second = Shared(both.plan, rows, alone=8), Shared(both.plan, rows, alone=8)
    before = first.run(one, range(8)).latency
    after = second.run(one, range(8)).latency
    assert len(model.asked) == 8
    assert (sum(first.ran.values()), sum(second.ran.values())) == (8, 0)
    assert np.isnan(before[0])  # it warms the step up, and opens the model
    known = ~np.isnan(before) & ~np.isnan(after)
    assert known.sum() == 7
    assert (after[known] > 0).all()


def test_rows_of_a_batch_have_no_latency() -> None:
    shared = Shared(sv.requests("x").derive(y=X + 1).plan, doubled(8), alone=3)
    assert np.isnan(shared.run({}, range(8)).latency).tolist() == [True, *[False] * 3, *[True] * 4]


def test_steps_that_do_not_wait_for_each_other_count_once() -> None:
    both = sv.requests("x").derive(a=lambda x: x + 1)
    apart = Shared(both.derive(b=lambda x: x).plan, doubled(4), alone=4).run({}, range(4))
    chain = Shared(both.derive(b=lambda a: a).plan, doubled(4), alone=4).run({}, range(4))
    assert (apart.latency[1:] < apart.seconds[1:]).all()
    assert (chain.latency[1:] == chain.seconds[1:]).all()


# Intervals.


def test_an_interval_of_few_equal_scores_is_exact() -> None:
    all_right = mean_interval(np.ones(6))
    assert all_right.high == 1.0
    assert all_right.low == pytest.approx(0.025 ** (1 / 6), abs=1e-5)
    assert mean_interval(np.full(6, 0.5)).low < 0.2
    evaluated = sv.requests("x").derive(y=X * 2).evaluate(doubled(6), right)
    assert str(evaluated.mean) == "1.000 (0.541 to 1.000)"


def test_few_rows_bound_no_quantile_from_above() -> None:
    assert quantile_interval(np.arange(72.0), 0.95).high == 71.0
    assert quantile_interval(np.arange(71.0), 0.95).high == np.inf


def test_a_claim_takes_the_more_evidence_the_more_there_are() -> None:
    assert needed_evidence(96, 0.05) > needed_evidence(2, 0.05) == pytest.approx(np.log(40))


# Metrics.


def test_a_model_may_judge() -> None:
    judge = Slow("judge")
    answers = sv.requests("x").derive(y=X * 2)
    dev = [{"x": n, "gold": 2 * n + (n % 2)} for n in range(10)]
    found = answers.evaluate(dev, judge.score("{y} is {gold}", "{y}"))
    assert found.mean.value == 0.5
    assert len(judge.asked) == 10
    half = judge.score("{y} is {gold}", "{y}") * 0.5
    assert answers.evaluate(dev, half).mean.value == 0.25
    open_answers = sv.requests("x").derive(y=X * sv.choice(3, 2))
    tuned = open_answers.tune(dev * 6, maximize=judge.score("{y} is {gold}", "{y}"))
    assert tuned.front[0].configuration == {"operand": 2}
    with pytest.raises(sv.ColumnError, match="'gold'"):
        answers.evaluate([{"x": 1}], judge.score("{y} is {gold}", "{y}"))


def test_exploded_requests_are_not_judged_by_their_first_row() -> None:
    parts = sv.requests("x").derive(y=lambda x: [x, x]).explode("y")
    with pytest.raises(sv.PlanError, match="several rows of a request"):
        parts.evaluate(doubled(4), right)
    with pytest.raises(sv.PlanError, match="several rows of a request"):
        parts.derive(z=sv.choice(X + 1, X)).tune(doubled(4), maximize=right)


# Bounds: what is shown of them.


def timed(seconds: Sequence[float], **bounds: float) -> Configurations:
    """One configuration of two, whose rows took so many seconds alone."""
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    shared = Shared(both.plan, doubled(len(seconds)))
    every = configurations(both.plan)
    made = Configurations(shared, metric_of(right), every, Bounds(**bounds), by_time=False)
    rows = np.zeros(len(seconds))
    for one in made.spending:
        one.latency, one.money, one.tokens = np.asarray(seconds), rows, rows
    return made


def test_a_bound_on_latency_is_kept_only_on_evidence() -> None:
    assert not timed([0.01] * 59, p95=0.05).meets(0)
    assert timed([0.01] * 130, p95=0.05).meets(0)
    assert timed([0.01] * 59, p95=0.05).seems_to_miss(0) is None


def test_few_rows_that_are_in_time_show_no_bound() -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    few = both.tune(doubled(20), maximize=right, p95=60.0)
    assert "too few to show it" in str(few)
    assert few.best.ask(x=3)["y"] == 6
    many = both.tune(doubled(160), maximize=right, p95=60.0)
    assert "too few to show it" not in str(many)


def test_a_heavy_tail_breaks_a_bound_on_latency() -> None:
    tail = timed([*[0.009] * 90, *[0.5] * 10], p95=0.05)
    assert not tail.meets(0)
    assert "in these rows" in str(tail.seems_to_miss(0))
    assert tail.misses(0) is None
    assert "above 0.05" in str(timed([*[0.009] * 70, *[0.5] * 30], p95=0.05).misses(0))


def test_costs_that_differ_by_noise_are_no_reason() -> None:
    made = timed([0.010] * 15)
    made.spending[1].latency = np.array([0.0105] * 15)
    assert made.costs_no_more(1, 0)
    assert made.costs_no_more(0, 1)
    made.spending[1].latency = np.array([0.012] * 15)
    assert not made.costs_no_more(1, 0)
    made.spending[1].latency = np.full(15, np.nan)
    assert not made.costs_no_more(1, 0)
