"""`python -m benchmarks.service`: batches from a service beside those of a loader.

`one`: a reader of photos, from a service and from a loader of its own, in turns. `four`: four jobs
on the same photos, with a service and with a loader each; wanted: a quarter of the CPU seconds.
`wire`: bytes a second of batches that cost nothing to make.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import silva as sv
from benchmarks.classification import photos
from benchmarks.cut_stage import cpu_seconds
from benchmarks.data import put_photos

_ROUNDS = 5
_PHOTOS = 1500


def read(loader: Any) -> int:
    return sum(len(next(iter(batch.values()))) for batch in loader)


def measured(work: Callable[[], int]) -> tuple[float, float]:
    """Rows a second, and CPU seconds a row."""
    began, spent = time.perf_counter(), cpu_seconds()
    rows = work()
    return rows / (time.perf_counter() - began), (cpu_seconds() - spent) / rows


def at_once(loaders: list[Any]) -> int:
    rows = [0] * len(loaders)

    def work(i: int) -> None:
        rows[i] = read(loaders[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(loaders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rows)


def own(pipeline: sv.Pipeline, readers: int) -> tuple[float, float]:
    loaders = [pipeline.loader(epochs=1, cache="off") for _ in range(readers)]
    return measured(lambda: at_once(loaders))


def served(pipeline: sv.Pipeline, readers: int) -> tuple[float, float]:
    with sv.Service({"it": pipeline}, epochs=1, cache="off") as service:
        how = {"service": service.address, "token": service.token}
        loaders = [pipeline.loader(**how) for _ in range(readers)]
        return measured(lambda: at_once(loaders))


def compare(readers: int) -> None:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put_photos(Path(folder), _PHOTOS)
        pipeline = photos(folder).batch(32)
        found: dict[str, list[tuple[float, float]]] = {"loader": [], "service": []}
        for turn in range(_ROUNDS):
            for name, run in [("loader", own), ("service", served)][:: 1 - 2 * (turn % 2)]:
                found[name].append(run(pipeline, readers))
    rates = {name: median(rate for rate, _ in runs) for name, runs in found.items()}
    spent = {name: median(cpu for _, cpu in runs) for name, runs in found.items()}
    print(
        f"{readers} reader(s) of photos: service {rates['service']:.0f}, loaders of their own "
        f"{rates['loader']:.0f} rows/s: {rates['service'] / rates['loader']:.2f}; CPU seconds a "
        f"row {spent['service'] / spent['loader']:.2f}"
    )


def wire() -> None:
    batch = np.zeros((256, 3, 224, 224), np.uint8)
    pipeline = sv.from_columns({"x": range(200)}).batch(1).derive(image=lambda x: batch)
    rates = []
    for _ in range(_ROUNDS):
        with sv.Service({"it": pipeline}, workers=0) as service:
            loader = sv.connect(service.address, "it", token=service.token)
            began = time.perf_counter()
            size = sum(one["image"].nbytes for one in loader)
            rates.append(size / (time.perf_counter() - began))
    print(f"wire: {median(rates) / 1e9:.2f} GB/s in batches of {batch.nbytes / 1e6:.0f} MB")


PARTS: dict[str, Callable[[], None]] = {
    "one": lambda: compare(1),
    "four": lambda: compare(4),
    "wire": wire,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
