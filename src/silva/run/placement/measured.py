"""What was measured of a stage: its counters, and predictions beside what was then measured.

A prediction is the throughput of a stage that is the bottleneck. So it can only be checked while
the consumer waits for the stage: otherwise the measurement is a lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from silva.cost.costs import AHEAD, BLOCK_SECONDS, ENOUGH_BLOCKS, ERRORS, Cost, without_queue
from silva.cost.disk import Disk
from silva.cost.experiment import ENOUGH, LIMITS, Progress
from silva.cost.gil import GilProbe
from silva.cost.memory_bandwidth import memory_seconds
from silva.cost.model import Backend, Prediction
from silva.io.incoming import NOTHING, Incoming
from silva.physical.stage.stage import Result


def measuring(workers: int) -> int:
    """Blocks of a measurement, at least: some of each worker."""
    return max(ENOUGH_BLOCKS, 3 * workers)


def settling(workers: int) -> int:
    """Blocks that are not measured after a change: some were begun before it, and the first of each
    worker imports libraries."""
    return AHEAD * workers + 1


class Counters(NamedTuple):
    """The counters of a stage at one moment."""

    rows: int
    elapsed: float
    starved: float
    busy: float
    cpu: float
    blocks: int
    ready: int = 0
    """Rows that are done and wait for the consumer."""
    came: Incoming = NOTHING
    moved: int = 0
    """Bytes that were read from memory or written to it; `came` are bytes from disks and
    networks."""
    queued: float = 0.0
    """Seconds of `busy` that workers waited for a core."""

    @property
    def progress(self) -> Progress:
        """The counters of an experiment, on the clock of the run."""
        return Progress(self.rows, self.elapsed, self.starved, self.cpu, self.blocks)

    def pace(self, since: Counters) -> float | None:
        """Rows a second since an earlier moment, the consumer's own time included."""
        elapsed = self.elapsed - since.elapsed
        return (self.rows - since.rows) / elapsed if elapsed > 0 else None


@dataclass(frozen=True)
class Seen:
    """What a stage did between two moments."""

    rows_per_second: float
    limits: bool
    """Whether the stage was the bottleneck; otherwise it could have done more."""


@dataclass
class Forecast:
    """One prediction, and the counters between which it is checked."""

    prediction: Prediction
    backend: Backend
    workers: int
    since: Counters
    until: Counters | None = None
    """None while it is open."""

    def seen(self, now: Counters) -> Seen | None:
        """What was measured since; None if that is too little."""
        end = self.until or now
        rows, elapsed = end.rows - self.since.rows, end.elapsed - self.since.elapsed
        made = rows + end.ready - self.since.ready
        if end.blocks - self.since.blocks < measuring(self.workers):
            return None
        if self.backend == "inline":
            busy = end.busy - self.since.busy
            return Seen(rows / busy, True) if busy > BLOCK_SECONDS else None
        if elapsed < BLOCK_SECONDS:
            return None
        waited = end.starved - self.since.starved
        return Seen(made / elapsed, waited > LIMITS * elapsed)

    def error(self, now: Counters) -> float | None:
        """How much too high it was, as a share of what was measured; negative where it was too low.
        None where nothing contradicts it.

        >>> start = Counters(rows=0, elapsed=0.0, starved=0.0, busy=0.0, cpu=0.0, blocks=0)
        >>> forecast = Forecast(Prediction(120.0, 0.0, "cores"), "threads", 2, start)
        >>> end = Counters(rows=100, elapsed=1.0, starved=0.9, busy=2.0, cpu=2.0, blocks=50)
        >>> round(forecast.error(end), 2)
        0.2
        >>> forecast.error(end._replace(starved=0.0)) is None  # no more was asked for
        True
        >>> forecast.since = start._replace(ready=40)  # some of the rows were made before
        >>> round(forecast.error(end), 2)
        1.0
        """
        seen = self.seen(now)
        if seen is None or not seen.rows_per_second:
            return None
        error = self.prediction.rows_per_second / seen.rows_per_second - 1
        return error if seen.limits or error < 0 else None

    def uncertainty(self, now: Counters, spread: float) -> float:
        """The error, as a share, within which a measurement does not contradict it: two standard
        errors of both, given by how much blocks differ from each other (`spread`, the standard
        deviation as a share), and a block of each worker that is only partly counted.

        >>> start = Counters(rows=0, elapsed=0.0, starved=0.0, busy=0.0, cpu=0.0, blocks=16)
        >>> forecast = Forecast(Prediction(120.0, 0.0, "cores"), "threads", 2, start)
        >>> [round(forecast.uncertainty(start._replace(blocks=16 + n), 0.3), 2) for n in (8, 800)]
        [0.53, 0.18]
        """
        end = self.until or now
        after = max(end.blocks - self.since.blocks, 1)
        width = 0 if self.backend == "inline" else self.workers
        before = max(self.since.blocks - settling(width), 1)
        return ERRORS * spread * math.sqrt(1 / before + 1 / after) + width / after


@dataclass
class Forecasts:
    """The predictions of one stage, each checked by the part of the run that came after it."""

    made: list[Forecast] = field(default_factory=list)
    first: Forecast | None = None
    """The prediction by which the backend was chosen, checked by all that came after."""
    settling: int = 0
    """Blocks that are not measured yet, since workers have just started."""
    not_before: int = 0
    """The number of blocks before the next prediction of a stage that has changed."""

    def due(self, now: Counters) -> bool:
        """Whether the next prediction is due; intervals double."""
        if not self.made:
            return now.blocks >= self.not_before
        last = self.made[-1]
        if self.settling or now.blocks - last.since.blocks < ENOUGH_BLOCKS:
            return False
        before = last.since.elapsed - (self.first.since.elapsed if self.first else 0.0)
        return now.elapsed - last.since.elapsed > max(ENOUGH, before)

    def add(self, prediction: Prediction, backend: Backend, workers: int, now: Counters) -> None:
        if self.made:
            self.made[-1].until = now
        made = Forecast(prediction, backend, workers, now)
        if self.first is None:
            self.first = Forecast(prediction, backend, workers, now)
            self.settling = settling(workers) if backend != "inline" else 0
        self.made.append(made)

    def learn(self, now: Counters, starting: bool) -> None:
        """A block is done; while workers start, the measurement begins anew."""
        if self.first is None or len(self.made) > 1:
            return
        if starting or self.settling:
            self.settling -= not starting
            self.first.since = self.made[0].since = now

    def forget(self, not_before: int = 0) -> None:
        """The stage or its backend has changed: drops all predictions."""
        self.made, self.first, self.not_before = [], None, not_before

    def errors(self, now: Counters) -> list[float]:
        """The errors of all predictions that could be checked."""
        found = [forecast.error(now) for forecast in self.made]
        return [error for error in found if error is not None]


@dataclass
class LaneStats:
    """Counters of a stage, from the start of the loader."""

    blocks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    busy: float = 0.0
    """Seconds that workers spent in the stage."""
    cpu: float = 0.0
    queued: float = 0.0
    """Seconds of `busy` that workers waited for a core."""
    in_line: float = 0.0
    """The same, each divided by the workers in use: seconds by which the stage took longer."""
    came: Incoming = NOTHING
    """Bytes from disks and networks."""
    moved: int = 0
    """The least number of bytes that were read from memory or written to it."""
    keeping: float = 0.0
    """Seconds that the consumer spent on looking rows up in a cache and putting them into it."""
    elapsed: float = 0.0
    """Seconds that the stage was being read, the consumer's own time included."""
    own_cpu: float = 0.0
    """CPU seconds of the consumer while it did not wait for a block."""
    own_queued: float = 0.0
    """Seconds that its thread waited for a core meanwhile."""
    starved: float = 0.0
    """Seconds that the consumer waited for the stage."""
    inline: float = 0.0
    """Seconds of `busy` that the consumer ran the stage itself."""
    blocked: int = 0
    """Times that the stage could not go ahead because its share of memory was full."""
    most_bytes: int = 0
    """The most bytes of finished blocks that were ever waiting for the consumer."""
    queue_fill: float = 0.0
    """The average number of finished blocks that wait when the consumer asks for one."""
    idle: int = 0
    """Times that fewer blocks than workers were not done when the consumer asked for one: a worker
    had nothing to do."""
    ready: int = 0
    """Rows done and waiting for the consumer now."""
    followed: int = 0
    """Blocks since the steps of the stage changed last."""
    again: int = 0
    """Blocks since then that were run again in the order written, because a row failed."""
    steps: list[Cost] = field(default_factory=list)
    """The cost of reading, and then of each step."""
    late: Cost = field(default_factory=Cost)
    """The cost of reading columns that are only read after the filters."""

    @property
    def worked(self) -> float:
        """Seconds that workers spent in the stage, without those that they waited for a core."""
        return max(self.busy - self.queued, self.cpu)

    def now(self) -> Counters:
        """The counters at this moment."""
        return Counters(
            self.rows_in, self.elapsed, self.starved, self.busy, self.cpu, self.blocks, self.ready,
            self.came, self.moved, self.queued,
        )  # fmt: skip

    def add(self, result: Result, rows_in: int, nbytes: int) -> None:
        """Counts a finished block of `nbytes`."""
        uses = result.uses if result.late is None else (*result.uses, result.late)
        self.blocks += 1
        self.rows_in += rows_in
        self.rows_out += len(result.block)
        self.bytes_out += nbytes
        self.busy += result.seconds
        self.cpu += result.cpu
        self.queued += result.queued
        self.moved += sum(use.moved for use in uses)
        self.came = self.came.plus(result.came).plus(Incoming(sum(use.disk for use in uses)))
        self.followed += 1
        self.again += result.again

    def add_steps(self, result: Result, watched: GilProbe | None) -> None:
        """Adds the cost of each step, with what the probe saw that `watched` the block."""
        if self.blocks == 2 and result.uses:
            self.forget_steps()  # in the first block, libraries were imported
        if len(self.steps) < len(result.uses):
            self.steps = [Cost() for _ in result.uses]
        late = [] if result.late is None else [result.late]
        used = without_queue([*result.uses, *late], result.queued)
        costs = [*self.steps[: len(result.uses)], *([self.late] if late else [])]
        for cost, use in zip(costs, used, strict=True):
            cost.add(use)
        for cost, use in zip(self.steps, result.uses, strict=False):
            if watched is not None:
                held, looked = watched.held(use.began, use.began + use.seconds)
                cost.locked, cost.watched = cost.locked + held, cost.watched + looked
        if self.steps:
            self.steps[0].disk += result.came.disk
            self.steps[0].network += result.came.network.nbytes

    def forget_steps(self) -> None:
        """Drops the costs of the steps."""
        self.steps, self.late = [], Cost()

    def see_queue(self, done: int) -> None:
        """Counts the finished blocks that wait when the consumer asks for one."""
        self.queue_fill += (done - self.queue_fill) / (self.blocks + 1)


class SharedSeconds(NamedTuple):
    """Seconds per row of the resources that all workers of a machine share."""

    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0


def shared_seconds(
    before: Counters, now: Counters, workers: int, disk: Disk | None
) -> SharedSeconds:
    """Seconds per row that a stage took of memory bandwidth, the disk and the network between two
    moments. Bytes are counted per block; what a byte takes is measured beside the run or found in
    it, and is never more than the time that passed."""
    rows, blocks = now.rows - before.rows, now.blocks - before.blocks
    if rows <= 0:
        return SharedSeconds()
    moved, busy = now.moved - before.moved, now.busy - before.busy
    memory = memory_seconds(moved, moved / blocks, within=busy / max(workers, 1))
    of_disk, of_network = device_seconds(before, now, disk)
    of_disk *= now.came.disk - before.came.disk
    of_network *= now.came.network.nbytes - before.came.network.nbytes
    most = now.elapsed - before.elapsed
    return SharedSeconds(*(min(seconds, most) / rows for seconds in (memory, of_disk, of_network)))


def device_seconds(before: Counters, now: Counters, disk: Disk | None) -> tuple[float, float]:
    """Seconds per byte of the disk and of the network; 0 where that is not known."""
    of_disk = 0.0 if disk is None else disk.seconds
    elapsed = now.elapsed - before.elapsed
    return of_disk, now.came.network.line(before.came.network, elapsed)
