"""Predicts throughput: the rows per second that the scarcest resource allows.

The work of a stage is measured: seconds, CPU seconds and seconds under the GIL per row, the bytes
that go back to the consumer, and the use of what all workers of a machine share. The backend
decides which resource is the bottleneck: the cores, the workers, the GIL, the consumer's own
thread; or memory, disk and network, which more workers do not make faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Backend = Literal["inline", "threads", "processes", "ray"]

PROCESS_START = 0.3
"""Seconds that a worker process takes to start."""
OPERATORS_SHARE = 0.1
"""The share of a built-in operator's time under the GIL."""
_CLEARLY = 1.2
"""How many times as fast as threads processes must be: they cost memory and a start."""
WORTHWHILE = 1.15
"""How many times as fast another backend must be."""
_TRAINS = 0.2
"""The consumer's own time per second of the stage from which it counts as a trainer, which should
not wait."""
_NO_WAIT = 1.01
"""The least gain of threads beside a trainer."""


_COPYING = "copying results back from workers"
SHARED = ("memory bandwidth", "the disk", "the network")
"""What all workers of a machine share, beside its cores."""
_NEARLY = 0.75
"""A shared resource is the bottleneck if it takes this share of the longest time."""


class Shared(NamedTuple):
    """Seconds per row of the resources that all workers of a machine share."""

    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def named(self, rows: float = 1.0) -> dict[str, float]:
        """The seconds by name, for `rows` rows; without resources that are not used."""
        every = zip(SHARED, self, strict=True)
        return {name: rows * seconds for name, seconds in every if seconds}


NOTHING_SHARED = Shared()


@dataclass(frozen=True)
class Load:
    """What a stage costs per row that comes in."""

    seconds: float
    cpu: float
    lock_share: float
    """The share of its time under the GIL."""
    nbytes: float
    """Bytes per row that it hands on."""
    objects: float = 0.0
    """Seconds per row to pickle and unpickle the Python objects that it hands on."""
    crossing: float = 1 / 4e9
    """Seconds per byte to receive from another process: measured, or else a usual value."""
    shared: Shared = NOTHING_SHARED
    queued: float = 0.0
    """Seconds of its time per row that it waited for a core; 0 where the system does not say."""

    @property
    def lock(self) -> float:
        """Seconds per row that threads hold the GIL: never while they wait for something."""
        return min(self.seconds * self.lock_share, self.cpu) / contended(self.lock_share)

    @property
    def back(self) -> float:
        """Seconds of the consumer per row that comes from another process."""
        return self.nbytes * self.crossing + self.objects / 2

    @property
    def there(self) -> float:
        """Seconds of a worker process per row."""
        return self.seconds + self.objects / 2


@dataclass(frozen=True)
class Prediction:
    """The predicted throughput of a stage, and the resource that limits it."""

    rows_per_second: float
    cpu_per_row: float
    limit: str
    """The bottleneck."""


def predict(load: Load, backend: Backend, workers: int, cores: int) -> Prediction:
    """How fast a stage is, if it is the bottleneck.

    >>> load = Load(seconds=0.004, cpu=0.004, lock_share=0.9, nbytes=0)
    >>> predict(load, "threads", 4, 4).limit, predict(load, "processes", 4, 4).rows_per_second
    ('the GIL', 1000.0)
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
        spent["the GIL"] = load.lock
    elif backend == "ray":  # its cores are not this machine's
        cpu = load.back
        spent = {"workers": load.there / workers, _COPYING: load.back}
    else:
        cpu += load.back + load.there - load.seconds
        spent = {"cores": cpu / cores, "workers": load.there / workers, _COPYING: load.back}
    if backend != "ray":  # its workers share the resources of other machines
        spent |= load.shared.named()
    return Prediction(1 / max(max(spent.values()), 1e-12), cpu, limit_of(spent))


def limit_of(spent: Mapping[str, float]) -> str:
    """The bottleneck, by the seconds that each resource takes. Workers that wait for a disk are
    busy as long as it is, so a shared resource counts as the bottleneck if it takes nearly as long.

    >>> limit_of({"workers": 10.0, "cores": 9.0, "the disk": 8.5})
    'the disk'
    """
    most = max(spent.values())
    shared = [name for name in SHARED if spent.get(name, 0.0) > _NEARLY * most]
    return max(shared or spent, key=lambda name: spent[name])


def contended(share: float) -> float:
    """The share of their speed that threads keep when each needs the GIL for `share` of its time:
    they hinder each other beyond taking turns. (Measured: 0.75 at a share of 0.62.)"""
    return 1 - 0.4 * share


@dataclass(frozen=True)
class Place:
    """The backend on which a stage should run, and the reason."""

    backend: Backend
    reason: str
    speeds: tuple[tuple[Backend, float], ...] = ()
    """How many times as fast as inline the stage would be, on each backend of workers that may run
    it; empty for an inline stage."""


def choose_place(
    load: Load,
    workers: int,
    *,
    left: float = float("inf"),
    meanwhile: float = 0.0,
    shares_generators: bool = False,
) -> Place:
    """The backend for a stage.

    `left`: seconds of its work that are still to come. `meanwhile`: the consumer's own time per
    second of the stage, which workers would overlap with. A function that draws from global
    generators cannot run on threads.

    >>> choose_place(Load(1e-3, 1e-3, 0.05, 0), 2).backend
    'threads'
    >>> choose_place(Load(1e-3, 1e-3, 0.95, 0), 2).backend
    'processes'
    >>> slow = Shared(network=0.9e-3)  # one worker alone uses nearly all of it
    >>> choose_place(Load(1e-3, 1e-4, 0.05, 0, shared=slow), 2).reason
    '1 ms per row, 900 µs of it on the network: workers would not help'
    """
    per_row = load.seconds
    share = min(load.lock_share, load.cpu / per_row) if per_row else load.lock_share
    # Amdahl: only one thread holds the GIL; workers overlap with the consumer's own time
    alone = contended(share) / (share + (1 - share) / workers)
    least = max(load.shared)
    most = per_row / least if least else float("inf")
    by_threads = _overlapped(min(alone, most), meanwhile)
    if shares_generators:
        by_threads = 1.0
    moved = max((load.there + load.back) / workers, load.back, least)
    by_processes = _overlapped(per_row / moved, meanwhile) if moved else 1.0
    seen = f"{duration(per_row)} per row, the GIL is held {share:.0%} of the time"
    if most < min(alone, workers):
        names = load.shared.named()
        name = max(names, key=lambda one: names[one])
        seen = f"{duration(per_row)} per row, {duration(least)} of it on {name}"
    if left < PROCESS_START / 2:
        why = f"{duration(per_row)} per row, {duration(left)} of work left: not worth a worker"
        return Place("inline", why)
    pays = left * (1 - 1 / by_processes) > 2 * PROCESS_START
    speeds: dict[Backend, float] = {}
    if not shares_generators:
        speeds["threads"] = by_threads
    if pays:
        speeds["processes"] = by_processes
    possible = tuple(speeds.items())
    if by_processes > _CLEARLY * by_threads and pays:
        why = f"{seen}: {by_processes:.1f}× as fast with processes, {by_threads:.1f}× with threads"
        return Place("processes", why, possible)
    if by_threads > (WORTHWHILE if meanwhile < _TRAINS else _NO_WAIT):
        return Place("threads", f"{seen}: {by_threads:.1f}× as fast with threads", possible)
    return Place("inline", f"{seen}: workers would not help")


def _overlapped(speed: float, meanwhile: float) -> float:
    """How many times as fast stage and consumer are together when the stage, `speed` times as fast,
    runs beside the consumer, which takes `meanwhile` seconds per second of the stage."""
    return (1 + meanwhile) / max(1 / speed, meanwhile)


def duration(seconds: float) -> str:
    """A duration as text.

    >>> duration(0.00042), duration(0.25), duration(3)
    ('420 µs', '250 ms', '3 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
