"""How many bytes a second pass through this machine's memory when all of its cores ask for them.

One core alone hardly ever gets all that memory can give, and many together get less than each of
them alone: so it is measured with all at once, and in pieces of the size that a stage works on,
since what fits into a cache is faster by far. Measured once a process for each size, where it could
matter at all.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time

import numpy as np

from silva.profile.machine import Machine

_SMALLEST, _LARGEST = 20, 24
"""Sizes that are told apart, as powers of two: less is in a cache, more is not."""
_MOST_CORES = 16
"""So many are enough to ask for all that there is."""
_MOST_BYTES = 64 << 20
"""That all of them together work on: more than a cache holds."""
_ROUNDS = 3
_NEGLIGIBLE = 1e-9
"""Seconds a byte: no machine that runs this is slower, so what is asked for less than that often
is not worth a measurement."""


def memory_seconds(nbytes: float, block: float, within: float) -> float:
    """Seconds of the memory that all share, for so many bytes read or written, in blocks of a size;
    0 where they do not matter beside what takes `within` seconds.

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
    """For each byte that is read or written, in pieces of 2^power bytes; 0 where the system has no
    threads or memory to give for that."""
    cores = min(Machine.here().cpus, _MOST_CORES)
    half = min(1 << power, _MOST_BYTES // cores) // 2
    together = threading.Barrier(cores)
    took = [0.0] * cores

    def copy(number: int, source: np.ndarray, target: np.ndarray) -> None:
        best = float("inf")
        with contextlib.suppress(threading.BrokenBarrierError):
            for _ in range(_ROUNDS):
                together.wait()
                began = time.perf_counter()
                np.copyto(target, source)
                best = min(best, time.perf_counter() - began)
        took[number] = best

    threads: list[threading.Thread] = []
    try:
        for number in range(cores):
            pair = np.ones(half, np.uint8), np.ones(half, np.uint8)
            thread = threading.Thread(target=copy, args=(number, *pair), daemon=True)
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):
        together.abort()  # those that were started wait for the others
        return 0.0
    finally:
        for thread in threads:
            thread.join()
    return max(took) / (cores * 2 * half)
