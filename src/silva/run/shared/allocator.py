"""Makes the C library keep freed memory for the next block.

By default, glibc returns freed allocations of more than 128 KiB to the system, and raises that
threshold only slowly, in each thread anew. The temporary arrays of a block are larger: without this
module, each came with a page fault for every 4 KiB, which took a third of the time of light stages.
Each thread's heap keeps some, so where a loader's memory is used up, it is given back now and then.
"""

from __future__ import annotations

import ctypes
import functools
import os

_TRIM, _MMAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""
_KEPT = 16 << 20
"""Bytes of the largest allocation that is kept; twice as much may lie idle at the end of a heap."""


@functools.cache
def keep_freed_memory() -> None:
    """Raises the thresholds of glibc's malloc, unless the environment sets them; does nothing with
    another C library."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP, _KEPT)
        mallopt(_TRIM, 2 * _KEPT)


def release_freed_memory() -> None:
    """Gives freed memory of all heaps back to the system; does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
