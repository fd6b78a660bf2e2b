"""How many threads a step is worth, from how much of its time it waits.

A step that computes holds the GIL, and gains nothing from a second thread; one that waits for
something far away leaves the process idle, and as many of its calls may wait at once as it takes to
fill that time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_MEMORY = 0.95
"""What a measurement still counts after one more batch: about twenty of them decide."""
MOST_THREADS = 64
"""Threads of one step at most: an idle one takes some 100 KB, and starting one 0.1 ms."""


@dataclass(frozen=True)
class Clocks:
    """The time of one thread and of the process around a batch, in seconds."""

    wall: float
    thread: float
    process: float

    @staticmethod
    def now() -> Clocks:
        return Clocks(time.perf_counter(), time.thread_time(), time.process_time())

    def since(self, begin: Clocks) -> Clocks:
        return Clocks(
            self.wall - begin.wall, self.thread - begin.thread, self.process - begin.process
        )


class Width:
    """The number of threads of one step."""

    def __init__(self) -> None:
        self._computes = 0.0
        self._waits = 0.0

    def add(self, spent: Clocks) -> None:
        """Notes a batch. Only time in which no thread of the process computed was surely waited,
        and not spent waiting for the GIL.

        >>> width = Width()
        >>> width.add(Clocks(wall=0.050, thread=0.005, process=0.010))
        >>> width.threads
        9
        >>> busy = Width()
        >>> busy.add(Clocks(wall=0.050, thread=0.025, process=0.050))
        >>> busy.threads
        1
        """
        waited = max(spent.wall - max(spent.process, spent.thread), 0.0)
        self._computes = _MEMORY * self._computes + spent.thread
        self._waits = _MEMORY * self._waits + waited

    @property
    def threads(self) -> int:
        if not self._waits:
            return 1
        if self._waits >= MOST_THREADS * self._computes:
            return MOST_THREADS
        return max(int((self._waits + self._computes) / self._computes), 1)
