"""Predicts throughput: the rows per second that the scarcest resource allows.

The work of a row is a vector: seconds of each resource that it needs. The backend decides which of
them count: threads share the GIL, processes send their results to the consumer, an inline stage
runs on the consumer's thread; all share the cores, the memory bandwidth, the disk and the network.
Stages on Ray have cores of their own. Nobody is promised more than the scarcest resource gives,
however many workers there are.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Backend = Literal["inline", "threads", "processes", "ray"]

PROCESS_START = 0.3
"""Seconds that a worker process takes to start."""
LITTLE_WORK = PROCESS_START / 2
"""Seconds of work for which no worker is used."""
OPERATORS_SHARE = 0.1
"""The share of a built-in operator's time under the GIL."""
GAIN = 1.1
"""How many times as fast something must be predicted to be worth a change: less is within the error
of measuring."""
_TRAINS = 0.2
"""The consumer's own time per second of the stage from which it counts as a trainer, which should
not wait."""
WAITS = 0.01
"""Share of its time that a trainer may wait: more is seen."""
_HANDED_OVER = 0.75
"""Seconds of work per second under the GIL, if several threads compete for it: handing it over
takes the rest. (Measured at a share of 0.62.)"""
NEARLY = 0.8
"""The share of a figure that is as good as all of it: a prediction is that of the measured rate
within a quarter more. A candidate that reaches less of what it promised may have to go, and a
shared resource is the bottleneck if it takes this share of the longest time."""

CONSUMER = "the consumer's thread"
COPYING = "copying results back from workers"
SHARED = ("memory bandwidth", "the disk", "the network")
"""What all workers of a machine share, beside its cores."""
RESOURCES = (
    CONSUMER,
    "the cores",
    "the GIL",
    "the threads",
    "the processes",
    "the actors",
    *SHARED,
)


class Work(NamedTuple):
    """Seconds of each resource per row: what a prediction is made of. A `Cost` (`cost/costs.py`) is
    what was measured, in sums over blocks."""

    seconds: float = 0.0
    """Seconds of the worker that runs the steps."""
    cpu: float = 0.0
    lock: float = 0.0
    """Seconds holding the GIL, if a thread runs it alone."""
    memory: float = 0.0
    """Seconds of memory bandwidth."""
    disk: float = 0.0
    network: float = 0.0
    pickling: float = 0.0
    """Seconds of a worker in another process beyond `seconds`, for pickling the result."""
    back: float = 0.0
    """Seconds of the consumer's thread to receive the result from another process."""
    consumer: float = 0.0
    """Seconds of the consumer's thread on any backend: the loop itself, and cached rows."""
    queued: float = 0.0
    """Seconds of `seconds` that the worker waited for a core; 0 where the system does not say."""

    def plus(self, more: Work, times: float = 1.0) -> Work:
        """The sum of this work and `times` as much of another.

        >>> Work(1.0, 1.0).plus(Work(2.0, lock=4.0), times=0.5)[:3]
        (2.0, 1.0, 2.0)
        """
        a, b, c, d, e, f, g, h, i, j = self
        k, m, n, o, p, q, r, s, t, u = more
        return _make(Work, (
            a + times * k, b + times * m, c + times * n, d + times * o, e + times * p,
            f + times * q, g + times * r, h + times * s, i + times * t, j + times * u,
        ))  # fmt: skip

    @property
    def shared(self) -> dict[str, float]:
        """Seconds of what all workers share, by name; without resources that are not used."""
        every = zip(SHARED, (self.memory, self.disk, self.network), strict=True)
        return {name: seconds for name, seconds in every if seconds}

    @property
    def gil(self) -> float:
        """Seconds of the GIL if several threads compete for it: handing it over takes time, but
        never more than doing one row after the other.

        >>> Work(4.0, 4.0, 3.0).gil, Work(4.0, 4.0, 4.0).gil
        (4.0, 4.0)
        """
        return min(self.lock / _HANDED_OVER, self.seconds)

    def taking(self, seconds: float, cpu: float | None = None) -> Work:
        """The same work if a row took so many seconds of the worker, waits included; it holds the
        GIL for the same share of them, but never while it waits."""
        lock = self.lock * seconds / self.seconds if self.seconds else self.lock
        cpu = self.cpu if cpu is None else cpu
        return self._replace(seconds=seconds, cpu=cpu, lock=min(lock, cpu))

    def locking(self, most: float) -> Work:
        """The same work if several threads that compete for the GIL take at most so many seconds
        of it.

        >>> Work(4.0, 4.0, 4.0).locking(2.0).gil
        2.0
        """
        return self._replace(lock=min(self.lock, most * _HANDED_OVER))


_make = tuple.__new__
NOTHING = Work()


def loop_work(seconds: float, cpu: float) -> Work:
    """What the consumer's own loop takes for a row. It is Python, so its CPU seconds are taken to
    be under the GIL; those beyond `seconds` are of other work on the same thread."""
    cpu = min(cpu, seconds)
    return Work(seconds, cpu, cpu)


def uses(work: Work, backend: Backend, workers: int, cores: int) -> tuple[float, ...]:
    """Seconds of each of the `RESOURCES` per row. The search calls it very often."""
    seconds, cpu, lock, memory, disk, network, pickling, back, consumer, _ = work
    if backend == "inline":
        return (consumer + seconds, cpu / cores, lock, 0.0, 0.0, 0.0, memory, disk, network)
    if backend == "threads":
        lock = work.gil if workers > 1 else lock
        return (
            consumer, cpu / cores, lock, seconds / (workers or 1), 0.0, 0.0, memory, disk, network,
        )  # fmt: skip
    there = (seconds + pickling) / (workers or 1)
    if backend == "processes":
        cpu = (cpu + pickling + back) / cores
        return (consumer + back, cpu, 0.0, 0.0, there, 0.0, memory, disk, network)
    return (consumer + back, back / cores, 0.0, 0.0, 0.0, there, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Placed:
    """A stage with its work, on the workers that run it."""

    name: str
    work: Work
    backend: Backend
    workers: int
    rows: float = 1.0
    """Rows that enter the stage per row that the consumer gets."""

    def uses(self, cores: int) -> tuple[float, ...]:
        """Seconds of each of the `RESOURCES` per row that the consumer gets."""
        found = uses(self.work, self.backend, self.workers, cores)
        return tuple(self.rows * seconds for seconds in found)


class Prediction(NamedTuple):
    """A predicted throughput, and what limits it."""

    rows_per_second: float
    cpu_per_row: float
    """CPU seconds of this machine."""
    limit: str
    """The bottleneck."""
    stage: str | None = None
    """The stage that uses most of it; None for the consumer itself."""


def predict(stages: Sequence[Placed], cores: int, consumer: Work = NOTHING) -> Prediction:
    """The throughput of all stages together. `consumer`: what the consumer's own loop takes for a
    row, see `loop_work`.

    >>> decode = Placed("decode", Work(4e-3, 4e-3, 4e-4), "threads", 8)
    >>> predict([decode], cores=2)  # eight workers on two cores
    Prediction(rows_per_second=500.0, cpu_per_row=0.004, limit='the cores', stage='decode')
    >>> predict([decode], cores=2, consumer=Work(5e-3)).limit
    "the consumer's thread"
    >>> read = Placed("read", Work(4e-3, 1e-3, disk=2e-3), "threads", 8)
    >>> predict([read, decode], cores=2)
    Prediction(rows_per_second=400.0, cpu_per_row=0.005, limit='the disk', stage='read')
    """
    cores = max(cores, 1)
    own = uses(consumer, "inline", 0, cores)
    by_stage = [stage.uses(cores) for stage in stages]
    totals = dict(zip(RESOURCES, map(sum, zip(own, *by_stage, strict=True)), strict=True))
    limit = limit_of(totals)
    column = RESOURCES.index(limit)
    most = max(range(len(stages)), key=lambda i: by_stage[i][column], default=None)
    stage = None if most is None or by_stage[most][column] < own[column] else stages[most]
    if limit == CONSUMER and stage is not None and stage.backend in ("processes", "ray"):
        limit = COPYING
    rate = 1 / max(*totals.values(), sys.float_info.epsilon)
    return Prediction(rate, totals["the cores"] * cores, limit, stage.name if stage else None)


def limit_of(spent: Mapping[str, float]) -> str:
    """The bottleneck, by the seconds that each resource takes. Workers that wait for a disk are
    busy as long as it is, so a shared resource counts as the bottleneck if it takes nearly as long.

    >>> limit_of({"the threads": 10.0, "the cores": 9.0, "the disk": 8.5})
    'the disk'
    """
    most = max(spent.values())
    shared = [name for name in SHARED if spent.get(name, 0.0) >= NEARLY * most]
    return max(shared or spent, key=lambda name: spent[name])


def most_rows(work: Work, cores: int) -> float:
    """The rows per second that no placement on this machine can exceed.

    >>> most_rows(Work(4e-3, 4e-3, 4e-3), cores=2)
    500.0
    """
    return 1 / max(
        work.cpu / max(cores, 1), work.memory, work.disk, work.network, sys.float_info.epsilon
    )


@dataclass(frozen=True)
class Hardware:
    """The workers and cores that some work may use, wherever it runs best."""

    workers: int = 0
    cores: int = 1
    processes: bool = True
    """Whether worker processes may be used."""
    always: Work = NOTHING
    """The work of a row in every epoch and every order of the steps: handing its result over, and
    the loop."""

    @functools.cached_property
    def backends(self) -> tuple[Backend, ...]:
        if not self.workers:
            return ("inline",)
        return ("inline", "threads", "processes") if self.processes else ("inline", "threads")

    def seconds(self, work: Work) -> float:
        """Seconds per row on the best backend: what the search minimises.

        >>> Hardware(workers=2, cores=2).seconds(Work(4.0, 4.0, 3.0))
        2.0
        >>> Hardware(workers=8, cores=2).seconds(Work(4.0, 4.0, 3.0, disk=3.5))
        3.5
        """
        workers, cores, least = self.workers, self.cores, float("inf")
        for backend in self.backends:
            took = max(uses(work, backend, workers, cores))
            least = took if took < least else least
        return least

    def best(self, work: Work) -> Backend:
        """The backend on which the work takes least.

        >>> Hardware(workers=2, cores=2).best(Work(4.0, 4.0, 3.0))
        'processes'
        """
        return min(self.backends, key=lambda b: max(uses(work, b, self.workers, self.cores)))


class Place(NamedTuple):
    """The backend on which a stage should run, and the reason."""

    backend: Backend
    reason: str
    speeds: tuple[tuple[Backend, float], ...] = ()
    """How many times as fast as inline the loop would be, on each backend of workers that may run
    the stage; empty for an inline stage."""


def choose_place(
    work: Work,
    workers: int,
    cores: int,
    *,
    consumer: Work = NOTHING,
    left: float = float("inf"),
    shares_generators: bool = False,
) -> Place:
    """The backend for a stage.

    `consumer`: what the loop itself takes for a row, which workers would overlap with. `left`:
    seconds of the stage's work that are still to come. A function that draws from global generators
    cannot run on threads.

    >>> choose_place(Work(1e-3, 1e-3, 5e-5), 2, cores=2).backend
    'threads'
    >>> choose_place(Work(1e-3, 1e-3, 95e-5), 8, cores=2).reason
    '1 ms per row, the GIL is held 95% of the time: 2.0× as fast with processes, 1.0× with threads'
    >>> slow = Work(1e-3, 1e-4, 5e-5, network=0.95e-3)  # one worker alone uses nearly all of it
    >>> choose_place(slow, 2, cores=2).reason
    '1 ms per row, 950 µs of it on the network: workers would not help'
    """
    per_row = duration(work.seconds)
    if left < LITTLE_WORK:
        return Place(
            "inline", f"{per_row} per row, {duration(left)} of work left: not worth a worker"
        )

    # time in line for a core that others use is not a wait which workers would overlap
    work = work.taking(max(work.seconds - work.queued, work.cpu))

    def at(backend: Backend) -> Prediction:
        return predict([Placed("", work, backend, workers)], cores, consumer)

    alone, threads, processes = at("inline"), at("threads"), at("processes")
    by_threads = 1.0 if shares_generators else threads.rows_per_second / alone.rows_per_second
    by_processes = processes.rows_per_second / alone.rows_per_second
    share = min(work.lock / work.seconds, 1.0) if work.seconds else 0.0
    seen = f"{per_row} per row, the GIL is held {share:.0%} of the time"
    if processes.limit in SHARED:
        spent = duration(work.shared[processes.limit])
        seen = f"{per_row} per row, {spent} of it on {processes.limit}"
    pays = left * (1 - 1 / by_processes) > 2 * PROCESS_START
    speeds: dict[Backend, float] = {}
    if not shares_generators:
        speeds["threads"] = by_threads
    if pays:
        speeds["processes"] = by_processes
    possible = tuple(speeds.items())
    # processes cost memory and a start: over threads, they must gain what counts as a gain twice
    if by_processes > GAIN**2 * by_threads and pays:
        why = f"{seen}: {by_processes:.1f}× as fast with processes, {by_threads:.1f}× with threads"
        return Place("processes", why, possible)
    trains = consumer.seconds >= _TRAINS * work.seconds
    if by_threads > (1 + WAITS if trains else GAIN):
        return Place("threads", f"{seen}: {by_threads:.1f}× as fast with threads", possible)
    return Place("inline", f"{seen}: workers would not help")


def duration(seconds: float) -> str:
    """A duration as text.

    >>> duration(0.00042), duration(0.25), duration(3)
    ('420 µs', '250 ms', '3 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
