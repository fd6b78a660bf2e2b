"""What a plan will do: the rows a second that its slowest resource lets through.

A stage's work is known from measurements: seconds, CPU seconds and seconds under Python's lock for
a row, the bytes that go back to the consumer, and what it takes of what all workers of a machine
share. Where it runs decides which resource ends first: the cores, the workers, the lock, the
consumer's own thread; or memory, disk and network, which more workers do not make faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Backend = Literal["inline", "threads", "processes", "ray"]

PROCESS_START = 0.3
"""Seconds until a worker process earns its keep."""
OPERATORS_SHARE = 0.1
"""Of a built-in operator's time, what is spent holding Python's lock."""
_CLEARLY = 1.2
"""Processes must be so much faster than threads: they cost memory and a start."""
WORTHWHILE = 1.15
"""Times as fast that another place must be."""
_TRAINS = 0.2
"""Of the stage's time that the consumer takes itself: then it is a trainer, who should not wait."""
_NO_WAIT = 1.01


SHARED = ("memory bandwidth", "the disk", "the network")
"""What all workers of a machine share, beside its cores."""
_NEARLY = 0.75


class Shared(NamedTuple):
    """Seconds that a row takes of what all workers of this machine share."""

    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def named(self, rows: float = 1.0) -> dict[str, float]:
        """By name, for so many rows; without what is not needed."""
        every = zip(SHARED, self, strict=True)
        return {name: rows * seconds for name, seconds in every if seconds}


NOTHING_SHARED = Shared()


@dataclass(frozen=True)
class Load:
    """What a stage costs for a row that comes in."""

    seconds: float
    cpu: float
    lock_share: float
    """Of its time, what is spent holding Python's lock."""
    nbytes: float
    """That it hands on."""
    objects: float = 0.0
    """Seconds to write down what it hands on as Python objects, and to read it again."""
    crossing: float = 1 / 4e9
    """Seconds a byte costs to bring over from another process: measured, or else what is usual."""
    shared: Shared = NOTHING_SHARED

    @property
    def lock(self) -> float:
        """How long threads keep the lock busy for a row: never while they wait for something."""
        return min(self.seconds * self.lock_share, self.cpu) / contended(self.lock_share)

    @property
    def back(self) -> float:
        """What the consumer pays for a row that comes from another process."""
        return self.nbytes * self.crossing + self.objects / 2

    @property
    def there(self) -> float:
        """What a worker process takes for a row."""
        return self.seconds + self.objects / 2


@dataclass(frozen=True)
class Prediction:
    rows_per_second: float
    cpu_per_row: float
    limit: str
    """What ends first."""


def predict(load: Load, backend: Backend, workers: int, cores: int) -> Prediction:
    """How fast a stage is, if it is what limits.

    >>> load = Load(seconds=0.004, cpu=0.004, lock_share=0.9, nbytes=0)
    >>> predict(load, "threads", 4, 4).limit, predict(load, "processes", 4, 4).rows_per_second
    ("Python's lock", 1000.0)
    >>> read = Load(seconds=0.004, cpu=0.001, lock_share=0, nbytes=0, shared=Shared(disk=0.002))
    >>> predict(read, "threads", 4, 4)
    Prediction(rows_per_second=500.0, cpu_per_row=0.001, limit='the disk')
    """
    workers = max(workers, 1)
    cpu = load.cpu
    if backend == "inline":
        spent = {"one thread": load.seconds}
    elif backend == "threads":
        spent = {"cores": cpu / cores, "workers": load.seconds / workers}
        spent["Python's lock"] = load.lock
    elif backend == "ray":  # whose cores are not this machine's
        cpu = load.back
        spent = {"workers": load.there / workers, "the way back": load.back}
    else:
        cpu += load.back + load.there - load.seconds
        spent = {"cores": cpu / cores, "workers": load.there / workers, "the way back": load.back}
    if backend != "ray":  # what its workers share is theirs
        spent |= load.shared.named()
    return Prediction(1 / max(max(spent.values()), 1e-12), cpu, limit_of(spent))


def limit_of(spent: Mapping[str, float]) -> str:
    """What ends first, by the seconds that each resource takes. Who waits for a disk is busy for as
    long: so what all share is the reason where it takes nearly as much.

    >>> limit_of({"workers": 10.0, "cores": 9.0, "the disk": 8.5})
    'the disk'
    """
    most = max(spent.values())
    shared = [name for name in SHARED if spent.get(name, 0.0) > _NEARLY * most]
    return max(shared or spent, key=lambda name: spent[name])


def contended(share: float) -> float:
    """What remains of the speed of threads that want the lock for a share of their time, beside
    its being one lane: they hinder each other. (Measured: 0.75 where they want it for 0.62.)"""
    return 1 - 0.4 * share


@dataclass(frozen=True)
class Place:
    """Where a stage should run, and why."""

    backend: Backend
    reason: str
    speeds: tuple[tuple[Backend, float], ...] = ()
    """Of a stage that is given to workers: how many times as fast as alone it would be on those
    that may run it."""


def choose_place(
    load: Load,
    workers: int,
    *,
    left: float = float("inf"),
    meanwhile: float = 0.0,
    shares_generators: bool = False,
) -> Place:
    """The backend for a stage.

    `left` is how many seconds of its work are still to come, `meanwhile` the consumer's own time
    for each second of the stage's, which workers would overlap with. A function that draws from
    global generators cannot run on threads.

    >>> choose_place(Load(1e-3, 1e-3, 0.05, 0), 2).backend
    'threads'
    >>> choose_place(Load(1e-3, 1e-3, 0.95, 0), 2).backend
    'processes'
    >>> slow = Shared(network=0.9e-3)  # one worker alone asks for nearly all that it can bring
    >>> choose_place(Load(1e-3, 1e-4, 0.05, 0, shared=slow), 2).reason
    '1 ms a row, 900 µs of it for the network: workers would not help'
    """
    per_row = load.seconds
    share = min(load.lock_share, load.cpu / per_row) if per_row else load.lock_share
    # Amdahl: the lock is one lane; and beside a worker, the consumer's own time is free
    alone = contended(share) / (share + (1 - share) / workers)
    least = max(load.shared)
    most = per_row / least if least else float("inf")
    by_threads = _overlapped(min(alone, most), meanwhile)
    if shares_generators:
        by_threads = 1.0
    moved = max((load.there + load.back) / workers, load.back, least)
    by_processes = _overlapped(per_row / moved, meanwhile) if moved else 1.0
    seen = f"{duration(per_row)} a row, the lock is held {share:.0%} of the time"
    if most < min(alone, workers):
        names = load.shared.named()
        name = max(names, key=lambda one: names[one])
        seen = f"{duration(per_row)} a row, {duration(least)} of it for {name}"
    if left < PROCESS_START / 2:
        why = f"{duration(per_row)} a row, {duration(left)} left: not worth a worker"
        return Place("inline", why)
    pays = left * (1 - 1 / by_processes) > 2 * PROCESS_START
    speeds: dict[Backend, float] = {}
    if not shares_generators:
        speeds["threads"] = by_threads
    if pays:
        speeds["processes"] = by_processes
    possible = tuple(speeds.items())
    if by_processes > _CLEARLY * by_threads and pays:
        why = f"{seen}: processes {by_processes:.1f}×, threads {by_threads:.1f}×"
        return Place("processes", why, possible)
    if by_threads > (WORTHWHILE if meanwhile < _TRAINS else _NO_WAIT):
        return Place("threads", f"{seen}: threads {by_threads:.1f}×", possible)
    return Place("inline", f"{seen}: workers would not help")


def _overlapped(speed: float, meanwhile: float) -> float:
    """How much faster stage and consumer are together when the stage, `speed` times as fast, runs
    beside the consumer, who takes `meanwhile` of the stage's own time."""
    return (1 + meanwhile) / max(1 / speed, meanwhile)


def duration(seconds: float) -> str:
    """
    >>> duration(0.00042), duration(0.25), duration(3)
    ('420 µs', '250 ms', '3 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
