"""Bytes that come into this process from outside: from disks, as the system counts them, and from
object stores, as silva does.

The system counts what had to be fetched for each thread; what it still had in memory is not among
it. A step can tell what was fetched for it by looking at its own thread. What other threads fetch
on behalf of a stage (readers that run ahead, libraries with threads of their own) is claimed once,
by whoever comes next, so that all claims together are all that came.
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
"""Bytes of what the system counts in."""
_FEW = 32
"""With fewer answers, nothing is said of them."""


class Answers(NamedTuple):
    """What object stores have sent."""

    number: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    """That all of them took, many of them at once."""
    quickest: tuple[float, int] = (float("inf"), 0)
    """Seconds and bytes of the quickest one ever."""

    def plus(self, more: Answers) -> Answers:
        """
        >>> Answers(1, 10, 0.5, (0.5, 10)).plus(Answers(1, 20, 0.25, (0.25, 20)))
        Answers(number=2, nbytes=30, seconds=0.75, quickest=(0.25, 20))
        """
        number, nbytes, seconds, quickest = more
        return Answers(
            self.number + number,
            self.nbytes + nbytes,
            self.seconds + seconds,
            min(self.quickest, quickest),
        )

    def line(self, before: Answers, elapsed: float) -> float:
        """Seconds that a byte takes of the line which all answers share, by those that came after
        `before`; 0 where it is not known to take any.

        So many bytes as come in a second, for as long as an answer takes, are under way. What an
        answer takes longer than the quickest one ever, it waits for what is under way beside it.

        >>> alone = Answers(1, 100_000, 0.021, (0.021, 100_000))  # 20 ms, and 100 MB/s
        >>> ten = Answers(1000, 100_000_000, 30.0)  # in 3 s, ten at a time
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


NO_ANSWERS = Answers()


class Incoming(NamedTuple):
    """Bytes from disks, and answers of object stores."""

    disk: int = 0
    network: Answers = NO_ANSWERS

    def plus(self, more: Incoming) -> Incoming:
        return Incoming(self.disk + more.disk, self.network.plus(more.network))


NOTHING = Incoming()


class Ledger:
    """What of all that came was claimed.

    >>> ledger = Ledger()
    >>> with ledger.asking(1000):
    ...     pass
    >>> ledger.rest().network.nbytes, ledger.rest().network.nbytes
    (1000, 0)
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """From here on; in a forked process once more, where the lock may be held by nobody."""
        self._lock = threading.Lock()
        self._disk = _fetched(whole=True)
        """Claimed so far."""
        self._answers = NO_ANSWERS
        """That nobody has claimed."""

    @contextmanager
    def asking(self, nbytes: int) -> Iterator[None]:
        """While an answer of so many bytes is waited for."""
        began = time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        with self._lock:
            one = Answers(1, nbytes, seconds, (seconds, nbytes))
            self._answers = self._answers.plus(one)

    def note(self, nbytes: int) -> None:
        """A thread has claimed bytes of a disk as its own."""
        with self._lock:
            self._disk += nbytes

    def rest(self) -> Incoming:
        """What came and was claimed by nobody; the caller claims it."""
        with self._lock:
            disk = max(_fetched(whole=True) - self._disk, 0)
            self._disk += disk
            answers, self._answers = self._answers, NO_ANSWERS
        return Incoming(disk, answers)


if sys.platform == "linux":
    import resource

    def _fetched(whole: bool) -> int:
        who = resource.RUSAGE_SELF if whole else resource.RUSAGE_THREAD
        return resource.getrusage(who).ru_inblock * _SECTOR

else:

    def _fetched(whole: bool) -> int:
        """Elsewhere nobody counts for threads."""
        return 0


def fetched_here() -> int:
    """Bytes that were fetched from disks for this thread so far."""
    return _fetched(whole=False)


LEDGER = Ledger()
"""Of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LEDGER.begin)
