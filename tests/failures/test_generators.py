"""Functions that use global generators: seeded per row and epoch, and nobody else's are touched."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from failure_tools import WAYS

import silva as sv
from silva.physical.stage.global_generators import Gate
from silva.testing import cut_blocks, digest


def by_random(x):
    return random.random()


def by_numpy(x):
    return float(np.random.normal())


def by_torch(x):
    import torch

    return float(torch.rand(()))


def by_all(x):
    import torch

    return [random.gauss(0, 1), float(np.random.rand()), float(torch.randn(()))]


def only_sometimes(x):
    return random.random() if x % 16 == 9 else 0.0


@sv.batched
def batched(x):
    return x + np.random.random(len(x))


@sv.batched
def batched_with_rng(x, rng):
    return x + rng.random(len(x))


@sv.batched(size=8)
def in_chunks(x):
    return x + np.random.random(len(x))


class Noisy:
    """A dataset with a random transform, as torch users write them."""

    def __len__(self):
        return 48

    def __getitem__(self, i):
        import torch

        return {"x": i, "y": float(torch.rand(())) + random.random()}


class RandomWeights:
    def __init__(self):
        self.weight = np.random.rand()

    def __call__(self, x):
        return x + self.weight


def collate(rows):
    return {"x": np.array([r["x"] for r in rows]) + np.random.rand()}


def numbers() -> sv.Pipeline:
    return sv.from_columns({"x": range(48)})


PIPELINES = {
    "random": lambda: numbers().derive(y=by_random).batch(8),
    "numpy": lambda: numbers().derive(y=by_numpy).batch(8),
    "torch": lambda: numbers().derive(y=by_torch).batch(8),
    "all": lambda: numbers().derive(y=by_all).batch(8),
    "only sometimes": lambda: numbers().derive(y=only_sometimes).batch(8),
    "filter": lambda: numbers().filter(lambda x: random.random() < 0.5).batch(8),
    "map_rows": lambda: (
        numbers().map_rows(lambda row: {"y": random.random()}, into=("y",)).batch(8)
    ),
    "batched": lambda: numbers().derive(y=batched).batch(8),
    "batched with rng": lambda: numbers().derive(y=batched_with_rng).batch(8),
    "batched in chunks": lambda: numbers().derive(y=in_chunks).batch(8),
    "after batch": lambda: numbers().batch(8).derive(y=lambda x: np.random.rand(3)),
    "collate": lambda: numbers().batch(8, collate=collate),
    "torch dataset": lambda: sv.from_torch(Noisy()).batch(8),
    "two stages": lambda: (
        numbers().derive(y=by_random).batch(8).derive(z=lambda y: y + random.random())
    ),
    "some rows fail": lambda: numbers().derive(y=lambda x: random.random() / (x != 5)).batch(8),
    "explode": lambda: (
        numbers().derive(y=lambda x: [0] * 3).explode("y").derive(z=by_random).batch(8)
    ),
}


def states():
    torch = pytest.importorskip("torch")
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def same(a, b) -> bool:
    return (
        a[0] == b[0]
        and a[1]["state"]["pos"] == b[1]["state"]["pos"]
        and np.array_equal(a[1]["state"]["key"], b[1]["state"]["key"])
        and a[1]["has_gauss"] == b[1]["has_gauss"]
        and bool((a[2] == b[2]).all())
    )


QUICK = {"all", "only sometimes", "filter", "batched in chunks", "collate", "torch dataset"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.rest) for n in PIPELINES]
)
def test_one_stream_on_every_backend_and_the_callers_states_untouched(name):
    pipeline = PIPELINES[name]()
    assert pipeline.schema  # may look at a first row
    options = {"on_error": sv.Skip(at_most=1)}
    np.random.seed(3)
    np.random.normal()  # leaves a cached number behind, which is part of the state
    before = states()
    loader = pipeline.loader(backend="inline", **options)
    expected = [[digest(b) for b in loader] for _ in range(2)]
    assert same(before, states()), "inline"
    assert expected[0] != expected[1], "the next epoch draws other numbers"
    assert len(set(expected[0])) == len(expected[0]), "every batch draws other numbers"
    for sizes in ([1], [3, 5], [100]):
        cut = cut_blocks(pipeline.loader(backend="inline", **options), sizes)
        assert [digest(b) for b in cut] == expected[0], f"blocks of {sizes}"
    for backend, workers in (("processes", 2), ("threads", 2), ("threads", 5)):
        with cut_blocks(
            pipeline.loader(backend=backend, workers=workers, **options), [3]
        ) as loader:
            assert [[digest(b) for b in loader] for _ in range(2)] == expected, (backend, workers)
        # a thread that is caught drawing has moved them by then: threads must have been asked for
        assert backend == "threads" or same(before, states())


def test_a_function_that_only_uses_up_a_cached_gaussian_is_found_out():
    np.random.seed(1)
    np.random.normal()
    loader = numbers().take(1).derive(y=by_numpy).batch(1).loader(backend="inline")
    (first,), (second,) = list(loader), list(loader)
    np.random.seed(2)
    np.random.normal()
    loader = numbers().take(1).derive(y=by_numpy).batch(1).loader(backend="inline")
    assert digest(next(iter(loader))) == digest(first)
    assert digest(first) != digest(second)


def test_random_weights_of_a_stateful_class_are_the_same_in_every_worker():
    pipeline = numbers().derive(y=sv.stateful(RandomWeights)()).batch(4)
    before = states()
    streams = set()
    for backend, workers in WAYS:
        with cut_blocks(pipeline.loader(backend=backend, workers=workers), [4]) as loader:
            streams.add(tuple(digest(b) for b in loader))
    assert len(streams) == 1
    assert same(before, states())


def test_a_thread_that_ctrl_c_took_out_of_the_gate_holds_nobody_up():
    """Ctrl-C may come between the step that enters and the one that would leave again."""
    for enter in ("together", "alone"):
        gate = Gate()
        interrupted = getattr(gate, enter)()
        interrupted.__enter__()
        passed = threading.Event()

        def pass_gate(gate=gate, passed=passed):
            with gate.alone():
                passed.set()

        gate.passers = frozenset((pass_gate.__code__,))
        thread = threading.Thread(target=pass_gate)
        thread.start()
        thread.join(60)
        assert passed.is_set()
