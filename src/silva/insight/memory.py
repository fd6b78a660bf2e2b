"""The memory that this process and its workers hold."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

_SECONDS = 1.0
"""Asking the kernel costs time; once a second is enough for a person."""


class Memory:
    def __init__(
        self, workers: Callable[[], list[int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._asked = -_SECONDS
        self._bytes = 0

    def now(self) -> int:
        """Resident bytes of this process and its workers, at most a second old.

        >>> Memory(workers=list).now() > 0
        True
        """
        if self._clock() - self._asked >= _SECONDS:
            self._asked = self._clock()
            self._bytes = _resident(psutil.Process().pid) + sum(map(_resident, self._workers()))
        return self._bytes


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # a worker that has just gone holds nothing
        return 0
