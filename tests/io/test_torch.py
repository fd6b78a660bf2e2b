from __future__ import annotations

import collections

import numpy as np
import pytest
import torch
from source_laws import check_chunked, check_indexed, everything

import silva as sv
from silva.columns import Array, Values
from silva.errors import PlanError, SourceError
from silva.io.datasets.torch import from_torch

Point = collections.namedtuple("Point", "x y")


class Squares(torch.utils.data.Dataset):
    def __init__(self, count, make):
        self.count, self.make = count, make

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return self.make(i)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, count, make):
        self.count, self.make = count, make

    def __iter__(self):
        return map(self.make, range(self.count))


FORMS = {
    "dict": (lambda i: {"a": i, "b": str(i)}, None, lambda i: {"a": i, "b": str(i)}),
    "tuple": (lambda i: (i, str(i)), None, lambda i: {"item_0": i, "item_1": str(i)}),
    "named": (lambda i: (i, str(i)), ["n", "s"], lambda i: {"n": i, "s": str(i)}),
    "namedtuple": (lambda i: Point(i, 2 * i), None, lambda i: {"x": i, "y": 2 * i}),
    "single": (lambda i: torch.tensor([i, i]), None, lambda i: {"item": [i, i]}),
}


@pytest.mark.parametrize("form", FORMS)
def test_samples_of_every_form(form):
    make, columns, expected = FORMS[form]
    rows = [expected(i) for i in range(20)]
    assert check_indexed(from_torch(Squares(20, make), columns=columns)) == rows
    assert check_chunked(from_torch(Stream(20, make), columns=columns)) == rows


def test_tensors_become_arrays_that_share_memory():
    tensors = torch.arange(12.0).reshape(4, 3)
    source = from_torch(torch.utils.data.TensorDataset(tensors, torch.arange(4)))
    run = source.read(np.arange(4), ("item_0", "item_1"))
    assert isinstance(run["item_0"], Values)
    assert np.shares_memory(run["item_0"].items[0], tensors.numpy())
    assert isinstance(run["item_1"], Array)
    assert run["item_1"].data.dtype == np.int64


def test_many_samples_are_asked_for_at_once_where_that_is_possible():
    class Batched(Squares):
        def __getitems__(self, rows):
            return [("many", i) for i in rows]

    source = from_torch(Batched(5, lambda i: ("one", i)))
    assert source.read(np.array([3, 1]), ("item_0",))["item_0"].rows() == ["many", "many"]


def test_long_streams_come_in_runs():
    source = from_torch(Stream(1000, lambda i: {"x": np.zeros(100_000, np.uint8), "i": i}))
    runs = [run["i"].rows() for run in source.open(0, 990, ("i",))]
    assert [i for run in runs for i in run] == list(range(990, 1000))
    source = from_torch(Stream(100, lambda i: {"x": np.zeros(1 << 20, np.uint8)}))
    assert max(len(run["x"]) for run in source.open(0, 0, ("x",))) == 4


@pytest.mark.parametrize(("count", "told"), [(4, "yields 4 samples"), (6, "yields more samples")])
def test_a_stream_that_has_another_length_than_it_says_is_an_error(count, told):
    class Sized(Stream):
        def __len__(self):
            return 5

    rows = sv.from_torch(Sized(count, lambda i: {"x": i})).batch(2)
    with pytest.raises(sv.SourceError, match=f"has the length 5 .__len__., but {told}"):
        list(rows.loader(backend="inline"))


def test_a_stream_knows_its_length_only_if_it_says_so():
    class Sized(Stream):
        def __len__(self):
            return self.count

    assert from_torch(Stream(3, str)).length() is None
    assert from_torch(Sized(3, str)).length() == 3
    assert from_torch(Sized(3, str)).access == "chunked"


def test_the_fingerprint_is_type_and_length():
    a, b = from_torch(Squares(3, str)), from_torch(Squares(4, str))
    assert a.fingerprint() != b.fingerprint()
    assert a.fingerprint() == from_torch(Squares(3, int)).fingerprint()


def test_an_empty_dataset():
    assert check_indexed(from_torch(Squares(0, str))) == []
    assert everything(from_torch(Stream(0, str), columns=["x"])) == []


def test_samples_that_do_not_fit_are_errors():
    with pytest.raises(SourceError, match="2 names, but a sample has 1"):
        from_torch(Squares(3, str), columns=["a", "b"]).columns()
    with pytest.raises(SourceError, match="no \\['z'\\]"):
        from_torch(Squares(3, lambda i: {"a": i}), columns=["z"]).columns()
    with pytest.raises(SourceError, match="a sample has no 'k0'"):
        everything(from_torch(Squares(3, lambda i: {f"k{i}": i})))
    with pytest.raises(SourceError, match="a sample has 2 values"):
        everything(from_torch(Squares(3, lambda i: (i,) * (i + 1))))


@pytest.mark.parametrize("kind", [Squares, Stream])
def test_a_key_that_the_first_sample_lacks_is_an_error_with_its_row(kind):
    def late(i):
        return {"x": i} if i < 2 else {"x": i, "late": i}

    with pytest.raises(SourceError, match="sample 2 has the key 'late'"):
        everything(from_torch(kind(4, late)))
    chosen = from_torch(kind(4, late), columns=["x"])
    assert everything(chosen) == [{"x": i} for i in range(4)]


def test_what_a_stream_raises_names_it_and_the_row():
    def dies(i):
        return 1 // (3 - i)

    with pytest.raises(
        SourceError, match=r"Stream raised ZeroDivisionError: .* after 3 samples"
    ) as e:
        everything(from_torch(Stream(5, dies)))
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    with pytest.raises(SourceError, match="the Stream raised ZeroDivisionError"):
        from_torch(Stream(5, lambda i: 1 // i)).columns()


def test_what_is_no_dataset_is_refused():
    for wrong in (3, iter([1])):
        with pytest.raises(PlanError, match="from_torch takes"):
            from_torch(wrong)


DATA = torch.utils.data.TensorDataset(torch.arange(12))


class Backwards(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(range(11, -1, -1))

    def __len__(self):
        return 12


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"shuffle": True}, r"RandomSampler.*sv\.from_torch\(dataset\)\.shuffle\(\)\.batch\(4\)"),
        ({"sampler": torch.utils.data.SubsetRandomSampler([1, 2])}, "SubsetRandomSampler"),
        ({"sampler": torch.utils.data.WeightedRandomSampler([1.0] * 12, 12)}, r"\.sample\("),
        ({"sampler": Backwards()}, r"Subset\(dataset, list\(sampler\)\)"),
        ({"sampler": torch.utils.data.DistributedSampler(DATA, 2, 0)}, "one rank"),
        ({"shuffle": True, "generator": torch.Generator().manual_seed(0)}, "RandomSampler"),
    ],
    ids=["shuffle", "subset", "weighted", "custom", "distributed", "seeded"],
)
def test_a_data_loader_with_an_order_of_its_own_is_refused(arguments, told):
    with pytest.raises(PlanError, match=told):
        from_torch(torch.utils.data.DataLoader(DATA, 4, **arguments))


def test_a_batch_sampler_of_the_users_is_refused():
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(DATA), 4, False)
    with pytest.raises(PlanError, match="RandomSampler"):
        from_torch(torch.utils.data.DataLoader(DATA, batch_sampler=batches))
    with pytest.raises(PlanError, match="Backwards"):
        from_torch(torch.utils.data.DataLoader(DATA, batch_sampler=Backwards()))


@pytest.mark.parametrize("arguments", [{}, {"sampler": [3, 1, 2, 0]}, {"batch_size": None}])
def test_a_data_loader_in_order_replays(arguments):
    loader = torch.utils.data.DataLoader(DATA, **{"batch_size": 4, **arguments})
    check_chunked(from_torch(loader))


class Shuffled(torch.utils.data.IterableDataset):
    """Another order at each pass."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([{"x": (i + self.passes) % 9} for i in range(9)])


def test_a_stream_that_shuffles_itself_warns_and_refuses_to_resume():
    import silva as sv

    batches = sv.from_torch(Shuffled()).batch(2)
    loader = batches.loader(backend="inline", workers=0)
    with pytest.warns(UserWarning, match="other samples each time"):
        next(iter(loader))
    again = batches.loader(backend="inline", workers=0)
    again.load_state_dict(loader.state_dict())
    with pytest.raises(SourceError, match="cannot be resumed at sample 2"):
        list(again)


class Once:
    def __init__(self):
        self.rows = iter([{"x": 1}, {"x": 2}])

    def __iter__(self):
        return self.rows


def test_what_can_be_read_only_once_is_refused():
    with pytest.raises(PlanError, match="only once"):
        from_torch(Once()).columns()
    with pytest.raises(PlanError, match="only once"):
        from_torch(iter([1]))


@pytest.mark.parametrize("kind", [Squares, Stream])
def test_rows_of_a_dataset_are_not_kept_for_another_that_looks_the_same(kind, tmp_path):
    """Of a dataset only its type and length are known."""
    for factor in (2, 3):
        rows = sv.from_torch(kind(6, lambda i, factor=factor: {"a": factor * i}))
        with pytest.warns(UserWarning, match="keeps rows in memory"):
            found = [row["a"] for row in rows.cache(tmp_path).batch(6).head(1)]
        assert found[0].tolist() == [factor * i for i in range(6)]
    assert not list(tmp_path.rglob("*.rows"))
