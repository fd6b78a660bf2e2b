"""Clusters on this machine to measure on, and how fast batches come."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

import silva as sv

SLEEP = 0.01
_SECONDS = 8.0
"""Blocks of many actors take up to a second: rows come in spates."""
_WARM_SECONDS = 2.0


def sleeps(x: int) -> int:
    """A step that costs time and no core."""
    time.sleep(SLEEP)
    return x


@contextmanager
def joined(cpus: int, store: int = 512 << 20) -> Iterator[Cluster]:
    """A Ray of so many CPUs, to which this process is connected and nodes can be added. `store` is
    the memory of its objects."""
    head = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


class CpuSeconds:
    """Of this process and all that it has started, from when it is made; Ray ends processes as it
    sees fit, and what those took before must not be subtracted."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[int, float]:
        found = {}
        mine = psutil.Process()
        for process in (mine, *mine.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        return found

    def spent(self) -> float:
        now = self._now()
        return sum(seconds - self._before.get(pid, 0.0) for pid, seconds in now.items())


def actors(loader: sv.Loader) -> int:
    """How many have started."""
    pool: Any = loader._executor._pools.get("ray")
    return 0 if pool is None else len(pool.actors())


def rate(
    epoch: Callable[[], Iterable[dict[str, Any]]], warm: Callable[[], bool] = lambda: True
) -> tuple[float, float]:
    """Rows a second, and CPU seconds a row, from when it is warm on."""

    def endless() -> Iterator[dict[str, Any]]:
        for _ in itertools.count():
            yield from epoch()

    with closing(endless()) as batches:
        while not warm():
            next(batches)
        began = time.perf_counter()
        while time.perf_counter() - began < _WARM_SECONDS:
            next(batches)
        began, cpu, rows = time.perf_counter(), CpuSeconds(), 0
        while time.perf_counter() - began < _SECONDS:
            rows += len(next(iter(next(batches).values())))
        spent, used = time.perf_counter() - began, cpu.spent()
    return rows / spent, used / rows
