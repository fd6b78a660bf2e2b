"""What a framework costs when the work is nothing: a million integers, + 1, a filter, batches.

Three questions in one table: how much slower than a loop are per-row lambdas, how much slower than
numpy are whole columns, and what do others charge for the same. The plain loop hands out lists,
which is less than silva does (arrays); a loop that makes arrays stands beside it for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sizes, sum_of

plus_one: Callable[[int], int] = lambda x: x + 1  # noqa: E731  lambdas are what the workload is about
keep: Callable[[int], bool] = lambda x: x % 10 != 0  # noqa: E731


def expected(rows: int) -> tuple[int, float]:
    kept = np.arange(1, rows + 1)
    kept = kept[kept % 10 != 0]
    return len(kept), float(kept.sum())


def plain_loop(rows: int) -> Open:
    return lambda: loop(range(rows))


def plain_loop_arrays(rows: int) -> Open:
    return lambda: (np.array(batch) for batch in loop(range(rows)))


def loop(numbers: range) -> Iterator[list[int]]:
    batch: list[int] = []
    for x in numbers:
        y = plus_one(x)
        if keep(y):
            batch.append(y)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def numpy_slices(rows: int) -> Open:
    numbers = np.arange(rows)

    def batches() -> Iterator[np.ndarray]:
        y = numbers + 1
        y = y[y % 10 != 0]
        for start in range(0, len(y), BATCH):
            yield y[start : start + BATCH]

    return batches


def silva_lambdas(rows: int) -> Open:
    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"x": range(rows)})
    return lambda: numbers.derive(x=plus_one).filter(keep).batch(BATCH).loader()


def silva_expressions(rows: int) -> Open:
    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"x": np.arange(rows)})
    x = sv.col("x")
    return lambda: numbers.derive(x=x + 1).filter(x % 10 != 0).batch(BATCH).loader()


def silva_batched(rows: int) -> Open:
    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"x": np.arange(rows)})
    # new functions: the mark stays on what it was given, and the lambdas serve others too
    add = sv.batched(lambda x: x + 1)
    test = sv.batched(lambda x: x % 10 != 0)
    return lambda: numbers.derive(x=add).filter(test).batch(BATCH).loader()


def dataloader(workers: int, rows: int) -> Open:
    """The documented way to filter: an IterableDataset that divides its range among the workers."""
    import torch.utils.data as data

    class Numbers(data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info = data.get_worker_info()
            first, step = (0, 1) if info is None else (info.id, info.num_workers)
            for x in range(first, rows, step):
                y = plus_one(x)
                if keep(y):
                    yield y

    numbers = Numbers()
    return lambda: data.DataLoader(numbers, batch_size=BATCH, num_workers=workers)


def dataloader_0(rows: int) -> Open:
    return dataloader(0, rows)


def dataloader_1(rows: int) -> Open:
    return dataloader(1, rows)


def dataloader_2(rows: int) -> Open:
    return dataloader(2, rows)


def torchdata(rows: int) -> Open:
    """Nodes have no filter: what goes in is filtered by what will come out."""
    from torchdata import nodes

    class Kept:
        def __iter__(self) -> Iterator[int]:
            return (x for x in range(rows) if keep(x + 1))

    def batches() -> Iterator[list[int]]:
        mapped = nodes.Mapper(nodes.IterableWrapper(Kept()), plus_one)
        return iter(nodes.Loader(nodes.Batcher(mapped, BATCH, drop_last=False)))

    return batches


def webdataset(rows: int) -> Open:
    import webdataset as wds

    def batches() -> Iterator[list[int]]:
        stages = (wds.map(plus_one), wds.select(keep), wds.batched(BATCH, collation_fn=None))
        return iter(wds.DataPipeline(lambda: iter(range(rows)), *stages))

    return batches


def grain(rows: int) -> Open:
    """Without threads: handing over single numbers costs more than they do."""
    import grain

    numbers = grain.MapDataset.range(rows).map(plus_one).filter(keep)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return lambda: iter(numbers.to_iter_dataset(options).batch(BATCH, batch_fn=np.array))


def tensorflow_data(rows: int) -> Open:
    import tensorflow as tf

    numbers = tf.data.Dataset.range(rows).map(plus_one).filter(keep).batch(BATCH)
    return lambda: numbers.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()


def ray_data(rows: int) -> Open:
    """On whole columns, as its documentation advises."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False

    def step(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        y = columns["id"] + 1
        return {"x": y[y % 10 != 0]}

    return lambda: ray.data.range(rows).map_batches(step).iter_batches(batch_size=BATCH)


_DATALOADERS = ("DataLoader, 0 workers", "DataLoader, 1 worker", "DataLoader, 2 workers")

WORKLOAD = Workload(
    name="overhead",
    title="One million integers: + 1, drop every tenth, batches of 32",
    setting=sizes({"rows": 1_000_000}, {"rows": 100_000}),
    contestants=(
        Contestant("plain loop", plain_loop, limit=True),
        Contestant("plain loop, arrays", plain_loop_arrays),
        Contestant("silva lambdas", silva_lambdas, key="x"),
        Contestant("DataLoader, 0 workers", dataloader_0),
        Contestant("DataLoader, 1 worker", dataloader_1, share=0.1, long=True),
        Contestant("DataLoader, 2 workers", dataloader_2, share=0.1),
        Contestant("torchdata.nodes", torchdata, environment="torch"),
        Contestant("WebDataset", webdataset, environment="torch"),
        Contestant("Grain", grain, share=0.1, environment="torch"),
        Contestant("tf.data", tensorflow_data, share=0.02, environment="tensorflow", long=True),
        Contestant("Ray Data, columns", ray_data, key="x", share=0.1, environment="ray", long=True),
        Contestant("numpy on slices", numpy_slices, limit=True),
        Contestant("silva expressions", silva_expressions, key="x"),
        Contestant("silva batched", silva_batched, key="x"),
    ),
    targets=(
        Target("silva lambdas", at_least=0.6, of="plain loop"),
        Target("silva lambdas", at_least=3, of=_DATALOADERS),
        Target("silva lambdas", at_least=1, of="WebDataset"),
        Target("silva expressions", at_least=0.5, of="numpy on slices"),
        Target("silva batched", at_least=0.5, of="numpy on slices"),
    ),
    checksum=sum_of,
    expected=expected,
    warm=True,
    epochs=3,
)
