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
from silva.serve.search.intervals import quantile_interval
from silva.serve.search.metrics import metric_of
from silva.serve.search.tuning.constraints import Constraint
from silva.serve.search.tuning.contest import Configurations
from silva.serve.search.tuning.sharing import Shared

X = sv.col("x")


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
        (doubled(9), {"budget": 60}, r"sv\.Budget\(seconds=60\)"),
        (doubled(9), {"subject_to": [0.5]}, "takes constraints such as"),
        (doubled(9), {"subject_to": sv.p95("latency") <= 0.5}, "takes a list"),
        (doubled(9), {"delta": 1.5}, "between 0 and 1"),
    ]
    for rows, arguments, message in wrong:
        with pytest.raises(sv.PlanError, match=message):
            both.tune(rows, maximize=right, **arguments)
    with pytest.raises(sv.PlanError, match="divide by the largest"):
        both.tune(doubled(9), maximize=lambda y: y)
    with pytest.raises(sv.PlanError, match="at least one metric"):
        both.tune(doubled(9), maximize=[])
    for attempt, message in [
        (lambda: sv.Budget(), "seconds=… or executions=…"),
        (lambda: sv.Budget(seconds=0.0), "positive"),
        (lambda: sv.Budget(executions=0), "from 1 up"),
        (lambda: sv.p95("latency") <= 0.0, "above 0"),
        (lambda: sv.mean("time"), "'latency', 'cost' or 'tokens'"),
    ]:
        with pytest.raises(sv.PlanError, match=message):
            attempt()


@pytest.mark.parametrize(
    "budget",
    [sv.Budget(executions=16), sv.Budget(seconds=1e-9), sv.Budget(seconds=1e9, executions=16)],
    ids=["executions", "seconds", "both"],
)
def test_what_the_budget_did_not_reach_is_not_ranked(budget: sv.Budget) -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    tuned = both.tune(doubled(64), maximize=right, budget=budget)
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
    tuned = both.tune(dev, maximize=lambda y: len(y) / 10, subject_to=[sv.mean("cost") <= 1.5e-6])
    assert [one.configuration["prompt"] for one in tuned.front] == ["{x}"]
    assert tuned.candidates[1].why_not == "mean('cost') is above 1.5e-06"
    assert tuned.front[0].tokens.value == 1
    assert tuned.best.ask(x="4")["y"] == "4"


def test_several_metrics_are_all_maximized() -> None:
    """One operation is right where the other is small: neither is best by both metrics."""
    both = sv.requests("x").derive(y=sv.choice(X * 2, X * 0, X - X, X * 2 + 1, name="op"))
    tuned = both.tune(doubled(64)[1:], maximize=[right, small])
    assert {one.configuration["op"] for one in tuned.front} in ({0, 1}, {0, 2})
    assert tuned.front[0].configuration["op"] == 0
    assert [round(one.value, 2) for one in tuned.front[0].by_metric] == [1.0, 0.02]
    with pytest.raises(sv.PlanError, match=r"best by all of right.*, small"):
        _ = tuned.best
    assert str(tuned).startswith("right")
    last = next(one for one in tuned.candidates if one.configuration["op"] == 3)
    assert last.why_not is not None
    dominated = sv.requests("x").derive(y=sv.choice(X * 0 + 9, X * 2, name="op"))
    rows = [{"x": 0, "gold": 0}] * 64
    assert dominated.tune(rows, maximize=[right, small]).best.ask(x=0)["y"] == 0


def small(y: Any) -> bool:
    return bool(y < 3)


def test_a_picture_shows_the_front(tmp_path: Path) -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    tuned = both.tune(doubled(32), maximize=right)
    two = both.tune(doubled(32), maximize=[right, small])
    for name, one in (("front.svg", tuned), ("front.png", tuned), ("two.svg", two)):
        assert one.plot(tmp_path / name).stat().st_size > 1000
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
        self.slow.batches.append(len(pairs))
        return [float(prompt.endswith(answer)) for prompt, answer in pairs]

    def close(self) -> None: ...


class Slow(Model):
    """A model that repeats its prompt, and notes what it is really asked."""

    price = (1e0, 0.0)

    def __init__(self, name: str, answers: str = "") -> None:
        self.name = name
        self.asked: list[str] = []
        self.batches: list[int] = []

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


def test_few_rows_bound_no_quantile_from_above() -> None:
    assert quantile_interval(np.arange(72.0), 0.95).high == 71.0
    assert quantile_interval(np.arange(71.0), 0.95).high == np.inf


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


def test_a_judge_is_a_step_or_a_metric() -> None:
    """Its verdict is text, which a function reads; what it has said is kept."""
    judge = Slow("verdicts")
    verdict = judge.generate("{y} for {gold}")
    answers = sv.requests("x", "gold").derive(y=X * 2)
    dev = [{"x": n, "gold": 2 * n + (n % 2)} for n in range(60)]

    def agrees(verdict: str) -> bool:
        said, _, wanted = verdict.partition(" for ")
        return said == wanted != ""

    judged = answers.derive(verdict=verdict)
    assert judged.evaluate(dev, agrees).mean.value == 0.5
    assert len(judge.asked) == 60
    metric = verdict == "4 for 4"
    assert answers.evaluate(dev, metric).mean.value == pytest.approx(1 / 60)
    assert len(judge.asked) == 60  # the same questions
    either = sv.requests("x", "gold").derive(y=X * sv.choice(3, 2)).derive(verdict=verdict)
    tuned = either.tune(dev, maximize=agrees)
    assert tuned.front[0].configuration == {"operand": 2}
    assert tuned.front[0].cost.value > 0
    found = judged.what_if(on=dev, metric=agrees, gold={"y": "gold"}, seconds=0)
    assert found.limit == "y"
    assert found.steps[0].perfect is not None
    assert found.steps[0].perfect.value == 0.5


def test_a_judge_gets_batches_where_steps_are_compared() -> None:
    judge = Slow("batches")
    answers = sv.requests("x").derive(y=X * 2)
    dev = [{"x": n, "gold": 2 * n + (n % 2)} for n in range(40)]
    metric = judge.score("{y} is {gold}", "{y}")
    judge.batches.clear()
    found = answers.what_if(on=dev, metric=metric, gold={"y": lambda row: row["gold"]}, seconds=0)
    assert found.base is not None
    assert found.base.value == 0.5
    assert len(judge.batches) < 40


def test_exploded_requests_are_not_judged_by_their_first_row() -> None:
    parts = sv.requests("x").derive(y=lambda x: [x, x]).explode("y")
    with pytest.raises(sv.PlanError, match="several rows of a request"):
        parts.evaluate(doubled(4), right)
    with pytest.raises(sv.PlanError, match="several rows of a request"):
        parts.derive(z=sv.choice(X + 1, X)).tune(doubled(4), maximize=right)


# Bounds: what is shown of them.


def timed(seconds: Sequence[float], *constraints: Constraint) -> Configurations:
    """One configuration of two, whose rows took so many seconds alone."""
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    shared = Shared(both.plan, doubled(len(seconds)))
    every = configurations(both.plan)
    made = Configurations(shared, [metric_of(right)], every, constraints)
    rows = np.zeros(len(seconds))
    for one in made.spending:
        one.latency, one.money, one.tokens = np.asarray(seconds), rows, rows
    return made


IN_TIME = sv.p95("latency") <= 0.05


def test_a_bound_on_latency_is_kept_only_on_evidence() -> None:
    assert not timed([0.01] * 59, IN_TIME).meets(0)
    assert timed([0.01] * 130, IN_TIME).meets(0)
    assert timed([0.01] * 59, IN_TIME).seems_to_miss(0) is None


def test_few_rows_that_are_in_time_show_no_bound() -> None:
    both = sv.requests("x").derive(y=sv.choice(X + 1, X * 2, name="op"))
    few = both.tune(doubled(20), maximize=right, subject_to=[sv.p95("latency") <= 60.0])
    assert "too few to show it" in str(few)
    assert few.best.ask(x=3)["y"] == 6
    many = both.tune(doubled(160), maximize=right, subject_to=[sv.p95("latency") <= 60.0])
    assert "too few to show it" not in str(many)


def test_a_heavy_tail_breaks_a_bound_on_latency() -> None:
    tail = timed([*[0.009] * 90, *[0.5] * 10], IN_TIME)
    assert not tail.meets(0)
    assert "in these rows" in str(tail.seems_to_miss(0))
    assert tail.misses(0) is None
    assert "above 0.05" in str(timed([*[0.009] * 70, *[0.5] * 30], IN_TIME).misses(0))


def test_a_mean_above_its_limit_is_shown_by_evidence() -> None:
    dear = sv.mean("latency") <= 0.01
    assert timed([0.02] * 40, dear).misses(0) == "mean('latency') is above 0.01 s"
    assert timed([0.02] * 3, dear).misses(0) is None  # so few rows show nothing
    assert timed([0.02] * 3, dear).seems_to_miss(0) is not None
    assert timed([0.005, 0.006] * 20, dear).meets(0)
    assert not timed([0.005, 0.006] * 20, sv.mean("latency") <= 0.0055).meets(0)


def test_a_mean_at_its_limit_is_seldom_called_above_it_at_any_look() -> None:
    rng, wrong, draws = np.random.default_rng(0), 0, 80
    constraint = sv.mean("latency") <= 0.01
    for _ in range(draws):
        made = timed(rng.exponential(0.01, 200), constraint)
        seconds, looks = made.spending[0].latency, []
        for n in range(10, 201, 10):
            made.spending[0].latency = seconds[:n]
            looks.append(made.misses(0))
        wrong += any(looks)
    assert wrong / draws <= 0.05


def test_costs_that_differ_by_noise_are_no_reason() -> None:
    made = timed([0.010] * 15)
    made.spending[1].latency = np.array([0.0105] * 15)
    assert made.costs_no_more(1, 0)
    assert made.costs_no_more(0, 1)
    made.spending[1].latency = np.array([0.012] * 15)
    assert not made.costs_no_more(1, 0)
    made.spending[1].latency = np.full(15, np.nan)
    assert not made.costs_no_more(1, 0)
