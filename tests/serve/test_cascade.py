"""Cascades: the large model answers exactly the rows that the small one may not keep, wherever and
however the pipeline runs; and a calibrated threshold keeps its promise."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.plan.choice import configurations, resolve
from silva.serve.engine import Engine
from silva.serve.models.model import Answer, Model, Question

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
    threads: set[int] = set()

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
