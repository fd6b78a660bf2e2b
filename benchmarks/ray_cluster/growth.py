"""What the way to an actor and back costs, and how throughput grows with nodes."""

from __future__ import annotations

import time

import silva as sv
from benchmarks.ray_cluster.clusters import SLEEP, CpuSeconds, actors, joined, rate, sleeps
from silva.testing import cut_blocks

NODES = (1, 2, 4, 8)


def blocks() -> None:
    rows = sv.from_columns({"x": range(2000)}).derive(y=lambda x: x).batch(100)
    with (
        joined(1),
        cut_blocks(rows.loader(backend="ray", cluster="auto", workers=1), [1]) as loader,
    ):
        for _ in loader:
            pass
        began, cpu = time.perf_counter(), CpuSeconds()
        for _ in loader:
            pass
        spent, used = time.perf_counter() - began, cpu.spent()
    print(f"a block of one row: {spent / 2:.2f} ms by the clock, {used / 2:.2f} ms CPU in all")


def nodes() -> None:
    rows = sv.from_columns({"x": range(100_000)}).derive(y=sleeps).batch(10)
    with joined(0) as cluster:
        for count in NODES:
            while len(cluster.worker_nodes) < count:
                cluster.add_node(num_cpus=1)
            with rows.loader(backend="ray", cluster="auto", workers=count) as loader:
                speed, cpu = rate(lambda: loader, lambda: actors(loader) == count)  # noqa: B023
                (lane,) = loader._executor.lanes.values()
                step = lane.stats.busy / lane.stats.rows_in
            linear = speed * SLEEP / count
            print(
                f"{count} nodes: {speed:6.0f} rows/s, {linear:.2f} of linear (wanted: 0.9)", end=""
            )
            print(
                f", {speed * step / count:.2f} by what the step took, {cpu * 1e3:.2f} ms CPU a row"
            )
