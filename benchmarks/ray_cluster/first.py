"""Seconds to the first batch: from a Ray that must be started, and from one that runs.

A start from nothing is measured in a process of its own that has imported what it needs, by silva
and by Ray Data in turns. On a Ray that runs, the first loader finds processes that Ray keeps ready
for a new driver. Those of later actors must be started, since a process ends with its actor; most
of that is Ray's own: it starts Python, imports itself and connects.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any

from benchmarks.measure import Children
from benchmarks.ray_cluster.clusters import SLEEP, joined, sleeps

_ROUNDS = 3
_CHILDREN = Children("benchmarks.ray_cluster.first")


def by_silva(address: str) -> float:
    import silva as sv

    _ = sv.Loader
    rows = sv.from_columns({"x": range(1000)}).derive(y=sleeps).batch(1)
    began = time.perf_counter()
    with rows.loader(backend="ray", cluster=address, workers=1) as loader:
        next(iter(loader))
        return time.perf_counter() - began


def cold_silva() -> float:
    return by_silva("local")


def cold_ray_data() -> float:
    import ray
    import ray.data

    began = time.perf_counter()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    ray.init("local", num_cpus=2, include_dashboard=False, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(1000).map(lambda row: {"y": sleeps(int(row["id"]))})
    next(iter(rows.iter_batches(batch_size=1)))
    return time.perf_counter() - began


_COLD = {"silva": cold_silva, "Ray Data": cold_ray_data}


def first() -> None:
    found = _CHILDREN.in_turns(_ROUNDS, {name: (name, {}) for name in _COLD})
    cold = {name: [one["seconds"] for one in runs] for name, runs in found.items()}
    times = median(a / b for a, b in zip(cold["silva"], cold["Ray Data"], strict=True))
    shown = ", ".join(f"{name} {median(seconds):.2f} s" for name, seconds in cold.items())
    print(f"first batch, Ray started for it: {shown}: {times:.2f}× (wanted: at most 1.5)")
    with joined(2):
        time.sleep(5)  # until Ray has the processes that it keeps for a new driver
        warm = [by_silva("auto") - SLEEP for _ in range(_ROUNDS + 1)]
    print(f"first batch, Ray runs: {warm[0]:.2f} s after the step's own time (wanted: 0.5)", end="")
    print(f", {median(warm[1:]):.2f} s where the process of the actor must be started")


if __name__ == "__main__":
    print(json.dumps({"seconds": _COLD[sys.argv[1]]()}))
