"""A line on stderr about each phase of a long job: which one it is, and how much of it is done.

On a terminal the line is redrawn in place. Elsewhere a line is written every few seconds, and one
when a phase ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_PLAIN_SECONDS = 5.0
"""Time between two plain lines about one phase."""
_REDRAW_SECONDS = 0.1
"""Least time between two updates on a terminal."""

Tell = Callable[[str, int, int], None]
"""Called with the name of a phase, how much of it is done, and how much there is."""


def tell_nobody(phase: str, done: int, total: int) -> None:
    """For jobs whose progress nobody wants to see."""


class PhaseLines:
    """Shows phases, one after the other."""

    def __init__(
        self, job: str, file: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._job = job
        self._file = sys.stderr if file is None else file
        self._clock = clock
        self._redraws = self._file.isatty()
        self._last = clock()

    def __call__(self, phase: str, done: int, total: int) -> None:
        seconds = _REDRAW_SECONDS if self._redraws else _PLAIN_SECONDS
        if done < total and self._clock() - self._last < seconds:
            return
        self._last = self._clock()
        line = f"{self._job}: {phase}  {done:,}/{total:,}"
        end = "\n" if done >= total or not self._redraws else ""
        self._file.write(("\r\x1b[2K" if self._redraws else "") + line + end)
        self._file.flush()
