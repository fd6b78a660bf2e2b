"""The memory bandwidth of this machine when all of its cores use it.

One core alone rarely reaches the full bandwidth, and many together get less than each of them
alone: so it is measured with all cores at once, and in pieces of the size that a stage works on,
since what fits into a CPU cache is far faster. Each size is measured once per process, and only if
it could matter."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time

import numpy as np

from silva.cost.machine import Machine
from silva.lifetime import Thread

_SMALLEST, _LARGEST = 20, 24
"""The sizes that are distinguished, as powers of two: less fits into a CPU cache, more does not."""
_MOST_CORES = 16
"""So many cores use all of the bandwidth."""
_MOST_BYTES = 4 << _LARGEST
"""Bytes that all cores together work on: more than a CPU cache holds."""
ROUNDS = 3
"""Copies of which the fastest counts: the first one touches new memory."""
_NEGLIGIBLE = 1e-9
"""Seconds per byte, more than on any machine: work that needs less bandwidth is not worth a
measurement."""


def memory_seconds(nbytes: float, block: float, within: float) -> float:
    """Seconds of the shared memory bandwidth for `nbytes` read or written, in blocks of `block`
    bytes; 0 if that is negligible beside work of `within` seconds.

    >>> memory_seconds(1e6, block=1e6, within=1.0)
    0.0
    >>> 0 < memory_seconds(1e9, block=16e6, within=0.01) < 1
    True
    """
    if nbytes * _NEGLIGIBLE < within:
        return 0.0
    return nbytes * _seconds(min(max(round(math.log2(max(block, 1.0))), _SMALLEST), _LARGEST))


@functools.cache
def _seconds(power: int) -> float:
    """Seconds per byte read or written, in pieces of 2^power bytes; 0 if there are no threads or no
    memory to measure it."""
    cores = min(Machine.here().cpus, _MOST_CORES)
    half = min(1 << power, _MOST_BYTES // cores) // 2
    together = threading.Barrier(cores)
    took = [0.0] * cores

    def copy(number: int, source: np.ndarray, target: np.ndarray) -> None:
        best = float("inf")
        with contextlib.suppress(threading.BrokenBarrierError):
            for _ in range(ROUNDS):
                together.wait()
                began = time.perf_counter()
                np.copyto(target, source)
                best = min(best, time.perf_counter() - began)
        took[number] = best

    threads: list[Thread] = []
    try:
        for number in range(cores):
            pair = np.ones(half, np.uint8), np.ones(half, np.uint8)
            thread = Thread(copy, f"bandwidth-{number}", (number, *pair))
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):
        together.abort()  # the threads that have started wait for the others
        return 0.0
    finally:
        for thread in threads:
            thread.join()
    return max(took) / (cores * 2 * half)
