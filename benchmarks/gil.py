"""Pure Python that holds the lock, 200 µs a row: only processes help, and they must be fed well.

torch is imported in every contestant, as in any trainer, so that the fork of the others costs what
it costs there, and it shows whether silva's workers import it too.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.peers import mapping
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload, sum_of

_SECONDS = 200e-6
_WORKERS = 2
_AHEAD = 4
"""Chunks that each process has in hand, so that it never waits for the next."""


def work(x: int, loops: int) -> int:
    for i in range(loops):
        x = (x * 31 + i) % 1_000_003
    return x


def calibrate(seconds: float) -> int:
    """How many loops take so long here, by the fastest of many tries."""
    loops, best = 1000, float("inf")
    for _ in range(200):
        began = perf_counter()
        work(7, loops)
        best = min(best, perf_counter() - began)
    return max(1, round(loops * seconds / best))


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    yield {"rows": 2_000 if quick else 20_000, "loops": calibrate(_SECONDS)}


def plain_loop(rows: int, loops: int) -> Open:
    import torch  # noqa: F401

    def batches() -> Iterator[np.ndarray]:
        for start in range(0, rows, BATCH):
            stop = min(start + BATCH, rows)
            yield np.array([work(x, loops) for x in range(start, stop)])

    return batches


def by_hand(rows: int, loops: int) -> Open:
    """Two forked processes, each with a pipe and some chunks in hand, read in turn."""
    import torch  # noqa: F401

    def serve(line: Connection) -> None:
        while (chunk := line.recv()) is not None:
            line.send(np.array([work(x, loops) for x in range(*chunk)]))

    def batches() -> Iterator[np.ndarray]:
        context = multiprocessing.get_context("fork")
        lines, processes = [], []
        for _ in range(_WORKERS):
            mine, theirs = context.Pipe()
            processes.append(context.Process(target=serve, args=(theirs,), daemon=True))
            processes[-1].start()
            lines.append(mine)
        waiting: deque[Connection] = deque()
        for number, start in enumerate(range(0, rows, BATCH)):
            if len(waiting) == _WORKERS * _AHEAD:
                yield waiting.popleft().recv()
            lines[number % _WORKERS].send((start, min(start + BATCH, rows)))
            waiting.append(lines[number % _WORKERS])
        while waiting:
            yield waiting.popleft().recv()
        for line, process in zip(lines, processes, strict=True):
            line.send(None)
            process.join()

    return batches


def dataloader(rows: int, loops: int) -> Open:
    import torch.utils.data as data

    class Rows(data.Dataset[int]):
        def __len__(self) -> int:
            return rows

        def __getitem__(self, index: int) -> int:
            return work(index, loops)

    return lambda: data.DataLoader(Rows(), batch_size=BATCH, num_workers=_WORKERS)


@dataclass(frozen=True)
class Work:
    """What goes to the workers of peers."""

    loops: int

    def __call__(self, x: int) -> np.ndarray:
        return np.array(work(int(x), self.loops))


def job(rows: int, loops: int) -> mapping.Job:
    return mapping.Job(list(range(rows)), Work(loops), BATCH)


def torchdata(rows: int, loops: int) -> Open:
    return mapping.torchdata_processes(job(rows, loops))


def grain(rows: int, loops: int) -> Open:
    return mapping.grain_processes(job(rows, loops))


def huggingface(rows: int, loops: int) -> Open:
    return mapping.huggingface(job(rows, loops))


def ray_data(rows: int, loops: int) -> Open:
    return mapping.ray_data(job(rows, loops))


def tensorflow_data(rows: int, loops: int) -> Open:
    """Python inside tf.data: the lock is held, whatever the number of threads."""
    import tensorflow as tf

    def one(x: Any) -> Any:
        return tf.numpy_function(lambda value: np.int64(work(int(value), loops)), [x], tf.int64)

    numbers = tf.data.Dataset.range(rows).map(one, num_parallel_calls=_WORKERS).batch(BATCH)
    return lambda: numbers.prefetch(_WORKERS).as_numpy_iterator()


def silva_loader(rows: int, loops: int, **arguments: Any) -> Open:
    import torch  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    numbers = sv.from_columns({"x": range(rows)})
    return lambda: numbers.derive(x=lambda x: work(x, loops)).batch(BATCH).loader(**arguments)


def silva_auto(rows: int, loops: int) -> Open:
    return silva_loader(rows, loops)


def silva_2(rows: int, loops: int) -> Open:
    return silva_loader(rows, loops, workers=_WORKERS)


def silva_processes(rows: int, loops: int) -> Open:
    return silva_loader(rows, loops, workers=_WORKERS, backend="processes")


WORKLOAD = Workload(
    name="gil",
    title="Pure Python, about 200 µs a row, batches of 32; start-up included",
    setting=setting,
    contestants=(
        Contestant("two processes by hand", by_hand, limit=True),
        Contestant("silva auto", silva_auto, key="x"),
        Contestant("silva, 2 workers", silva_2, key="x"),
        Contestant("silva, 2 processes", silva_processes, key="x"),
        Contestant("DataLoader, 2 workers", dataloader),
        Contestant("torchdata.nodes, processes", torchdata, environment="torch"),
        Contestant("Grain, processes", grain, environment="torch"),
        Contestant("HF datasets", huggingface, environment="torch", long=True),
        Contestant("Ray Data", ray_data, key="made", share=0.25, environment="ray", long=True),
        Contestant("tf.data", tensorflow_data, share=0.25, environment="tensorflow", long=True),
        Contestant("plain loop", plain_loop),
    ),
    targets=(
        Target("silva auto", at_least=0.9, of="two processes by hand"),
        Target("silva, 2 workers", at_least=0.9, of="two processes by hand"),
    ),
    checksum=sum_of,
)
