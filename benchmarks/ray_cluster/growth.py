"""`python -m benchmarks.ray_cluster [what …]`: silva on Ray beside silva without it.

`images`: photos on a Ray of two CPUs on this machine, and on two threads, in turns; wanted: 0.85×.
`blocks`: what a block costs that holds next to nothing. `nodes`: a step that sleeps, over 1, 2, 4
and 8 nodes of one CPU, all on this machine; wanted: 0.9 of linear. `first`: seconds to the first
batch, from a Ray that must be started and from one that runs; wanted there: half a second.
Without arguments, all of them. On a machine that is busy with other things, starting is slow, and
CPU seconds tell more than the clock.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import ray
from ray.cluster_utils import Cluster

import silva as sv
from benchmarks.classification import photos
from benchmarks.cut_stage import cpu_seconds
from benchmarks.data import put_photos
from silva.testing import cut_blocks

_ROUNDS = 3
_SECONDS = 4.0
_SLEEP = 0.01
NODES = (1, 2, 4, 8)


def sleeps(x: int) -> int:
    time.sleep(_SLEEP)
    return x


def joined(cluster: Cluster) -> None:
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")


def new_cluster(cpus: int) -> Cluster:
    size = 512 << 20
    head = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": size}
    return Cluster(initialize_head=True, head_node_args=head)


def rate(loader: sv.Loader, warm: Callable[[], bool]) -> tuple[float, float]:
    """Rows a second, and CPU seconds a row, from when it is warm on."""

    def endless() -> Iterator[Any]:
        for _ in itertools.count():
            yield from loader

    batches = endless()
    while not warm():
        next(batches)
    for _ in range(50):
        next(batches)
    began, cpu, rows = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - began < _SECONDS:
        rows += len(next(iter(next(batches).values())))
    spent, used = time.perf_counter() - began, cpu_seconds() - cpu
    batches.close()
    return rows / spent, used / rows


def actors(loader: sv.Loader) -> int:
    pool: Any = loader._executor._pools.get("ray")
    return 0 if pool is None else len(pool.actors())


def images() -> None:
    cluster = new_cluster(2)
    joined(cluster)
    found: dict[str, list[tuple[float, float]]] = {"threads": [], "ray": []}
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        put_photos(Path(folder), 512)
        rows = photos(folder).batch(32)
        for _ in range(_ROUNDS):
            with rows.loader(backend="threads", workers=2) as loader:
                found["threads"].append(rate(loader, lambda: True))
            with rows.loader(backend="ray", cluster="auto", workers=2) as loader:
                found["ray"].append(rate(loader, lambda: actors(loader) == 2))
    for name, rounds in found.items():
        speed, cpu = (median(column) for column in zip(*rounds, strict=True))
        print(f"images on {name:<8} {speed:6.0f} rows/s   {cpu * 1e3:5.2f} ms CPU a row")
    pairs = list(zip(found["ray"], found["threads"], strict=True))
    print(f"of threads: {median(r / t for (r, _), (t, _) in pairs):.2f}× by the clock,", end=" ")
    print(f"{median(t / r for (_, r), (_, t) in pairs):.2f}× by CPU seconds (wanted: 0.85)")
    ray.shutdown()
    cluster.shutdown()


def blocks() -> None:
    cluster = new_cluster(1)
    joined(cluster)
    rows = sv.from_columns({"x": range(2000)}).derive(y=lambda x: x).batch(100)
    with cut_blocks(rows.loader(backend="ray", cluster="auto", workers=1), [1]) as loader:
        for _ in loader:
            pass
        began, cpu = time.perf_counter(), cpu_seconds()
        for _ in loader:
            pass
        spent, used = time.perf_counter() - began, cpu_seconds() - cpu
    print(f"a block of one row: {spent / 2:.2f} ms by the clock, {used / 2:.2f} ms CPU in all")
    ray.shutdown()
    cluster.shutdown()


def nodes() -> None:
    cluster = new_cluster(0)
    joined(cluster)
    rows = sv.from_columns({"x": range(100_000)}).derive(y=sleeps).batch(10)
    for count in NODES:
        while len(cluster.worker_nodes) < count:
            cluster.add_node(num_cpus=1)
        with rows.loader(backend="ray", cluster="auto", workers=count) as loader:
            speed, cpu = rate(loader, lambda: actors(loader) == count)  # noqa: B023
        linear = speed * _SLEEP / count
        print(f"{count} nodes: {speed:6.0f} rows/s, {linear:.2f} of linear, {cpu * 1e3:.2f} ms CPU")
    ray.shutdown()
    cluster.shutdown()


def first() -> None:
    rows = sv.from_columns({"x": range(1000)}).derive(y=sleeps).batch(1)

    def seconds(address: str) -> float:
        began = time.perf_counter()
        with rows.loader(backend="ray", cluster=address, workers=1) as loader:
            next(iter(loader))
            return time.perf_counter() - began

    print(f"first batch, Ray started for it: {seconds('local'):.2f} s")
    cluster = new_cluster(2)
    joined(cluster)
    found = [seconds("auto") - _SLEEP for _ in range(_ROUNDS + 1)]
    print(f"first batch, Ray runs: {found[0]:.2f} s, then {median(found[1:]):.2f} s", end=" ")
    print("after the step's own time (wanted: 0.5)")
    ray.shutdown()
    cluster.shutdown()


def main() -> None:
    asked = sys.argv[1:] or ["images", "blocks", "nodes", "first"]
    for name in asked:
        {"images": images, "blocks": blocks, "nodes": nodes, "first": first}[name]()


if __name__ == "__main__":
    main()
