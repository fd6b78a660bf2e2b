"""Promise 1 over every source: shuffled or not, with one shard and with several."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from own_sources import Countdown, Squares

import silva as sv
from silva.io.source import BUILT_IN, kind_of, registered_sources
from silva.plan.node import Source, walk
from silva.testing import assert_same_stream

ROWS = 37


def files(folder: Path) -> sv.Pipeline:
    for i in range(ROWS):
        (folder / f"{i:02}.bin").write_bytes(bytes([i]) * (i % 5))
    return sv.read_files(folder / "*.bin").derive(path=lambda path: Path(path).name)


def lines(folder: Path) -> sv.Pipeline:
    for part in range(3):
        text = "\n".join(f"line {part} {i} {'x' * (i * 37 % 400)}" for i in range(ROWS))
        (folder / f"{part}.txt").write_text(text)
    return sv.read_lines(folder / "*.txt")


def zipped_lines(folder: Path) -> sv.Pipeline:
    with gzip.open(folder / "a.txt.gz", "wt") as out:
        out.write("\n".join(f"line {i}" for i in range(ROWS)))
    return sv.read_lines(folder / "a.txt.gz")


def json_lines(folder: Path) -> sv.Pipeline:
    rows = [{"id": i, "user": {"name": f"u{i}"}, "tags": ["a"] * (i % 3)} for i in range(ROWS)]
    (folder / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return sv.read_json(folder / "a.jsonl")


def csv(folder: Path) -> sv.Pipeline:
    table = pa.table({"a": range(ROWS), "b": [f"t{i}" for i in range(ROWS)]})
    pyarrow.csv.write_csv(table, folder / "a.csv")
    return sv.read_csv(folder / "a.csv")


def arrow_file(folder: Path) -> sv.Pipeline:
    with pa.OSFile(str(folder / "a.arrow"), "wb") as out:
        table = _table()
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
    return sv.read_arrow(folder / "a.arrow")


def npy(folder: Path) -> sv.Pipeline:
    np.save(folder / "a.npy", np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3))
    return sv.read_npy(folder / "a.npy")


def parquet(folder: Path) -> sv.Pipeline:
    pq.write_table(_table(), folder / "a.parquet", row_group_size=10)
    pq.write_table(_table().slice(0, 15), folder / "b.parquet", row_group_size=4)
    return sv.read_parquet(folder / "*.parquet")


def tar(folder: Path) -> sv.Pipeline:
    for shard in range(3):
        with tarfile.open(folder / f"{shard}.tar", "w") as out:
            for i in range(12):
                for kind, data in (("txt", b"t" * i), ("cls", str(i).encode())):
                    info = tarfile.TarInfo(f"{shard}_{i:03}.{kind}")
                    info.size = len(data)
                    out.addfile(info, io.BytesIO(data))
    return sv.read_tar(folder / "*.tar")


def items(folder: Path) -> sv.Pipeline:
    return sv.from_items([{"x": i, "s": "a" * i, "l": [1] * (i % 3)} for i in range(ROWS)])


def columns(folder: Path) -> sv.Pipeline:
    return sv.from_columns({"x": np.arange(ROWS), "y": np.ones((ROWS, 2, 2), dtype=np.int8)})


def arrow(folder: Path) -> sv.Pipeline:
    return sv.from_arrow(_table())


class SquareDataset:
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, i: int) -> tuple[int, np.ndarray]:
        return i * i, np.full(3, i)


class Stream:
    def __iter__(self):
        return ({"x": i, "y": float(i)} for i in range(ROWS))


def torch_map(folder: Path) -> sv.Pipeline:
    return sv.from_torch(SquareDataset(), columns=("square", "row"))


def torch_stream(folder: Path) -> sv.Pipeline:
    return sv.from_torch(Stream())


def huggingface(folder: Path) -> sv.Pipeline:
    datasets = pytest.importorskip("datasets")
    return sv.from_huggingface(
        datasets.Dataset.from_dict({"x": list(range(ROWS)), "s": [f"s{i}" for i in range(ROWS)]})
    )


def lance(folder: Path) -> sv.Pipeline:
    pytest.importorskip("lance").write_dataset(_table(), folder / "a.lance", max_rows_per_file=15)
    return sv.read_lance(folder / "a.lance")


def delta(folder: Path) -> sv.Pipeline:
    write = pytest.importorskip("deltalake").write_deltalake
    table = _table().append_column("p", pa.array([i % 2 for i in range(ROWS)]))
    write(folder / "a", table, partition_by=["p"])
    write(folder / "a", table.slice(0, 9), mode="append")
    return sv.read_delta(folder / "a")


def huggingface_stream(folder: Path) -> sv.Pipeline:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(ROWS)), "s": [f"s{i}" for i in range(ROWS)]})
    return sv.from_huggingface(rows.to_iterable_dataset())


def huggingface_samples(folder: Path) -> sv.Pipeline:
    datasets = pytest.importorskip("datasets")
    rows = datasets.IterableDataset.from_generator(_samples)
    assert rows.features is None
    return sv.from_huggingface(rows)


def _samples() -> Iterator[dict[str, Any]]:
    yield from ({"x": i, "s": f"s{i}"} for i in range(ROWS))


def iceberg(folder: Path) -> sv.Pipeline:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.utils.concurrent import ExecutorFactory

    catalog = SqlCatalog("laws", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    made = catalog.create_table("db.rows", schema=_table().schema)
    made.append(_table().slice(0, 20))
    made.append(_table().slice(20))
    metadata = made.metadata_location.removeprefix("file://")
    catalog.close()
    rows = sv.read_iceberg(metadata)
    if ExecutorFactory._instance is not None:  # threads that pyiceberg keeps for later
        ExecutorFactory._instance.shutdown()
        ExecutorFactory._instance = None
    return rows


def table(folder: Path) -> sv.Pipeline:
    sv.from_arrow(_table()).to_table(folder / "a")
    return sv.read_table(folder / "a")


def own_indexed(folder: Path) -> sv.Pipeline:
    return sv.from_source(Squares(ROWS))


def own_chunked(folder: Path) -> sv.Pipeline:
    return sv.from_source(Countdown(5, 8))


def _table() -> pa.Table:
    return pa.table(
        {
            "x": pa.array(range(ROWS), pa.int32()),
            "n": pa.array([None if i % 4 == 0 else i for i in range(ROWS)]),
            "s": [f"text {i}" for i in range(ROWS)],
            "l": [list(range(i % 4)) for i in range(ROWS)],
            "f": pa.array([[i, i + 1] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
            "meta": [{"a": i, "b": str(i)} for i in range(ROWS)],
        }
    )


def requests(folder):
    """Requests that are answered offline: rows are known by their digests."""
    return sv.requests("x", "text").over([{"x": i, "text": f"row {i}"} for i in range(30)])


SOURCES = [
    files, lines, zipped_lines, json_lines, csv, arrow_file, npy, parquet, tar, items, columns,
    arrow, torch_map, torch_stream, huggingface, huggingface_stream, huggingface_samples, lance,
    delta, iceberg, table, requests, own_indexed, own_chunked,
]  # fmt: skip

OF_EACH_KIND = (columns, lines, parquet, torch_stream)
"""Rows at places, byte ranges, row groups and a stream."""

every_source = pytest.mark.parametrize("source", SOURCES, ids=lambda f: f.__name__)


def test_every_source_of_silva_is_among_these(tmp_path):
    """Every class that silva declares as a source, and every public verb that reads one."""
    kinds, verbs = set(), set()
    for make in SOURCES:
        folder = tmp_path / make.__name__
        folder.mkdir()
        plan = make(folder).plan
        kinds |= {kind_of(node.source).name for node in walk(plan) if isinstance(node, Source)}
        verbs |= set(make.__code__.co_names)
    for module in BUILT_IN.values():
        import_module(module)
    own = {kind.name for kind in registered_sources() if kind.cls.__module__ in BUILT_IN.values()}
    assert own == BUILT_IN.keys()
    assert own - {"requests"} <= kinds  # those that come while it is served
    assert {name for name in sv.__all__ if name.startswith(("read_", "from_"))} <= verbs


@every_source
def test_a_source_gives_one_stream(source, tmp_path):
    rows = source(tmp_path)
    assert_same_stream(
        rows.batch(5), workers=(2,), backends=("inline", "threads"), fresh_process=False
    )


@pytest.mark.parametrize(
    "source",
    [pytest.param(f, marks=() if f in OF_EACH_KIND else pytest.mark.rest) for f in SOURCES],
    ids=lambda f: f.__name__,
)
def test_a_shuffled_source_gives_one_stream(source, tmp_path):
    rows = source(tmp_path).shuffle(seed=1, window=8).derive(u=lambda rng: rng.random())
    assert_same_stream(rows.batch(4), workers=(2,), backends=("inline", "processes"))


@every_source
@pytest.mark.parametrize("shuffled", [False, True])
def test_shards_of_a_source_hold_every_row_once(source, shuffled, tmp_path):
    rows = source(tmp_path)
    rows = rows.shuffle(seed=1, window=8) if shuffled else rows
    whole = Counter(_texts(rows, shards=1))
    assert sum(whole.values()) == rows.count()
    for shards in (2, 5):
        assert Counter(_texts(rows, shards=shards)) == whole
    assert_same_stream(
        rows.options(shards=5).batch(10), backends=("inline",), fresh_process=False, epochs=1
    )


def _texts(rows: sv.Pipeline, shards: int) -> list[str]:
    name = rows.columns[-1]
    loader = rows.options(shards=shards).batch(10).loader(backend="inline")
    out: list[str] = []
    for batch in loader:
        found = batch[name]
        out += [str(x.tolist() if hasattr(x, "tolist") else x) for x in found]
    return out


def test_shuffle_kinds_follow_from_the_source(tmp_path):
    assert "two-level" in parquet(tmp_path).shuffle().batch(4).explain()
    assert "global" in columns(tmp_path).shuffle().batch(4).explain()
