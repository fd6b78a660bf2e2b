"""What a person would write by hand: two threads that make batches ahead, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from benchmarks.workload import Open

_THREADS = 2
_AHEAD = 2 * _THREADS
"""Batches in the making: enough that no thread ever waits for the reader."""


def on_threads(rows: int, batch: int, make: Callable[[range], Any]) -> Open:
    """`make` turns the rows of a range into a batch; batches come in order."""

    def batches() -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, rows, batch):
                waiting.append(pool.submit(make, range(start, min(start + batch, rows))))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    return batches
