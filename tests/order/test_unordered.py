"""`ordered=False` lets fast rows pass slow ones; no row is lost or repeated, resumed or not."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter

import pytest

import silva as sv
from silva.testing import cut_blocks

N = 60


@pytest.mark.parametrize("backend", ["threads", "processes", "inline"])
def test_rows_are_the_same_set_in_any_order(backend):
    rows = sv.from_columns({"x": range(N)}).derive(y=lambda x: x * 2).filter(lambda x: x % 3 > 0)
    with cut_blocks(
        rows.batch(4).loader(backend=backend, workers=2, ordered=False), (3, 1, 5)
    ) as loader:
        seen = Counter(x for batch in loader for x in batch["x"].tolist())
    assert seen == Counter(x for x in range(N) if x % 3)


def test_fast_rows_pass_a_slow_one():
    gate = threading.Event()

    def slow_first(x):
        if x == 0:
            gate.wait(30)
        return x

    rows = sv.from_columns({"x": range(N)}).derive(y=slow_first).batch(1)
    with cut_blocks(rows.loader(backend="threads", workers=2, ordered=False), (1,)) as loader:
        batches = iter(loader)
        first = [int(next(batches)["x"][0]) for _ in range(5)]
        gate.set()
        rest = [int(batch["x"][0]) for batch in batches]
    assert 0 not in first
    assert Counter(first + rest) == Counter(range(N))


def test_a_state_taken_out_of_order_loses_and_repeats_nothing():
    pid = os.getpid()

    def step(x):
        return x + (pid - pid)

    rows = sv.from_columns({"x": range(N)}).shuffle(seed=2).derive(y=step)
    rows = rows.filter(lambda x: x % 5 > 0).batch(3)
    for stop in (1, 4, 9):
        seen: Counter[int] = Counter()
        made = rows.loader(backend="threads", workers=3, ordered=False)
        loader = cut_blocks(made, (2, 3, 1))
        for i, batch in enumerate(loader):
            seen.update(batch["x"].tolist())
            if i + 1 == stop:
                break
        state = json.loads(json.dumps(loader.state_dict()))
        again = rows.loader(backend="processes", workers=2, ordered=False)
        again.load_state_dict(state)
        for batch in again:
            seen.update(batch["x"].tolist())
        again.close()
        assert seen == Counter(x for x in range(N) if x % 5)


def test_the_next_epoch_is_begun_early_and_is_the_same():
    rows = sv.from_columns({"x": range(N)}).shuffle(seed=1).derive(y=lambda x, rng: rng.random())
    rows = rows.batch(7)
    plain = rows.loader(backend="inline")
    with rows.loader(backend="threads", workers=2, epochs=3) as loader:
        for epoch in range(3):
            expected = [batch["y"].tolist() for batch in plain]
            state = loader.state_dict()
            assert (state["epoch"], state["step"]) == (epoch, 0)
            assert [batch["y"].tolist() for batch in loader] == expected
        with pytest.raises(sv.LoaderError, match="epochs"):
            list(loader)
