"""Functions that write where they may only read, in every way that Python leaves open."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import silva as sv

pytestmark = pytest.mark.attacks("One stream")
WAYS = ["inline", "threads", "processes"]


def through_torch(v):
    torch = pytest.importorskip("torch")
    torch.from_numpy(v).add_(1)
    return 0


def through_memory(v):
    ctypes.memset(v.ctypes.data, 1, v.nbytes)
    return 0


@sv.batched
def through_torch_in_batches(v):
    through_torch(v)
    return np.zeros(len(v))


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("backend", WAYS)
@pytest.mark.parametrize(
    "write",
    [through_torch, through_memory, pytest.param(through_torch_in_batches, marks=pytest.mark.rest)],
)
def test_writing_past_the_read_only_flag_is_refused_and_reaches_no_source(backend, write):
    held = np.zeros((4, 2), dtype=np.float32)
    rows = sv.from_columns({"v": held})
    for pipeline in (rows.derive(w=write).batch(4), rows.batch(4).derive(w=write)):
        with (
            pipeline.loader(backend=backend, workers=1, on_error=sv.Skip()) as loader,
            pytest.raises(sv.ColumnError, match="changes its input 'v'"),
        ):
            list(loader)
        assert not held.any()


def test_an_array_that_cannot_be_copied_in_its_layout_is_watched_as_well():
    """Its sums would come out in another order in a copy."""
    held = np.zeros((4, 2, 6), dtype=np.float32)[:, :, ::2]
    with pytest.raises(sv.ColumnError, match="changes its input 'v'"):
        list(sv.from_columns({"v": held}).derive(w=through_torch))


class Quarrelsome:
    """Neither copies nor compares."""

    def __deepcopy__(self, memo):
        raise SystemExit(3)

    def __eq__(self, other):
        raise GeneratorExit

    __hash__ = None


@pytest.mark.parametrize("backend", ["inline", "threads"])
def test_objects_that_cannot_be_copied_or_compared_pass_as_they_are(backend):
    odd = Quarrelsome()
    held = [odd]
    held.append(held)
    values = [odd, [odd], {"a": odd}, (odd, []), held, np.array([odd, 1], dtype=object)]
    deep: list = []
    for _ in range(3000):
        deep = [deep]
    values.append(deep)
    pipeline = sv.from_items([{"v": v} for v in values]).derive(w=lambda v: type(v).__name__)
    names = [type(v).__name__ for v in values]
    with pipeline.select("w").loader(backend=backend, workers=1) as loader:
        assert [row["w"] for row in loader] == names


@pytest.mark.parametrize("backend", WAYS)
def test_a_habit_of_tokenisers_does_not_make_the_stream_drift(backend):
    @sv.owns("tokens")
    def close(tokens):
        tokens.append(99)
        return tokens

    source = [{"tokens": [0] * n} for n in (1, 2, 3, 4)]
    pipeline = sv.from_items(source).derive(ids=close).batch(4)
    with pipeline.loader(backend=backend, workers=1) as loader:
        lengths = [[b["ids"].lengths.tolist() for b in loader] for _ in range(3)]
    assert lengths == [[[2, 3, 4, 5]]] * 3
    assert [len(row["tokens"]) for row in source] == [1, 2, 3, 4]
