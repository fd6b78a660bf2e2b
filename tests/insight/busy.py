"""Steps that take a known time of the CPU, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable


def spin(milliseconds: float) -> Callable[[int], int]:
    """A function that computes for so long and gives back what it was given."""

    def spinning(x):
        start = time.thread_time()
        while time.thread_time() - start < milliseconds / 1e3:
            pass
        return x

    return spinning
