"""Items → `make` → batches, in each peer's recommended form, with two workers.

`make(item)` gives a numpy array, or what `collate(list of them)` turns into a batch: an array or a
dict of arrays. Without `collate`, arrays of equal shape are stacked by the peer itself. Both must
survive a trip to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Open

WORKERS = 2
Make = Callable[[Any], Any]
Collate = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Job:
    """What is done with which items; a batch of `batch` items at a time."""

    items: list[Any]
    make: Make
    batch: int
    collate: Collate | None = None

    def of_batch(self, items: Sequence[Any]) -> Any:
        """A whole batch, where a peer hands over items in batches."""
        made = [self.make(item) for item in items]
        return np.stack(made) if self.collate is None else self.collate(made)


def dataloader(job: Job, workers: int = WORKERS) -> Open:
    """PyTorch: a map-style dataset; collated in the workers, into shared memory."""
    import torch.utils.data as data

    class Items(data.Dataset[Any]):
        def __len__(self) -> int:
            return len(job.items)

        def __getitem__(self, index: int) -> Any:
            return job.make(job.items[index])

    collate = None if job.collate is None else TensorCollate(job.collate)
    return lambda: data.DataLoader(
        Items(), batch_size=job.batch, num_workers=workers, collate_fn=collate
    )


@dataclass(frozen=True)
class TensorCollate:
    """Batches as tensors, which travel in shared memory; arrays would be pickled."""

    collate: Collate

    def __call__(self, made: Sequence[Any]) -> Any:
        return as_tensors(self.collate(made))


@dataclass(frozen=True)
class TensorBatch:
    job: Job

    def __call__(self, items: Sequence[Any]) -> Any:
        return as_tensors(self.job.of_batch(items))


def as_tensors(batch: Any) -> Any:
    import torch

    if isinstance(batch, dict):
        return {name: torch.from_numpy(values) for name, values in batch.items()}
    return torch.from_numpy(batch)


def torchdata_nodes(job: Job, method: str) -> Open:
    """torchdata: workers map and collate batches of items, as its migration guide has it."""
    from torchdata import nodes

    def batches() -> Any:
        node = nodes.Batcher(nodes.IterableWrapper(job.items), job.batch, drop_last=False)
        mapped = nodes.ParallelMapper(
            node,
            TensorBatch(job),
            num_workers=WORKERS,
            method=method,
            multiprocessing_context="fork" if method == "process" else None,
        )
        return nodes.Loader(nodes.Prefetcher(mapped, 2 * WORKERS))

    return batches


def torchdata_threads(job: Job) -> Open:
    return torchdata_nodes(job, "thread")


def torchdata_processes(job: Job) -> Open:
    return torchdata_nodes(job, "process")


def grain_threads(job: Job) -> Open:
    """Grain: whole batches are read ahead by two threads."""
    import grain

    dataset = grain.MapDataset.source(job.items).map(job.make)
    dataset = dataset.batch(job.batch, batch_fn=job.collate)
    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=2 * WORKERS)
    return lambda: dataset.to_iter_dataset(options)


def grain_processes(job: Job) -> Open:
    """Grain: two spawned processes, which hand arrays over in shared memory."""
    import grain

    dataset = grain.MapDataset.source(job.items).map(job.make)
    dataset = dataset.batch(job.batch, batch_fn=job.collate)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    workers = grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2)
    return lambda: dataset.to_iter_dataset(options).mp_prefetch(workers)


def spdl_threads(job: Job) -> Open:
    """SPDL: each stage on a pool of two threads."""
    from spdl.pipeline import PipelineBuilder

    def batches() -> Iterator[Any]:
        builder = PipelineBuilder().add_source(job.items).aggregate(job.batch)
        builder = builder.pipe(job.of_batch, concurrency=WORKERS, output_order="input")
        pipeline = builder.add_sink(2 * WORKERS).build(num_threads=WORKERS)
        with pipeline.auto_stop():
            yield from pipeline

    return batches


def huggingface(job: Job) -> Open:
    """HF datasets: a transform done when rows are read, under a DataLoader."""
    import torch.utils.data as data
    from datasets import Dataset

    def transform(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"made": [job.make(item) for item in rows["item"]]}

    def collate(rows: list[dict[str, Any]]) -> Any:
        made = [row["made"] for row in rows]
        return as_tensors(np.stack(made) if job.collate is None else job.collate(made))

    dataset = Dataset.from_dict({"item": job.items}).with_transform(transform)
    return lambda: data.DataLoader(
        dataset, batch_size=job.batch, num_workers=WORKERS, collate_fn=collate
    )


@dataclass(frozen=True)
class RayBatch:
    """Batches made whole in the workers."""

    job: Job

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, Any]:
        made = self.job.of_batch(list(rows["item"]))
        return made if isinstance(made, dict) else {"made": made}


@dataclass(frozen=True)
class RayRows:
    """Rows made in the workers, to be collated where they are read."""

    job: Job

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, Any]:
        made = np.empty(len(rows["item"]), object)
        for number, item in enumerate(rows["item"]):
            made[number] = self.job.make(item)
        return {"made": made}


def ray_data(job: Job) -> Open:
    """Ray Data: `map_batches` over two CPUs, which hands over whole batches."""
    return _ray(job, RayBatch(job))


def ray_rows(job: Job) -> Open:
    """Ray Data, for rows that differ in length: it advises to collate at the reader's side."""
    read = _ray(job, RayRows(job))
    assert job.collate is not None
    collate = job.collate
    return lambda: (collate(list(batch["made"])) for batch in read())


def _ray(job: Job, step: RayBatch | RayRows) -> Open:
    """The cluster is up, and its workers have imported what they need, before the clock starts."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False

    def read(items: list[Any]) -> Iterator[Any]:
        dataset = ray.data.from_items([{"item": item} for item in items])
        made = dataset.map_batches(step, batch_size=job.batch)
        return iter(made.iter_batches(batch_size=job.batch, batch_format="numpy"))

    for _ in read(job.items[: 2 * job.batch]):
        pass
    return lambda: read(job.items)


def tensorflow_dataset(job: Job, shape: tuple[int | None, ...]) -> Open:
    """tf.data around Python: its `numpy_function`, for what TensorFlow has no operations for."""
    import tensorflow as tf

    def batches() -> Any:
        numbers = tf.data.Dataset.range(len(job.items)).batch(job.batch)

        def make(indices: Any) -> Any:
            made = tf.numpy_function(
                lambda found: job.of_batch([job.items[i] for i in found]), [indices], tf.float32
            )
            return tf.ensure_shape(made, (None, *shape))

        made = numbers.map(make, num_parallel_calls=WORKERS).prefetch(WORKERS)
        return made.as_numpy_iterator()

    return batches
