"""Recommendation rows: lists hashed and cut off, a number clipped and taken the logarithm of.

Parquet; most of a row is a history of about 30 items, the same for the rows of a session.
The limit is two threads that read row groups with pyarrow and work on them with numpy. Peers use
their own expressions where they have them, and the limit's lines where they have none.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.by_hand import on_threads
from benchmarks.peers import mapping
from benchmarks.workload import Contestant, Open, Target, Workload

BATCH = 4096
GROUP = 16 * BATCH
BUCKETS = 1_000_000
LONGEST = 50
HIGHEST = 100.0
COLUMNS = ["history", "price", "label"]
_SESSION = 8
_ITEMS = 50_000
_CHUNK = 16_384
"""Numbers at a time that stay in the processor's cache."""


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    rows = GROUP * (4 if quick else 30)
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        write(f"{folder}/rows.parquet", rows)
        yield {"path": f"{folder}/rows.parquet", "data": f"data: {rows} rows, made here"}


def write(path: str, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    for number in range(rows // GROUP):
        rng = np.random.default_rng(number)
        lengths = rng.integers(0, 61, GROUP // _SESSION)
        items = rng.zipf(1.3, int(lengths.sum())) % _ITEMS
        ends = np.cumsum(lengths)
        sessions = [np.tile(items[e - n : e], _SESSION) for e, n in zip(ends, lengths, strict=True)]
        offsets = np.concatenate([[0], np.cumsum(np.repeat(lengths, _SESSION))])
        table = pa.table(
            {
                "user": np.repeat(rng.integers(0, 10**9, GROUP // _SESSION), _SESSION),
                "history": pa.ListArray.from_arrays(
                    pa.array(offsets, pa.int32()), pa.array(np.concatenate(sessions))
                ),
                "price": rng.gamma(2.0, 30.0, GROUP).astype(np.float32),
                "label": rng.integers(0, 2, GROUP, np.int8),
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=GROUP)
    writer.close()


def silva_auto(path: str) -> Open:
    import pandas  # noqa: F401  pyarrow imports it with the first array: not inside the clock

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as pyarrow is

    rows = sv.read_parquet(path).derive(
        history=sv.list("history").hash(BUCKETS).truncate(LONGEST),
        price=sv.num("price").clip(0, HIGHEST).log1p(),
    )
    return lambda: rows.select(*COLUMNS).batch(BATCH).loader()


def features(table: Any) -> dict[str, Any]:
    """What is made of an Arrow table: history as (values, offsets), price and label as arrays."""
    history = table["history"].combine_chunks()
    history = history.chunk(0) if hasattr(history, "num_chunks") else history
    offsets = history.offsets.to_numpy()
    values = history.values.to_numpy()[offsets[0] : offsets[-1]]
    values, offsets = cut(values, offsets - offsets[0])
    price = table["price"].to_numpy()
    return {
        "history": (hashed(values), offsets),
        "price": np.log1p(np.clip(price, 0, HIGHEST)),
        "label": table["label"].to_numpy(),
    }


def cut(values: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first items of each list."""
    lengths = np.diff(offsets)
    kept = np.minimum(lengths, LONGEST)
    if (kept == lengths).all():
        return values, offsets
    # a run of kept items, then one of others, for each list
    runs = np.stack([kept, lengths - kept], axis=1).ravel()
    mask = np.repeat(np.tile([True, False], len(lengths)), runs)
    return values[mask], np.concatenate([[0], np.cumsum(kept)])


def hashed(values: np.ndarray) -> np.ndarray:
    """splitmix64 of each number, brought into the buckets by a multiplication, chunk by chunk."""
    found = values.astype(np.uint64)
    spare = np.empty(min(_CHUNK, len(found)), np.uint64)
    for start in range(0, len(found), _CHUNK):
        z = found[start : start + _CHUNK]
        shifted = spare[: len(z)]
        z += np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            np.right_shift(z, np.uint64(shift), out=shifted)
            z ^= shifted
            z *= np.uint64(factor)
        z >>= np.uint64(32)
        z *= np.uint64(BUCKETS)
        z >>= np.uint64(32)
    return found.view(np.int64)


def by_batch(table: Any) -> list[dict[str, Any]]:
    """The features batch by batch: each fits the processor's cache, a row group does not."""
    return [features(table.slice(start, BATCH)) for start in range(0, len(table), BATCH)]


def two_threads(path: str) -> Open:
    import pandas  # noqa: F401  pyarrow imports it with the first array: not inside the clock
    import pyarrow.parquet as pq

    groups = pq.ParquetFile(path).num_row_groups
    metadata = pq.read_metadata(path)

    def make(rows: range) -> list[dict[str, Any]]:
        file = pq.ParquetFile(path, metadata=metadata)
        table = file.read_row_group(rows.start, columns=COLUMNS, use_threads=False)
        return by_batch(table)

    found = on_threads(groups, 1, make)
    return lambda: (batch for group in found() for batch in group)


def polars(path: str) -> Open:
    """One lazy query on all cores, then slices."""
    import polars as pl

    query = pl.scan_parquet(path).select(
        history=pl.col("history").list.head(LONGEST).list.eval(pl.element().hash() % BUCKETS),
        price=pl.col("price").clip(0, HIGHEST).log1p(),
        label=pl.col("label"),
    )

    def batches() -> Iterator[dict[str, Any]]:
        for part in query.collect().iter_slices(BATCH):
            history = part["history"].to_arrow()
            yield {
                "history": (history.flatten().to_numpy(), history.offsets.to_numpy()),
                "price": part["price"].to_numpy(),
                "label": part["label"].to_numpy(),
            }

    return batches


def daft(path: str) -> Open:
    """Expressions, streamed in batches."""
    import daft as df

    rows = df.read_parquet(path).select(
        df.col("history").slice(0, LONGEST).list_map(df.element().hash() % BUCKETS),
        df.col("price").clip(0.0, HIGHEST).log1p().cast(df.DataType.float32()),
        df.col("label"),
    )

    def batches() -> Iterator[dict[str, Any]]:
        for part in rows.into_batches(BATCH).to_arrow_iter():
            history = part.column("history")
            yield {
                "history": (history.flatten().to_numpy(), history.offsets.to_numpy()),
                "price": part.column("price").to_numpy(zero_copy_only=False),
                "label": part.column("label").to_numpy(zero_copy_only=False),
            }

    return batches


def scanner(path: str) -> Open:
    """pyarrow's dataset, read ahead by its own threads; the features on the reader's."""
    import pandas  # noqa: F401  as above
    import pyarrow as pa
    import pyarrow.dataset as ds

    def batches() -> Iterator[dict[str, Any]]:
        for part in ds.dataset(path).to_batches(columns=COLUMNS, batch_size=GROUP):
            yield from by_batch(pa.Table.from_batches([part]))

    return batches


def dataloader(path: str, workers: int = mapping.WORKERS) -> Open:
    """An IterableDataset that shares out the row groups; whole batches, as tensors."""
    import pandas  # noqa: F401  as above
    import pyarrow.parquet as pq
    import torch
    import torch.utils.data as data

    class Rows(data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = data.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            file = pq.ParquetFile(path)
            for group in range(first, file.num_row_groups, step):
                table = file.read_row_group(group, columns=COLUMNS, use_threads=False)
                for batch in by_batch(table):
                    values, offsets = map(torch.from_numpy, batch["history"])
                    price = torch.from_numpy(batch["price"])
                    label = torch.from_numpy(batch["label"].copy())
                    yield {"history": (values, offsets), "price": price, "label": label}

    return lambda: data.DataLoader(Rows(), batch_size=None, num_workers=workers)


def huggingface(path: str) -> Open:
    """Streamed as Arrow tables."""
    from datasets import load_dataset

    rows = load_dataset("parquet", data_files=path, split="train", streaming=True, columns=COLUMNS)
    rows = rows.with_format("arrow")
    return lambda: (features(table) for table in rows.iter(batch_size=BATCH))


def ray_data(path: str) -> Open:
    """The features in Ray's workers, as Arrow tables; batches cut where they are read."""
    import ray

    ray.init(num_cpus=mapping.WORKERS, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def batches() -> Iterator[dict[str, Any]]:
        rows = ray.data.read_parquet(path, columns=COLUMNS)
        made = rows.map_batches(as_table, batch_format="pyarrow", batch_size=GROUP)
        for part in made.iter_batches(batch_size=BATCH, batch_format="pyarrow"):
            history = part["history"].combine_chunks()
            values, offsets = history.flatten().to_numpy(), history.offsets.to_numpy()
            yield {
                "history": (values, offsets - offsets[0]),
                "price": part["price"].to_numpy(),
                "label": part["label"].to_numpy(),
            }

    next(iter(ray.data.range(4).map_batches(lambda x: x).iter_batches()))  # workers are up
    return batches


def as_table(table: Any) -> Any:
    import pyarrow as pa

    found = features(table)
    values, offsets = found["history"]
    history = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))
    return pa.table({"history": history, "price": found["price"], "label": found["label"]})


def items_and_prices(batch: dict[str, Any]) -> float:
    """How many items, where their hashes lie on average, and the prices; hashes differ by peer."""
    history = batch["history"]
    values = history[0] if isinstance(history, tuple | list) else history.values
    some = values[::64]
    return float(len(values) + float(some.sum()) * 64 / BUCKETS + float(batch["price"].sum()))


_HAND, _TORCH, _STREAMED = "two threads by hand", "torch", "HF datasets, streaming"

WORKLOAD = Workload(
    name="recsys",
    title="Recommendation rows: Parquet, lists hashed and cut, clip, log, batches of 4096",
    setting=setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True, key="price"),
        Contestant("silva auto", silva_auto, key="price"),
        Contestant("polars", polars, key="price", environment="polars"),
        Contestant("Daft", daft, key="price", environment="daft"),
        Contestant("pyarrow scanner", scanner, key="price"),
        Contestant("DataLoader, 2 workers", dataloader, key="price", environment=_TORCH),
        Contestant(
            "DataLoader, 0 workers",
            dataloader,
            key="price",
            environment=_TORCH,
            given={"workers": 0},
            long=True,
        ),
        Contestant(_STREAMED, huggingface, key="price", environment=_TORCH, long=True),
        Contestant("Ray Data", ray_data, key="price", environment="ray", long=True),
    ),
    targets=(
        Target("silva auto", at_least=0.9, of=_HAND),
        Target("silva auto", at_least=1, of=_STREAMED),
        Target("silva auto", at_most=1.15, of=_HAND, metric="cpu_row"),
        Target("silva auto", at_most=1, of="DataLoader, 2 workers", metric="peak"),
    ),
    checksum=items_and_prices,
    whole=True,
    tolerance=0.03,
    shape=(),
    rounds=3,
    remarks="polars and Daft hash by functions of their own; the others by the limit's lines",
)
