"""Caches that the planner places: nothing but speed shows them, whatever fails."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.cost.costs import Cost
from silva.planner.known_costs import Effort, Measured
from silva.planner.movable_runs import StepRun
from silva.testing import cut_blocks, replanned, stream

ROWS = 240
POLICIES = [sv.Skip(at_most=60), sv.Skip(at_most=25), sv.Skip(rate=0.14), sv.Substitute(-1)]


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def first(x):
    first.calls += 1  # on the function: a global would be part of its fingerprint
    if x % 11 == 3:
        raise ValueError(f"first {x}")
    return x * 2


first.calls = 0


def second(y, rng):
    if y % 14 == 4:
        raise ValueError(f"second {y}")
    return y + rng.random()


def _pipeline() -> sv.Pipeline:
    return (
        sv.from_columns({"x": range(ROWS), "v": np.arange(ROWS * 4).reshape(ROWS, 4)})
        .shuffle(seed=2)
        .derive(y=first)
        .filter(lambda x: x % 5 != 0)
        .derive(z=second)
        .batch(8)
    )


class KeepingPays:
    """Costs by which keeping `y` pays and nothing else does, from the start and for ever."""

    effort = Effort(0.0, math.inf, math.inf)

    def before(self, run: StepRun) -> Measured:
        read = Cost(100, 100, 1e-6, 1e-6, {"x": 800, "v": 3200})
        steps = {s.id: Cost(100, 100, 1e-6, 1e-6, {"z": 800}) for s in run.steps}
        steps["y#0"] = Cost(100, 100, 10.0, 10.0, {"y": 800})
        return Measured(read, Cost(), steps)

    def now(self, run: StepRun) -> Measured:
        return Measured()

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


class BesideALoop(KeepingPays):
    """The same costs, beside a loop that takes so many seconds for a row."""

    def __init__(self, seconds: float) -> None:
        self._loop = Cost(rows=1, kept=1, seconds=seconds)

    def before(self, run: StepRun) -> Measured:
        return replace(super().before(run), loop=self._loop)


@pytest.mark.parametrize(("seconds", "caches"), [(0.0, True), (0.01, True), (1.0, False)])
def test_rows_are_not_cached_for_a_loop_that_takes_them_no_faster(seconds, caches) -> None:
    """A row takes 0.1 s, on two workers."""
    rows = _pipeline().loader(backend="threads", workers=2, epochs=3, on_error=sv.Skip())
    with rows.with_seams(costs=BesideALoop(seconds)) as loader:
        next(iter(loader))
        assert ("cache" in [d.what for d in loader.facts().decisions]) == caches


def caching(loader: sv.Loader) -> sv.Loader:
    """The loader, sure from the start that keeping `y` pays and nothing else does."""
    return loader.with_seams(costs=KeepingPays())


def told(loader: sv.Loader, epochs: int) -> list[Any]:
    """All that a user can see: rows, states, failures in their order, and how it ended."""
    found: list[Any] = []
    for _ in range(epochs):
        try:
            for batch in loader:
                found.append((batch["x"].tolist(), batch["z"].tobytes()))
                found.append(json.dumps(loader.state_dict()["cursors"]))
        except sv.SilvaError as error:
            found.append((type(error), str(error).splitlines()[0]))
            break
    return [*found, [(f.key, f.step.partition("  ")[0], f.error) for f in loader.failures]]


@pytest.mark.parametrize("backend", ["inline", "threads"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_cache_changes_nothing_that_fails(on_error, backend) -> None:
    options = {"backend": backend, "workers": 2, "epochs": 3, "on_error": on_error}
    options["workers"] = 0 if backend == "inline" else 2
    sizes = (7, 30, 3)
    with cut_blocks(_pipeline().loader(cache="off", **options), sizes) as plain:
        expected = told(plain, 3)
    with cut_blocks(caching(_pipeline().loader(**options)), sizes) as loader:
        assert _seen(told(loader, 3)) == _seen(expected)
        assert loader._executor.keeps_rows


def _seen(found: list[Any]) -> list[Any]:
    """States end where blocks end, and blocks of rows that are kept are others; but each must lead
    to the same rows, which `test_states_…` sees to."""
    return [one for one in found if not isinstance(one, str)]


@pytest.mark.parametrize("on_error", [sv.Skip(at_most=60), sv.Skip(rate=0.3), sv.Substitute(-1)])
def test_states_load_with_and_without_a_cache(on_error) -> None:
    options = {"backend": "inline", "epochs": 3, "on_error": on_error}
    plain = _pipeline().loader(cache="off", **options)
    expected = [stream(plain) for _ in range(3)]
    counted = plain.facts().failed
    loader = caching(_pipeline().loader(**options))
    for epoch in range(3):
        for given, _ in enumerate(loader, start=1):
            state = json.loads(json.dumps(loader.state_dict()))
            if given % 7:
                continue
            without = _pipeline().loader(cache="off", **options)
            for other in (without, caching(_pipeline().loader(**options))):
                other.load_state_dict(state)
                assert stream(other) == expected[epoch][given:], (epoch, given)
                if isinstance(on_error, sv.Skip):
                    assert other.facts().failed == counted, "those before the state count too"


def test_only_rows_that_failed_are_computed_again() -> None:
    first.calls = 0
    with caching(
        _pipeline().loader(backend="inline", epochs=4, on_error=sv.Skip(at_most=60))
    ) as loader:
        epochs = []
        for _ in range(4):
            before = len(loader.failures)
            stream(loader)
            epochs.append(len(loader.failures) - before)
    failing = len([x for x in range(ROWS) if x % 11 == 3 and x % 5])
    assert len(set(epochs)) == 1, "every epoch has the same failures"
    assert epochs[0] >= failing
    fast = ROWS * 4 / 5
    assert first.calls < 2 * (fast + 4 * failing), "row by row where a block fails, then once more"


def test_the_planner_keeps_rows_although_failures_are_counted() -> None:
    def slow(x):
        spin(4e-4)
        if x % 300 == 299:
            raise ValueError(x)
        return np.full(50, x)

    pipeline = sv.from_columns({"x": range(900)}).derive(y=slow).batch(8)
    options = {"backend": "inline", "epochs": 3, "on_error": sv.Skip(at_most=10)}
    with pipeline.loader(**options) as loader:
        epochs = [stream(loader) for _ in range(3)]
        assert [d.name for d in loader.facts().decisions if d.kind == "choice"] == ["cache"]
        assert len(loader.failures) == 9
    plain = pipeline.loader(cache="off", **options)
    assert epochs == [stream(plain) for _ in range(3)]


def _noted(seen: list[int], rows: list[int]) -> list[int]:
    seen += rows
    return []


@pytest.mark.parametrize("seed", range(3))
def test_an_error_below_a_cache_comes_after_the_rows_before_it(seed: int) -> None:
    pipeline = (
        sv.from_columns({"x": range(100)})
        .derive(y=lambda x: 1 / (x - 90))
        .derive(z=lambda y, x: 1 / (x - 70))
        .batch(5)
    )
    made = pipeline.loader(backend="threads", workers=2, epochs=2)
    with replanned(made, seed) as loader:
        seen: list[int] = []
        with pytest.raises(sv.RowError) as error:
            seen.extend(x for batch in loader for x in _noted(seen, batch["x"].tolist()))
    assert seen == list(range(70))
    assert error.value.key == "0:70"
