"""Bytes that this process reads: from disks, as the system counts them, and from object stores, as
silva counts them.

The system counts the bytes that each thread had to fetch from a disk, without those in the page
cache. A step reads the counter of its own thread. What other threads fetch for a stage (prefetching
readers, threads of libraries) is claimed once, by the next stage that asks, so that the sum of all
claims is the sum of all bytes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

_SECTOR = 512
"""Bytes of a sector, the unit in which the system counts."""
_FEW = 32
"""With fewer responses, no bandwidth is estimated."""


class Responses(NamedTuple):
    """The responses of object stores."""

    number: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    """The sum of their durations; many overlap."""
    quickest: tuple[float, int] = (float("inf"), 0)
    """Seconds and bytes of the fastest response so far."""

    def plus(self, more: Responses) -> Responses:
        """
        >>> Responses(1, 10, 0.5, (0.5, 10)).plus(Responses(1, 20, 0.25, (0.25, 20)))
        Responses(number=2, nbytes=30, seconds=0.75, quickest=(0.25, 20))
        """
        number, nbytes, seconds, quickest = more
        return Responses(
            self.number + number,
            self.nbytes + nbytes,
            self.seconds + seconds,
            min(self.quickest, quickest),
        )

    def line(self, before: Responses, elapsed: float) -> float:
        """Seconds per byte of the shared line, estimated from the responses after `before`; 0 if
        the line is not known to be a limit.

        The bytes in flight are the bytes per second times the duration of a response. A response
        that takes longer than the fastest one waits for the bytes in flight beside it.

        >>> alone = Responses(1, 100_000, 0.021, (0.021, 100_000))  # 20 ms, and 100 MB/s
        >>> ten = Responses(1000, 100_000_000, 30.0)  # in 3 s, ten at a time
        >>> round(1 / alone.plus(ten).line(alone, elapsed=3.0) / 1e6)
        100
        """
        number, nbytes = self.number - before.number, self.nbytes - before.nbytes
        if number < _FEW or elapsed <= 0:
            return 0.0
        least, alone = self.quickest
        usual = (self.seconds - before.seconds) / number
        beside = nbytes / elapsed * usual - alone
        return max(usual - least, 0.0) / beside if beside > alone / 2 else 0.0


NO_RESPONSES = Responses()


class Incoming(NamedTuple):
    """Bytes from disks, and responses of object stores."""

    disk: int = 0
    network: Responses = NO_RESPONSES

    def plus(self, more: Incoming) -> Incoming:
        return Incoming(self.disk + more.disk, self.network.plus(more.network))


NOTHING = Incoming()


class ByteLedger:
    """Which of the incoming bytes have been claimed.

    >>> ledger = ByteLedger()
    >>> with ledger.asking(1000):
    ...     pass
    >>> ledger.rest().network.nbytes, ledger.rest().network.nbytes
    (1000, 0)
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Starts counting; again in a forked process, whose copy of the lock may be stuck."""
        self._lock = threading.Lock()
        self._disk = _fetched(whole=True)
        """Bytes claimed so far."""
        self._answers = NO_RESPONSES
        """Responses that have not been claimed."""

    @contextmanager
    def asking(self, nbytes: int) -> Iterator[None]:
        """Times the request for a response of `nbytes` bytes."""
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        with self._lock:
            one = Responses(1, nbytes, seconds, (seconds, nbytes))
            self._answers = self._answers.plus(one)

    def note(self, nbytes: int) -> None:
        """Records that a thread has claimed bytes from a disk."""
        with self._lock:
            self._disk += nbytes

    def rest(self) -> Incoming:
        """Claims and returns everything that has not been claimed."""
        with self._lock:
            disk = max(_fetched(whole=True) - self._disk, 0)
            self._disk += disk
            answers, self._answers = self._answers, NO_RESPONSES
        return Incoming(disk, answers)


if sys.platform == "linux":
    import resource

    def _fetched(whole: bool) -> int:
        who = resource.RUSAGE_SELF if whole else resource.RUSAGE_THREAD
        return resource.getrusage(who).ru_inblock * _SECTOR

else:

    def _fetched(whole: bool) -> int:
        """Other systems do not count per thread."""
        return 0


def fetched_here() -> int:
    """Bytes that this thread has fetched from disks so far."""
    return _fetched(whole=False)


LEDGER = ByteLedger()
"""The ledger of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LEDGER.begin)
