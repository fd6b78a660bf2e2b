"""Real runs whose costs change: the plan follows them, and the stream and its states stay."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

import silva as sv
from silva.plan.decision import Decision
from silva.testing import stream

pytestmark = pytest.mark.rest

FAST, ROWS = 8000, 20000
"""Rows before the function becomes slow, and all rows."""


def spin(seconds: float) -> None:
    """Takes so much CPU time on any machine, however busy it is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def becomes_slow(x):
    """Takes 40 times as long from a row on; the other filter, as long as that from the start."""
    spin(5e-6 if x < FAST else 2e-4)
    return x % 10 != 0


def steady(z):
    spin(2e-4)
    return z % 4 == 0


def light(z):
    spin(1e-4)
    return z % 3 != 0


def history(loader: sv.Loader) -> list[Decision]:
    return list(loader.facts().history)


def rows_before(change: Decision) -> int:
    """The rows after which the plan changed."""
    (note,) = change.notes
    return int(note.split()[1].replace(",", ""))


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_a_function_that_becomes_slow_is_moved_and_the_stream_stays(backend: Any) -> None:
    rows = sv.from_columns({"x": range(ROWS), "z": range(ROWS)})
    pipeline = rows.filter(becomes_slow).filter(steady).batch(16)
    found, states, changes = [], [], []
    with pipeline.loader(backend=backend, workers=2) as loader:
        for batch in loader:
            found.append(batch["x"].tolist())
            states.append(loader.state_dict())
            changes.append(len(history(loader)))
        text = loader.explain()
        late = [change for change in history(loader) if rows_before(change) > FAST]
        planning = loader.facts().planning
    assert any((change.predicted_gain or 0.0) > 1.1 for change in late)
    assert "Changes while it ran" in text
    assert 0 < planning.share <= 0.02
    assert planning.plans > 0
    assert planning.backends > 0
    x = np.arange(ROWS)
    kept = x[(x % 10 != 0) & (x % 4 == 0)].tolist()
    assert found == [kept[at : at + 16] for at in range(0, len(kept), 16)]
    after = changes.index(changes[-1])  # the first batch after the latest change
    state = json.loads(json.dumps(states[after]))
    for optimize in (True, False):
        with pipeline.options(optimize=optimize).loader(backend="inline") as loader:
            loader.load_state_dict(state)
            rest = iter(loader)
            assert [next(rest)["x"].tolist() for _ in range(3)] == found[after + 1 : after + 4]


class Warm:
    """Takes long for a row in the first epoch, and finds it in a cache of its own from then on."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, x):
        spin(1e-5 if x in self.seen else 8e-4)
        self.seen.add(x)
        return x % 2 == 0


def test_a_cache_that_is_warm_in_the_second_epoch_changes_the_order() -> None:
    """The function is the dearer filter in the first epoch, and the cheaper one in the next."""
    rows = sv.from_columns({"x": range(9000), "z": range(9000)})

    def made() -> sv.Pipeline:
        return rows.filter(light).filter(Warm()).batch(16).options(disable=["cache"])

    with made().loader(backend="inline", epochs=4) as loader:
        found = [stream(loader) for _ in range(4)]
        late = [change for change in history(loader) if rows_before(change) > 9000]
        assert any((change.predicted_gain or 0.0) > 1.1 for change in late)
    plain = made().options(optimize=False).loader(backend="inline", epochs=4)
    assert found == [stream(plain) for _ in range(4)]


def test_functions_that_take_now_more_and_now_less_move_nothing_after_the_first_choice() -> None:
    draw = np.random.default_rng(0).lognormal(-0.125, 0.5, 6000)

    def noisy(x):
        spin(1e-4 * draw[x])
        return x % 2 == 0

    rows = sv.from_columns({"x": range(6000), "z": range(6000)})
    pipeline = rows.filter(noisy).filter(light).batch(16)
    with pipeline.loader(backend="inline") as loader:
        stream(loader)
        assert [change for change in history(loader) if "rows are measured" not in change.why] == []
