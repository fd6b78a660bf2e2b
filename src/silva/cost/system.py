"""Predicts the throughput of all stages and their consumer together.

Stages on threads share one pool of threads and the GIL, stages in processes one pool of processes;
an inline stage shares the consumer's thread; all share the cores, the memory bandwidth, the disk
and the network. Stages on Ray run on actors with cores of their own, and share the
consumer's thread, which copies their results back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from silva.cost.model import Backend, Load, limit_of

CONSUMER = "the consumer's thread"


@dataclass(frozen=True)
class Loaded:
    """A stage with its load, where it runs."""

    name: str
    load: Load
    backend: Backend
    workers: int
    rows: float = 1.0
    """Rows that enter the stage per row that the consumer gets."""

    def uses(self, cores: int) -> dict[str, float]:
        """Seconds of each resource per row that the consumer gets."""
        load, rows, width = self.load, self.rows, max(self.workers, 1)
        if self.backend == "ray":
            back = rows * load.back
            there = {"the actors": rows * load.there / width}
            return {"the cores": back / cores, CONSUMER: back, **there}
        used = {"the cores": rows * load.cpu / cores, **load.shared.named(rows)}
        if self.backend == "inline":
            return {**used, CONSUMER: rows * load.seconds}
        if self.backend == "threads":
            used["the GIL"] = rows * load.lock
            return {**used, "the threads": rows * load.seconds / width}
        used["the cores"] += rows * (load.back + load.there - load.seconds) / cores
        used[CONSUMER] = rows * load.back
        return {**used, "the processes": rows * load.there / width}


@dataclass(frozen=True)
class Throughput:
    """The predicted throughput of all stages together, and what limits it."""

    rows_per_second: float
    limit: str
    """The bottleneck: the resource that is used most."""
    stage: str | None
    """The stage that uses most of it; None for the consumer itself."""


def throughput(stages: Sequence[Loaded], cores: int, consumer: float = 0.0) -> Throughput:
    """Rows per second that the consumer gets, which takes `consumer` seconds for each itself.

    >>> decode = Loaded("decode", Load(4e-3, 4e-3, 0.1, 0), "threads", 2)
    >>> throughput([decode], cores=2)
    Throughput(rows_per_second=500.0, limit='the cores', stage='decode')
    >>> throughput([decode], cores=2, consumer=5e-3).limit
    "the consumer's thread"
    """
    spent: dict[str, dict[str | None, float]] = {CONSUMER: {None: consumer}}
    for stage in stages:
        for resource, seconds in stage.uses(max(cores, 1)).items():
            used = spent.setdefault(resource, {})
            used[stage.name] = used.get(stage.name, 0.0) + seconds
    totals = {name: sum(by_stage.values()) for name, by_stage in spent.items()}
    limit = limit_of(totals)
    by_stage = spent[limit]
    stage_name = max(by_stage, key=lambda name: by_stage[name])
    return Throughput(1 / max(max(totals.values()), 1e-12), limit, stage_name)
