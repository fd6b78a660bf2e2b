"""What the tests of Ray share: a cluster, the actors of a loader, bounded waits."""

from __future__ import annotations

import os
import signal
from typing import Any

import psutil
from failure_tools import until

import silva as sv
from silva.testing import digest


def on_ray(pipeline: sv.Pipeline, workers: int = 2, **options: Any) -> sv.Loader:
    return pipeline.loader(backend="ray", cluster="auto", workers=workers, **options)


def actors_of(loader: sv.Loader) -> list[tuple[str, int]]:
    """The node and the process of each actor that has started."""
    pool = loader._executor._pools.get("ray")
    return [] if pool is None else pool.actors()


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def gone(processes: list[int]) -> bool:
    return not any(
        psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE
        for p in processes
    )


def rest(batches: Any) -> list[str]:
    return [digest(batch) for batch in batches]


__all__ = ["actors_of", "gone", "kill", "on_ray", "rest", "until"]
