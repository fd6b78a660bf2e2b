"""Cascades: the large model answers exactly the rows that the small one may not keep, wherever and
however the pipeline runs; and a calibrated threshold keeps its promise."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import silva as sv

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cascade import Found, judge, margin

from silva.plan.choice import configurations, resolve
from silva.serve.engine.engine import Engine
from silva.serve.models.model import Answer, Model, Question
from silva.serve.search.bounds import rows_needed, tail
from silva.serve.search.calibration import calibrations

X = sv.col("x")


@dataclass(frozen=True)
class Told(Model):
    """Answers with the seed of the question and notes the threads that it runs on."""

    name: str

    @property
    def identity(self) -> str:
        return f"told {self.name}"

    def open(self) -> Any:
        return _Told()


class _Told:
    threads: ClassVar[set[int]] = set()

    def generate(self, questions: list[Question]) -> list[Answer | Exception]:
        self.threads.add(threading.get_ident())
        return [Answer(str(one.seed)) for one in questions]

    def close(self) -> None: ...


@pytest.mark.parametrize("backend", ["inline", "threads", "processes"])
def test_a_cascade_asks_the_large_model_for_the_rest_alone(backend: str) -> None:
    rows = sv.from_columns({"x": list(range(20))})
    both = sv.cascade(X * 10, X * 100, accept=X, threshold=12)
    with rows.derive(y=both).loader(backend=backend, workers=1) as loader:  # type: ignore[arg-type]
        assert [row["y"] for row in loader] == [x * (10 if x >= 12 else 100) for x in range(20)]


@pytest.fixture
def answers(tmp_path: Path) -> tuple[Model, Model]:
    """A small model that knows everything, and a large one that does not know 2."""
    small = {f"s {x}": f"S{x}" for x in range(8)}
    large = {f"l {x}": f"L{x}" for x in range(8) if x != 2}
    for name, known in (("small", small), ("large", large)):
        (tmp_path / name).write_text(json.dumps({"generate": known}))
    return tuple(sv.models.Recorded(tmp_path / name) for name in ("small", "large"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("policy", "of_two"), [(sv.Skip(), None), (sv.Substitute("no answer"), "no answer")]
)
def test_a_row_that_the_large_model_fails_on_fails_alone(
    answers: tuple[Model, Model], policy: Any, of_two: str | None
) -> None:
    small, large = answers
    both = sv.cascade(small.generate("s {x}"), large.generate("l {x}"), accept=X, threshold=4)
    rows = [{"x": x} for x in (7, 6, 5, 2, 1, 0, 3, 4)]
    pipeline = sv.requests("x").derive(y=both)
    with pipeline.over(rows).loader(workers=0, on_error=policy) as loader:
        found = {row["x"]: row["y"] for row in loader}
    expected = {x: f"S{x}" if x >= 4 else f"L{x}" for x in range(8)} | {2: of_two}
    assert found == {x: y for x, y in expected.items() if y is not None}


def test_the_large_model_does_not_run_on_the_thread_of_the_event_loop() -> None:
    large = Told("large")
    both = sv.cascade(X, large.generate("{x}", temperature=1), accept=X, threshold=9)
    engine = Engine(sv.requests("x").derive(y=both).plan)

    async def ask() -> None:
        await engine.answer({"x": 1}, deadline=60)

    _Told.threads.clear()
    asyncio.run(ask())
    engine.close()
    assert _Told.threads
    assert threading.get_ident() not in _Told.threads


def test_a_choice_within_the_large_model_is_a_choice() -> None:
    both = sv.cascade(X * 10, sv.choice(X * 100, X * 1000, name="large"), accept=X, threshold=3)
    plan = sv.requests("x").derive(y=both).plan
    assert configurations(plan) == [{"large": 0}, {"large": 1}]
    chosen = sv.Pipeline(resolve(plan, {"large": 1}))
    assert [chosen.ask(x=x)["y"] for x in (2, 5)] == [2000, 50]


def test_a_threshold_is_a_choice() -> None:
    both = sv.cascade(X * 10, X * 100, accept=X, threshold=sv.choice(1, 3))
    plan = sv.requests("x").derive(y=both).plan
    answers = [sv.Pipeline(resolve(plan, one)).ask(x=2)["y"] for one in configurations(plan)]
    assert answers == [20, 200]


def test_two_cascades_of_one_step_draw_apart() -> None:
    large = Told("seeds")
    one = sv.cascade(X, large.generate("{x}", temperature=1), accept=X, threshold=9)
    two = sv.cascade(X, large.generate("{x}", temperature=1), accept=X, threshold=9)
    row = sv.requests("x").derive(a=one, b=two, c=sv.cascade(one, two, accept=X, threshold=5))
    found = row.ask(x=1)
    assert len({found["a"], found["b"], found["c"]}) == 3
    assert found == row.run([{"x": 1}])[0]


def test_what_only_the_large_model_needs_runs_on_the_rest_alone() -> None:
    model = sv.models.Recorded("none.json")
    asks = model.generate("a {x}")
    both = sv.requests("x").derive(
        y=sv.cascade(X, asks, accept=X, threshold=0),
        z=sv.cascade(X + 1, asks, accept=X, threshold=0),
    )
    assert both.run([{"x": 1}, {"x": 2}]) == [{"x": 1, "y": 1, "z": 2}, {"x": 2, "y": 2, "z": 3}]


def test_a_cascade_is_shown_as_it_is_written() -> None:
    both = sv.cascade(X * 10, X * 100, accept=X, threshold=3)
    assert repr(both) == "cascade(x * 10, large=x * 100, accept=x, threshold=3.0)"


def test_fingerprints_tell_large_models_apart() -> None:
    def pipeline(factor: int) -> sv.Pipeline:
        both = sv.cascade(X, X * factor, accept=X, threshold=3)
        return sv.requests("x").derive(y=both)

    assert pipeline(2).fingerprint == pipeline(2).fingerprint
    assert pipeline(2).fingerprint != pipeline(3).fingerprint


# Calibration.


@given(st.integers(1, 300), st.floats(0.01, 0.5), st.booleans())
def test_a_larger_loss_never_fits_better(count: int, epsilon: float, binary: bool) -> None:
    totals = range(count + 1)
    values = [tail(total, count, epsilon, binary=binary) for total in totals]
    assert values == sorted(values)


def test_few_rows_promise_nothing() -> None:
    assert rows_needed(0.02, 0.1) == 114
    with pytest.raises(sv.PlanError, match="114 rows"):
        sv.calibrate([1.0] * 113, [0.0] * 113, epsilon=0.02, delta=0.1)


def population(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """How sure the small model is of 1,190 rows, and what each loses."""
    rng = np.random.default_rng(3)
    sure = rng.random(1190)
    if kind == "few values":
        sure = np.round(4 * sure) / 4
    chance = np.full(1190, 0.051) if kind == "at the bound" else 1 - np.sqrt(sure)
    lost = (rng.random(1190) < chance).astype(float)
    return sure, lost * rng.random(1190) if kind == "any loss" else lost


@pytest.mark.parametrize("kind", ["losses of 0 and 1", "few values", "at the bound", "any loss"])
def test_a_calibrated_risk_is_broken_as_rarely_as_promised(kind: str) -> None:
    sure, lost = population(kind)
    rng, draws, delta, epsilon = np.random.default_rng(4), 200, 0.1, 0.05
    broken, avoided = 0, 0.0
    for _ in range(draws):
        some = rng.integers(0, len(sure), 400)
        found = sv.calibrate(sure[some], lost[some], epsilon=epsilon, delta=delta)
        assert found.test == (
            "Hoeffding–Bentkus bound" if kind == "any loss" else "exact binomial test"
        )
        if found.threshold is not None:
            kept = sure >= found.threshold
            broken += np.where(kept, lost, 0.0).mean() > epsilon
            avoided += kept.mean() / draws
    assert broken / draws <= delta + 2 * np.sqrt(delta * (1 - delta) / draws)
    assert avoided > 0.1


def test_answers_that_nothing_is_known_of_are_never_kept() -> None:
    sure = np.where(np.arange(400) < 10, np.nan, 0.5)
    sure[10:20], sure[20:30] = -np.inf, np.inf
    found = sv.calibrate(sure, np.zeros(400), epsilon=0.02, delta=0.1)
    assert (found.threshold, found.avoided) == (0.5, 380 / 400)
    assert sv.calibrate([np.nan] * 400, [1.0] * 400, epsilon=0.02, delta=0.1).threshold is None
    both = sv.cascade(X * 10, X * 100, accept=sv.col("sure"), threshold=0.0)
    rows = sv.from_columns({"x": [1, 2, 3], "sure": [np.nan, 1.0, np.inf]}).derive(y=both)
    assert [row["y"] for row in rows] == [100, 20, 30]


def right(y: object, gold: object) -> bool:
    return y == gold


DEV = [{"x": x, "gold": x * 100 if x < 100 else x} for x in range(400)]


def test_a_calibrated_pipeline_knows_its_promise() -> None:
    both = sv.cascade(X, sv.choice(X * 100, X, name="large"), accept=X)
    pipeline = sv.requests("x").derive(h=both).derive(y=lambda h: h).select("y")
    found = pipeline.calibrate(DEV, right, epsilon=0.02, delta=0.1)
    assert [found.ask(x=x)["y"] for x in (50, 300)] == [5000, 300]
    (made,) = calibrations(found.plan)
    assert (made.epsilon, made.delta, made.rows, made.loss <= 0.02) == (0.02, 0.1, 400, True)
    told = " ".join(str(found.over([{"x": 1}]).explain()).split())
    assert "Promises accept ≥ 9" in told
    assert "ε = 0.02, δ = 0.1, exact binomial test" in told
    assert "on 400 rows" in told
    same = sv.requests("x").derive(h=sv.cascade(X, X * 100, accept=X, threshold=made.threshold))
    assert sv.Pipeline(found.plan.inputs[0].inputs[0]).fingerprint == same.fingerprint


def test_a_bound_that_no_threshold_meets_leaves_the_large_model() -> None:
    pipeline = sv.requests("x").derive(y=sv.cascade(X * 0 - 1, X * 100, accept=X))
    dev = [{"x": x, "gold": x * 100} for x in range(150)]  # too few for a single loss
    found = pipeline.calibrate(dev, right, epsilon=0.02, delta=0.1)
    assert found.ask(x=149)["y"] == 14900
    assert calibrations(found.plan)[0].threshold is None


def test_several_cascades_are_calibrated_one_by_one() -> None:
    def both() -> sv.Expr:
        return sv.cascade(X, X * 100, accept=X)

    pipeline = sv.requests("x").derive(y=both()).derive(z=both())
    with pytest.raises(sv.PlanError, match="2 cascades"):
        pipeline.calibrate(DEV, right, epsilon=0.02, delta=0.1)
    with pytest.raises(sv.PlanError, match="no cascade"):
        pipeline.calibrate(DEV, right, epsilon=0.02, delta=0.1, column="w")
    found = pipeline.calibrate(DEV, right, epsilon=0.02, delta=0.1, column="y")
    assert found.ask(x=300) == {"x": 300, "y": 300, "z": 30000}


def test_calibrating_refuses_what_it_cannot_bound() -> None:
    pipeline = sv.requests("x").derive(y=X)
    with pytest.raises(sv.PlanError, match="cascade"):
        pipeline.calibrate(DEV, right, epsilon=0.02, delta=0.1)
    both = sv.requests("x").derive(y=sv.cascade(X, X * 100, accept=X))
    with pytest.raises(sv.PlanError, match="between 0 and 1"):
        both.calibrate(DEV, lambda y: float(y), epsilon=0.02, delta=0.1)


def test_the_benchmark_judges_a_cascade_by_the_exact_risk() -> None:
    rng = np.random.default_rng(5)
    sure = rng.random(1190)
    right = rng.random(1190) < 0.5 + 0.5 * np.sqrt(sure)
    small, large = Found(right, sure), Found(np.ones(1190, bool), sure)
    kept = judge(small, large)
    assert kept.broken <= kept.allowed
    assert kept.without == pytest.approx(1 - right.mean())
    assert 0.05 < kept.avoided < 0.6
    assert margin([{"score": 4.0}, {"score": 1.0}]) == 0.75


def test_the_large_model_answers_where_nobody_says_how_sure_the_small_one_is() -> None:
    said = [1, 0.6, True, np.float32(1), 0.4, False, None, "1", [1], np.ones(2), 1j, 10**400]
    rows = sv.from_items([{"small": "small", "large": "large", "sure": one} for one in said])
    made = sv.cascade(sv.col("small"), sv.col("large"), accept=sv.col("sure"), threshold=0.5)
    assert [row["y"] for row in rows.derive(y=made)] == ["small"] * 4 + ["large"] * 8
