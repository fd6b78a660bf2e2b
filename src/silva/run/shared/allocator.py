"""Memory that was freed is kept for the next block.

glibc gives every freed piece of more than 128 KiB back to the system at first, and learns to keep
them only slowly, in each thread anew. The temporary arrays of a block are just that large: they
came with a page fault for every 4 KiB, which took a third of the time of light stages.
"""

from __future__ import annotations

import ctypes
import functools
import os

_TRIM, _MMAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""
_KEPT = 16 << 20
"""Pieces up to this size are kept; twice as much may lie idle at the end of a heap."""


@functools.cache
def keep_freed_memory() -> None:
    """Tells the C library, unless somebody has told it otherwise; does nothing where it is not
    glibc."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP, _KEPT)
        mallopt(_TRIM, 2 * _KEPT)
