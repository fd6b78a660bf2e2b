"""How fast this machine copies memory and caches rows, measured once per process."""

from __future__ import annotations

import functools
import mmap
import os
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silva.cost.costs import BLOCK_BYTES
from silva.cost.memory_bandwidth import ROUNDS


@dataclass(frozen=True)
class Speeds:
    """Seconds per byte to write rows to a cache and to read them back."""

    write: float
    read: float


@functools.cache
def memory_speeds() -> Speeds:
    """The speeds of a cache in memory."""
    source = np.ones(BLOCK_BYTES, np.uint8)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    spent = 2 * best / BLOCK_BYTES  # a row is put into a block and taken out of it
    return Speeds(spent, spent)


@functools.cache
def crossing_seconds() -> float:
    """Seconds per byte to copy what another process has written into new memory: batches are handed
    out, so their memory cannot be reused.

    >>> 0 < crossing_seconds() < 1e-6
    True
    """
    source = np.ones(BLOCK_BYTES, np.uint8)
    best = float("inf")
    for _ in range(2):
        target = np.frombuffer(mmap.mmap(-1, BLOCK_BYTES), np.uint8)
        began = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - began)
    return best / BLOCK_BYTES


@functools.cache
def disk_speeds(folder: Path) -> Speeds:
    """The speeds of a cache in files of a folder, read when they are not in the page cache;
    infinite if nothing can be written there.

    >>> speeds = disk_speeds(Path.cwd())
    >>> 0 < speeds.read < 1e-3
    True
    """
    import tempfile

    data = np.random.default_rng(0).bytes(BLOCK_BYTES)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.perf_counter()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            written = time.perf_counter() - began
            began = time.perf_counter()
            zlib.crc32(data)  # a row is checked when it is written and when it is read
            checked = time.perf_counter() - began
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            began = time.perf_counter()
            file.read()
            read = time.perf_counter() - began
    except OSError:
        return Speeds(float("inf"), float("inf"))
    return Speeds((written + checked) / BLOCK_BYTES, (read + checked) / BLOCK_BYTES)
