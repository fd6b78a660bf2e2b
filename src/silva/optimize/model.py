"""What a plan will do: the rows a second that its slowest resource lets through.

A stage's work is known from measurements: seconds, CPU seconds and seconds under Python's lock for
a row, and the bytes that go back to the consumer. Where it runs decides which resource ends first:
the cores, the workers, the lock, or the consumer's own thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Backend = Literal["inline", "threads", "processes", "ray"]
Resource = Literal["one thread", "cores", "workers", "Python's lock", "the way back"]

COPY_SECONDS = 1 / 2e9
"""Seconds a byte costs to bring over from another process."""
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

    @property
    def lock(self) -> float:
        """How long threads keep the lock busy for a row."""
        return self.seconds * self.lock_share / contended(self.lock_share)

    @property
    def back(self) -> float:
        """What the consumer pays for a row that comes from another process."""
        return self.nbytes * COPY_SECONDS + self.objects / 2

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
    """
    workers = max(workers, 1)
    cpu = load.cpu
    spent: dict[Resource, float]
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
    limit = max(spent, key=lambda name: spent[name])
    return Prediction(1 / max(spent[limit], 1e-12), cpu, limit)


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
    """
    share, per_row = load.lock_share, load.seconds
    # Amdahl: the lock is one lane; and beside a worker, the consumer's own time is free
    alone = contended(share) / (share + (1 - share) / workers)
    by_threads = _overlapped(alone, meanwhile)
    if shares_generators:
        by_threads = 1.0
    moved = max((load.there + load.back) / workers, load.back)
    by_processes = _overlapped(per_row / moved, meanwhile) if moved else 1.0
    seen = f"{duration(per_row)} a row, the lock is held {share:.0%} of the time"
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
