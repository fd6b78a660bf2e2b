from __future__ import annotations

import datasets
import numpy as np
import pyarrow as pa
import pytest
from source_laws import check_chunked, check_indexed, everything

from silva.columns import Array, Lists
from silva.errors import PlanError, SourceError
from silva.io.datasets.huggingface import from_huggingface

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


@pytest.fixture
def by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jpg").write_bytes(name.encode())
    return tmp_path


def _pictures(rows, feature=None):
    features = datasets.Features({"image": feature or datasets.Image()})
    table = pa.table({"image": rows}, features.arrow_schema)  # from_list would need torchcodec
    return datasets.Dataset(table, datasets.DatasetInfo(features=features))


@pytest.mark.parametrize("feature", [datasets.Image(), datasets.Audio()], ids=["image", "audio"])
def test_what_is_stored_by_path_is_read(by_path, monkeypatch, feature):
    rows = [
        {"bytes": None, "path": str(by_path / "a.jpg")},
        {"bytes": None, "path": "b.jpg"},
        {"bytes": b"own", "path": "there-is-no-such-file.jpg"},
        None,
    ]
    data = _pictures(rows, feature)
    indexed, stream = from_huggingface(data), from_huggingface(data.to_iterable_dataset())
    monkeypatch.chdir("/")
    for source in (indexed, stream):
        assert [row["image.bytes"] for row in everything(source)] == [b"a", b"b", b"own", None]
    (run,) = stream.open(0, 1, ("image.bytes",))
    assert run["image.bytes"].rows() == [b"b", b"own", None]
    assert indexed.read(np.array([1]), ("image.bytes",))["image.bytes"].rows() == [b"b"]


def test_lists_and_structs_of_images_are_read(by_path):
    features = datasets.Features(
        {"all": datasets.List(datasets.Image()), "of": {"cover": datasets.Image()}}
    )
    stored = {"bytes": None, "path": "a.jpg"}
    rows = [{"all": [stored, stored], "of": {"cover": stored}}]
    source = from_huggingface(datasets.Dataset.from_list(rows, features=features))
    (row,) = everything(source)
    assert row["of.cover.bytes"] == b"a"
    assert [item["bytes"] for item in row["all"]] == [b"a", b"a"]


def test_a_missing_file_is_the_error_of_its_row(by_path):
    import silva as sv

    data = _pictures([{"bytes": None, "path": p} for p in ("a.jpg", "gone.jpg", "b.jpg")])
    rows = sv.from_huggingface(data)
    assert sv.from_huggingface(data).select("image.path").count() == 3
    with pytest.raises(sv.RowError, match=r"gone\.jpg.*cannot be read"):
        list(rows)
    loader = rows.loader(on_error=sv.Skip(at_most=1), backend="inline", workers=0)
    assert [row["image.bytes"] for row in loader] == [b"a", b"b"]


def test_a_key_that_the_first_sample_of_a_stream_lacks_is_an_error():
    def late():
        yield {"x": 1}
        yield {"x": 2, "late": 3}

    source = from_huggingface(datasets.IterableDataset.from_generator(late))
    with pytest.raises(SourceError, match="sample 1 has the key 'late'"):
        everything(source)


def test_a_filtered_stream_may_have_tables_of_nulls_only():
    rows = [{"x": i, "n": None if i % 2 else i} for i in range(600)]
    stream = datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=4)
    source = from_huggingface(stream.filter(lambda row: row["x"] % 3 > 0))
    assert everything(source) == [row for row in rows if row["x"] % 3 > 0]


def test_what_a_stream_with_features_raises_names_it_and_the_row():
    def dies():
        yield from ({"x": i} for i in range(3))
        raise RuntimeError("boom")

    features = datasets.Features({"x": datasets.Value("int64")})
    stream = datasets.IterableDataset.from_generator(dies, features=features)
    with pytest.raises(SourceError, match=r"huggingface stream IterableDataset raised .*boom"):
        everything(from_huggingface(stream))
