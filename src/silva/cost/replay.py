"""Replays a measured run in the simulator, as it was or with other numbers.

The rows of a run go through its stages in rounds of one block. A block holds a worker while it
waits (for a disk, a network, a timer) and computes: on a core, partly under the GIL if a thread
runs it, and with a share of the memory bandwidth. The consumer's thread takes the blocks in
order, runs inline stages, copies results from processes, and does its own work; it computes on the
same cores. So nobody can be promised more than the machine has, however many workers there are.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from silva.cost.costs import AHEAD
from silva.cost.model import CONSUMER, SHARED, Placed, Work, loop_work, predict
from silva.cost.simulate import Hold, Resource, Task, simulate
from silva.cost.trace import Trace

_WAITS = "waits"
"""The resource of which there is always enough: time that passes."""
_MOST = 64
"""Workers of a stage that are simulated, at most, and rounds that are measured, at least: the
simulator's work for a block grows with the blocks that run beside it. What more workers change
follows from the busiest resource: nothing, or, where all that rows do is wait, a rate in
proportion."""
_LONG = 4 * _MOST
"""Blocks of an epoch from which on its beginning and its end, at which workers are idle, do not
matter."""
_PASSES = 4
"""Replays that find how long rows wait by themselves; each leaves a small part of the error."""

Use = dict[str, float]


class Own(NamedTuple):
    """What the consumer does itself for a row: batching, and the body of the loop."""

    seconds: float
    cpu: float = 0.0


@dataclass(frozen=True)
class Replayed:
    """A run that was simulated."""

    rows_per_second: float
    trace: Trace


@dataclass(frozen=True)
class Replay:
    """The stages of a run, from the sources up, their consumer, and the machine.

    >>> decode = Placed("decode", Work(4e-3, 4e-3), "threads", 8)
    >>> round(Replay((decode,), cores=2, own=Own(0.0)).run().rows_per_second)  # 8 workers, 2 cores
    500
    >>> round(Replay((decode,), cores=2, own=Own(2e-3, 2e-3)).run().rows_per_second)
    333
    """

    stages: tuple[Placed, ...]
    cores: int
    own: Own
    rows: float = 1.0
    """Rows that the consumer gets from one block."""
    blocks: int | None = None
    """Blocks of an epoch, at whose end the workers run dry; None where the next epoch begins before
    that."""

    def run(self) -> Replayed:
        """Simulates an epoch; of a long one, rounds until the rate is steady, and measures it.

        >>> wait = Placed("wait", Work(2e-3), "threads", 8)
        >>> round(Replay((wait,), cores=2, own=Own(0.0), blocks=9).run().rows_per_second)  # 8 and 1
        2250
        """
        if self._is_short:
            return self._simulate()
        few = replace(
            self, stages=tuple(replace(s, workers=min(s.workers, _MOST)) for s in self.stages)
        )
        found, limit = few._simulate(), self._limit()
        # rows that were made ahead before the rounds that are measured would count as faster
        steady = min(found.rows_per_second * limit / few._limit(), limit)
        return replace(found, rows_per_second=steady)

    @property
    def _is_short(self) -> bool:
        """Whether all blocks of an epoch are simulated, which are too few for many workers."""
        return self.blocks is not None and self.blocks < _LONG

    def _limit(self) -> float:
        """The rows per second that the busiest resource allows, if stages share the workers of
        each backend."""
        widths = self._pools()
        stages = [replace(one, workers=widths.get(_pool(one), 0)) for one in self.stages]
        return predict(stages, self.cores, loop_work(*self.own)).rows_per_second

    def _simulate(self) -> Replayed:
        if self._is_short:
            assert self.blocks is not None
            trace = simulate(self._resources(), self._tasks(self.blocks - 1))
            return Replayed(self.blocks * self.rows / max(trace.makespan, 1e-12), trace)
        widths = self._pools().values()
        burst = math.lcm(*widths)
        if burst > _MOST:  # pools of different widths are seldom in step
            burst = max(widths)
        # where workers are in step, blocks come in bursts: a whole number of them is measured
        counted = burst * math.ceil(_MOST / burst)
        ahead = self._ahead(0)
        trace = simulate(self._resources(), self._tasks(counted + 2 * ahead))
        first, last = (trace.finished[_take(ahead + k)] for k in (0, counted))
        return Replayed(counted * self.rows / max(last - first, 1e-12), trace)

    def without_contention(self) -> Replay:
        """The same run with the seconds that rows take if nobody is in their way: a row takes
        longer than that beside others, which the replay must show by itself. Of several answers
        that fit, the one with the shortest waits is taken: it promises least."""
        measured = [max(one.work.seconds - one.work.queued, one.work.cpu) for one in self.stages]
        # where the waits for a core were measured, they are left out here as well
        known = any(stage.work.queued for stage in self.stages)
        found = replace(
            self,
            cores=sys.maxsize if known else self.cores,
            stages=tuple(
                replace(one, work=one.work.taking(one.work.cpu)._replace(queued=0.0))
                for one in self.stages
            ),
        )
        for _ in range(_PASSES):
            seen = found._seconds_per_row(found._simulate().trace)
            stages = [
                replace(stage, work=_shorter(stage.work, took - seconds))
                for stage, took, seconds in zip(found.stages, seen, measured, strict=True)
            ]
            found = replace(found, stages=tuple(stages))
        return replace(found, cores=self.cores)

    def _seconds_per_row(self, trace: Trace) -> list[float]:
        """How long each stage took for a row."""
        spent: dict[str, list[float]] = defaultdict(list)
        for task, seconds in _task_seconds(trace).items():
            spent[task.rpartition(" ")[0]].append(seconds)
        return [  # the median: the first and the last rounds are alone
            median(spent[s.name]) / max(s.rows * self.rows, 1e-12)
            if spent[s.name]
            else s.work.seconds
            for s in self.stages
        ]

    def _pools(self) -> dict[str, int]:
        """The workers of each backend; its stages share them."""
        found: dict[str, int] = {}
        for stage in self.stages:
            if stage.backend != "inline":
                name = _pool(stage)
                found[name] = max(found.get(name, 1), stage.workers)
        return found

    def _resources(self) -> list[Resource]:
        shared = ("the GIL", *SHARED)
        return [
            Resource(_WAITS, math.inf),
            Resource(CONSUMER),
            Resource("the cores", self.cores, policy="fair"),
            *(Resource(name, policy="fair") for name in shared),
            *(Resource(name, width) for name, width in self._pools().items()),
        ]

    def _ahead(self, stage: int) -> int:
        """Rounds between a stage and the consumer, at most."""
        return sum(
            AHEAD * max(one.workers, 1) + 1
            for one in self.stages[stage:]
            if one.backend != "inline"
        )

    def _tasks(self, rounds: int) -> Iterator[Task]:
        for k in range(rounds + 1):
            before: list[str] = []
            mine: list[tuple[str, list[Use]]] = []
            """Work for the consumer's thread that waits until a worker needs its result."""
            for number, stage in enumerate(self.stages):
                uses = [_use(stage, self.rows)]
                if stage.backend == "inline":
                    mine.append((stage.name, uses))
                    continue
                last = k - self._ahead(number)
                room = [_take(last)] if last >= 0 else []
                for name, own in mine:  # the input of this stage is made on the consumer's thread
                    yield Task(f"{name} {k}", own, before + room, holds=[Hold(CONSUMER)])
                    before = [f"{name} {k}"]
                mine = []
                name = f"{stage.name} {k}"
                yield Task(name, uses, before + room, holds=[Hold(_pool(stage))])
                before = [name]
            if k:
                before.append(_take(k - 1))
            for name, own in mine:
                yield Task(f"{name} {k}", own, before, holds=[Hold(CONSUMER)])
                before = [f"{name} {k}"]
            yield Task(_take(k), list(self._taking()), before, holds=[Hold(CONSUMER)])

    def _taking(self) -> Iterator[Use]:
        """What the consumer does with the blocks of a round."""
        away = [stage for stage in self.stages if stage.backend in ("processes", "ray")]
        copies = sum(stage.rows * stage.work.back for stage in away)
        loop = loop_work(*self.own)
        yield {"the cores": self.rows * (copies + loop.cpu), "the GIL": self.rows * loop.lock}
        yield {_WAITS: self.rows * (loop.seconds - loop.cpu)}


def _take(k: int) -> str:
    return f"the loop {k}"


def _pool(stage: Placed) -> str:
    return "the actors" if stage.backend == "ray" else f"the {stage.backend}"


def _use(stage: Placed, rows: float) -> Use:
    """What a block of a stage needs. Its rows wait and compute in turn, so that workers are not in
    step: all that they need is spread evenly over the block's time."""
    work, count = stage.work, stage.rows * rows
    if stage.backend == "ray":  # its cores are not this machine's
        return {_WAITS: count * (work.seconds + work.pickling)}
    seconds, cpu, lock = max(work.seconds, work.cpu), work.cpu, work.lock
    if stage.backend == "processes":
        cpu, lock, seconds = cpu + work.pickling, 0.0, seconds + work.pickling
    elif stage.backend == "threads" and stage.workers > 1:
        lock = work.gil
    used = {_WAITS: seconds, "the cores": cpu, "the GIL": lock, **work.shared}
    return {name: count * amount for name, amount in used.items() if amount > 0}


def _task_seconds(trace: Trace) -> dict[str, float]:
    """Seconds from the start of each task's first use to the end of its last."""
    start: dict[str, float] = {}
    end: dict[str, float] = {}
    for span in trace.spans:
        if not span.held:
            start[span.name] = min(start.get(span.name, span.start), span.start)
            end[span.name] = max(end.get(span.name, span.end), span.end)
    return {name: end[name] - start[name] for name in start}


def _shorter(work: Work, seconds: float) -> Work:
    """The work of a row that waits so much less; it never takes less than its CPU seconds."""
    return work.taking(max(work.seconds - seconds, work.cpu))
