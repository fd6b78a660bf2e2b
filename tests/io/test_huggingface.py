from __future__ import annotations

import datasets
import numpy as np
import pytest
from source_laws import check_chunked, check_indexed, everything

from silva.columns import Array, Lists
from silva.errors import PlanError
from silva.io.huggingface import from_huggingface

ROWS = [{"n": i, "s": f"é{i}", "l": list(range(i % 3))} for i in range(20)]


@pytest.fixture(scope="module")
def dataset():
    return datasets.Dataset.from_list(ROWS)


def test_a_dataset_is_indexed(dataset):
    source = from_huggingface(dataset)
    assert check_indexed(source) == ROWS
    assert source.types() == {"n": "int64", "s": "str", "l": "list<int64>"}
    run = source.read(np.arange(4), ("n", "l"))
    assert isinstance(run["n"], Array)
    assert isinstance(run["l"], Lists)


def test_selections_and_formats_are_respected(dataset):
    picked = dataset.shuffle(seed=1).select(range(10)).with_format("torch")
    source = from_huggingface(picked)
    assert [row["n"] for row in check_indexed(source)] == picked.with_format(None)["n"][:]
    assert source.fingerprint() != from_huggingface(dataset).fingerprint()


def test_images_stay_as_they_are_stored():
    features = datasets.Features({"image": datasets.Image(), "y": datasets.ClassLabel(names=["a"])})
    data = datasets.Dataset.from_list(
        [{"image": {"bytes": b"jpg", "path": None}, "y": 0}], features=features
    )
    source = from_huggingface(data)
    assert check_indexed(source) == [{"image.bytes": b"jpg", "image.path": None, "y": 0}]


def test_a_stream_replays(dataset):
    source = from_huggingface(dataset.to_iterable_dataset(num_shards=3))
    assert source.access == "chunked"
    assert source.replays
    assert check_chunked(source) == ROWS


def test_a_stream_of_unknown_features():
    stream = datasets.IterableDataset.from_generator(lambda: iter(ROWS))
    source = from_huggingface(stream)
    assert source.columns() == ("n", "s", "l")
    assert everything(source) == ROWS


def test_what_is_no_dataset_is_refused(dataset):
    with pytest.raises(PlanError, match="choose among 'train', 'test'"):
        from_huggingface(datasets.DatasetDict({"train": dataset, "test": dataset}))
    with pytest.raises(PlanError, match="not list"):
        from_huggingface([1])
    with pytest.raises(PlanError, match="has a transform"):
        from_huggingface(dataset.with_transform(lambda batch: batch))
