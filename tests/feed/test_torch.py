"""Torch tensors: shared memory, every type, and the manners of a torch dataset."""

from __future__ import annotations

import json
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.utils.data import DataLoader, IterableDataset

import silva as sv


def feed(columns, size=4, **arguments):
    return sv.from_columns(columns).batch(size).loader(workers=0).to_torch(**arguments)


def test_a_feed_is_a_torch_dataset_and_stateful() -> None:
    found = feed({"x": range(8)})
    assert isinstance(found, IterableDataset)
    assert isinstance(found, Stateful)
    assert len(found) == 2
    assert type(found) is type(feed({"y": range(4)}))


def test_tensors_share_the_memory_of_the_batch() -> None:
    loader = sv.from_columns({"x": np.arange(8.0)}).batch(4).loader(workers=0)
    arrays = []

    class Spy:
        def __iter__(self):
            for batch in loader:
                arrays.append(batch["x"])
                yield batch

    from silva.feed.torch import torch_feed

    for batch in torch_feed(Spy()):
        batch["x"] += 1
        assert batch["x"].tolist() == arrays[-1].tolist()


NUMBERS = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64",
)  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_keeps_its_type(dtype: str) -> None:
    (batch,) = feed({"x": np.arange(4).astype(dtype)})
    assert str(batch["x"].dtype) == f"torch.{dtype}"
    assert batch["x"].numpy().tolist() == np.arange(4).astype(dtype).tolist()


def test_big_endian_and_reversed_arrays_are_copied() -> None:
    from silva.feed.torch import tensors

    found = tensors({"a": np.arange(3, dtype=">i4"), "b": np.arange(3)[::-1]}, lambda t: t)
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].tolist() == [2, 1, 0]


def test_a_read_only_array_is_never_shared() -> None:
    from silva.feed.torch import tensors

    data = np.arange(3)
    data.flags.writeable = False
    tensors({"x": data}, lambda t: t)["x"].add_(1)
    assert data.tolist() == [0, 1, 2]


def test_text_is_a_list_and_ragged_rows_keep_their_offsets() -> None:
    rows = sv.from_items([{"t": [1, 2], "s": "a"}, {"t": [3], "s": "b"}])
    (batch,) = rows.batch(2).loader(workers=0).to_torch()
    assert batch["s"] == ["a", "b"]
    assert isinstance(batch["t"], sv.Ragged)
    assert isinstance(batch["t"].values, torch.Tensor)
    assert batch["t"].values.tolist() == [1, 2, 3]
    assert batch["t"].offsets.tolist() == [0, 2, 3]
    assert batch["t"][0].tolist() == [1, 2]


def test_missing_values_are_refused_with_advice() -> None:
    rows = sv.from_items([{"x": 1}, {"x": None}]).batch(2).loader(workers=0)
    with pytest.raises(sv.ColumnError, match=r"'x' has missing values.*fill"):
        list(rows.to_torch())


@pytest.mark.parametrize("values", [np.array(["2026-01-01"], "M8[D]"), np.zeros(1, np.longdouble)])
def test_types_that_torch_lacks_are_refused_by_column(values: np.ndarray) -> None:
    with pytest.raises(sv.ColumnError, match="column 'when' is"):
        list(feed({"when": values}))


def test_it_works_in_a_dataloader_without_workers() -> None:
    loader = DataLoader(feed({"x": range(8)}), batch_size=None, num_workers=0)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_inside_a_dataloader_worker_it_refuses_with_advice(monkeypatch) -> None:
    from torch.utils.data._utils import worker

    monkeypatch.setattr(worker, "_worker_info", object())
    with pytest.raises(sv.LoaderError, match="num_workers=0"):
        iter(feed({"x": range(8)}))


def test_it_cannot_be_sent_to_a_spawned_worker() -> None:
    with pytest.raises(sv.LoaderError, match="num_workers=0"):
        pickle.dumps(feed({"x": range(8)}))


def test_state_and_epochs_are_those_of_the_loader() -> None:
    pipeline = sv.from_columns({"x": range(40)}).shuffle(seed=1).batch(4)
    first = pipeline.loader(workers=0).to_torch()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    expected = [b["x"].tolist() for b in batches]
    second = pipeline.loader(workers=0).to_torch()
    second.load_state_dict(state)
    assert [b["x"].tolist() for b in second] == expected
    second.set_epoch(0)
    assert next(iter(second))["x"].tolist() == next(iter(pipeline.loader(workers=0)))["x"].tolist()


def test_a_device_is_where_the_tensors_are() -> None:
    (batch,) = feed({"x": range(4)}, device="cpu", pin_memory=True)
    assert batch["x"].device.type == "cpu"
    (batch,) = feed({"x": range(4)}, device=torch.device("meta"))
    assert batch["x"].device.type == "meta"


class FakeEvent:
    """A CUDA event of a copy that is done when a test says so."""

    done = False

    def record(self, stream) -> None:
        pass

    def query(self) -> bool:
        return FakeEvent.done

    def synchronize(self) -> None:
        FakeEvent.done = True


def test_what_a_copy_reads_is_kept_until_it_is_done(monkeypatch) -> None:
    from silva.feed.torch import _on_cuda

    FakeEvent.done = False
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    alive: list[weakref.ref] = []

    def batches():
        for _ in range(4):
            data = np.arange(1000)
            alive.append(weakref.ref(data))
            yield {"x": data}

    feed = _on_cuda(batches(), torch.device("meta"), pin_memory=False)
    next(feed), next(feed)
    assert alive[0]() is not None
    FakeEvent.done = True
    next(feed)
    assert alive[0]() is None
    FakeEvent.done = False
    next(feed)
    feed.close()
    assert FakeEvent.done  # a loop that is left waits for its copies


def test_rows_of_different_lengths_are_padded_and_measured_as_tensors():
    rows = sv.from_items([{"t": np.array([5, 6])}, {"t": np.array([7])}, {"t": np.array([], int)}])
    (batch,) = rows.batch(3).loader(workers=0).to_torch()
    ragged = batch["t"]
    assert isinstance(ragged.lengths, torch.Tensor)
    assert ragged.lengths.tolist() == [2, 1, 0]
    padded = ragged.padded(-1, length=3)
    assert padded.dtype == torch.int64
    assert padded.tolist() == [[5, 6, -1], [7, -1, -1], [-1, -1, -1]]
    assert ragged.padded().tolist() == [[5, 6], [7, 0], [0, 0]]
    assert [row.tolist() for row in ragged] == [[5, 6], [7], []]
    with pytest.raises(sv.ColumnError, match="cannot be padded with 'x'"):
        ragged.padded("x")
    with pytest.raises(sv.ColumnError, match="does not fit into pad length 1"):
        ragged.padded(length=1)
    wide = sv.Ragged(torch.ones(3, 2), torch.tensor([0, 1, 3]))
    assert wide.padded(0).shape == (2, 2, 2)
    assert sv.Ragged(torch.ones(0), torch.tensor([0])).padded(0).shape == (0, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a torch without CUDA")
def test_a_device_that_this_torch_lacks_is_named():
    feed = sv.from_columns({"x": range(4)}).batch(2).loader(workers=0).to_torch(device="cuda:0")
    with pytest.raises(sv.LoaderError, match=r"device='cuda:0'\): this torch has no CUDA"):
        next(iter(feed))
