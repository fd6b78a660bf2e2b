"""How long a row takes on the backend that suits its work best: what the search minimises.

The work of a row is a vector of resources. Which of them is exhausted first depends on the backend:
threads share the GIL, processes send their results. So an order or a cache is judged on the best
backend for the work that it leaves, and backend and width are chosen with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from silva.cost.model import Backend


class Work(NamedTuple):
    """Seconds of each resource per row of the source, in one epoch."""

    seconds: float = 0.0
    """Seconds of the worker that runs the steps."""
    cpu: float = 0.0
    lock: float = 0.0
    """Seconds holding the GIL."""
    alone: float = 0.0
    """Seconds of the consumer's own thread, for cached rows."""
    memory: float = 0.0
    """Seconds of memory bandwidth, which all workers share."""
    device: float = 0.0
    """Seconds of the disk or network that rows come from, which all workers share."""

    def plus(self, more: Work, times: float = 1.0) -> Work:
        """The sum of this work and `times` as much of another.

        >>> Work(1.0, 1.0).plus(Work(2.0, lock=4.0, device=6.0), times=0.5)
        Work(seconds=2.0, cpu=1.0, lock=2.0, alone=0.0, memory=0.0, device=3.0)
        """
        seconds, cpu, lock, alone, memory, device = self
        a, b, c, d, e, f = more
        return Work(
            seconds + times * a, cpu + times * b, lock + times * c, alone + times * d,
            memory + times * e, device + times * f,
        )  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """Computes the seconds per row of the source, on given hardware."""

    workers: int = 1
    cores: int = 1
    back: float | None = 0.0
    """Seconds of the consumer per row that comes from another process; None if processes cannot be
    used."""
    crowded: float = 1.0
    """The share of their speed that threads keep when they compete for the GIL."""

    def ways(self, work: Work) -> dict[Backend, float]:
        """Seconds per row on each backend, without the consumer's own work.

        >>> Pace(workers=2, cores=2).ways(Work(4.0, 4.0, 3.0))
        {'inline': 4.0, 'threads': 3.0, 'processes': 2.0}
        >>> Pace(workers=2, cores=2).ways(Work(4.0, 4.0, 3.0, device=3.5))
        {'inline': 4.0, 'threads': 3.5, 'processes': 3.5}
        """
        least = max(work.memory, work.device)
        found: dict[Backend, float] = {"inline": max(work.seconds, least)}
        if self.workers > 0:
            shared = max(work.cpu / self.cores, work.seconds / self.workers)
            found["threads"] = max(shared, work.lock / self.crowded, least)
            if self.back is not None:
                found["processes"] = max(shared + self.back / self.cores, self.back, least)
        return found

    def best(self, work: Work) -> Backend:
        """The backend on which the work takes least.

        >>> Pace(workers=2, cores=2, back=3.5).best(Work(4.0, 4.0, 3.0))
        'threads'
        """
        ways = self.ways(work)
        return min(ways, key=lambda backend: ways[backend])

    def __call__(self, work: Work) -> float:
        """Seconds per row on the best backend. Written without `ways`, because the search calls it
        very often."""
        seconds, cpu, lock, alone, memory, device = work
        best = seconds
        if self.workers:
            shared = max(cpu / self.cores, seconds / self.workers)
            best = min(best, max(shared, lock / self.crowded))
            if self.back is not None:
                best = min(best, max(shared + self.back / self.cores, self.back))
        return alone + max(best, memory, device)
