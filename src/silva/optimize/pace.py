"""How long rows take in the place that suits their work best: what the search makes small.

The work of a row is a bundle of resources. Which of them ends first depends on where it is done:
threads share Python's lock, processes send over what they made. So an order or a cache is judged by
the best place for what it leaves to do, and backend and width are chosen with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from silva.optimize.model import Backend


class Work(NamedTuple):
    """What is to be done for each row of the source, in one epoch: seconds of each resource."""

    seconds: float = 0.0
    """Of whoever runs the steps."""
    cpu: float = 0.0
    lock: float = 0.0
    """Holding Python's lock."""
    alone: float = 0.0
    """Of the consumer's own thread: what keeping rows takes."""
    memory: float = 0.0
    """Of memory's bandwidth, which all workers share."""
    device: float = 0.0
    """Of the disk or the network that rows come from, which they share too."""

    def plus(self, more: Work, times: float = 1.0) -> Work:
        """
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
    """Seconds that pass for a row of the source."""

    workers: int = 1
    cores: int = 1
    back: float | None = 0.0
    """That the consumer pays for a row which comes from another process; None where none may."""
    crowded: float = 1.0
    """Of the speed of threads that want the lock, what remains beside its being one lane."""

    def ways(self, work: Work) -> dict[Backend, float]:
        """By backend, without the consumer's own work.

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
        """
        >>> Pace(workers=2, cores=2, back=3.5).best(Work(4.0, 4.0, 3.0))
        'threads'
        """
        ways = self.ways(work)
        return min(ways, key=lambda backend: ways[backend])

    def __call__(self, work: Work) -> float:
        """In the best of the ways, as often as the search asks."""
        seconds, cpu, lock, alone, memory, device = work
        best = seconds
        if self.workers:
            shared = max(cpu / self.cores, seconds / self.workers)
            best = min(best, max(shared, lock / self.crowded))
            if self.back is not None:
                best = min(best, max(shared + self.back / self.cores, self.back))
        return alone + max(best, memory, device)
