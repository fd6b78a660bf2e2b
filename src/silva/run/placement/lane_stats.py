"""Counters of a stage, and what it takes of what all workers of a machine share."""

from __future__ import annotations

from dataclasses import dataclass, field

from silva.cost.costs import Cost, StepUse
from silva.cost.disk import Disk
from silva.cost.memory_bandwidth import memory_seconds
from silva.cost.model import NOTHING_SHARED, Shared
from silva.io.incoming import NOTHING, Incoming
from silva.physical.stage.stage import Result
from silva.run.placement.forecast import Counters

_MUCH_DISK_BYTES = 1 << 20
"""Below this, the speed of the disk does not matter."""


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
    came: Incoming = NOTHING
    """Bytes from disks and networks."""
    moved: int = 0
    """The least number of bytes that were read from memory or written to it."""
    keeping: float = 0.0
    """Seconds that the consumer spent on looking rows up in a cache and putting them into it."""
    elapsed: float = 0.0
    """Seconds that the stage was being read, the consumer's own time included."""
    starved: float = 0.0
    """Seconds that the consumer waited for the stage."""
    blocked: int = 0
    """Times that the stage could not go ahead because its share of memory was full."""
    most_bytes: int = 0
    """The most bytes of finished blocks that were ever waiting for the consumer."""
    queue_fill: float = 0.0
    """The average number of finished blocks that wait when the consumer asks for one."""
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


def moved_by(result: Result) -> int:
    """The least number of bytes that the steps have read from memory or written to it."""
    return sum(use.moved for use in _uses(result))


def came_for(result: Result) -> Incoming:
    """Bytes that came from disks and over the network."""
    return result.came.plus(Incoming(sum(use.disk for use in _uses(result))))


def _uses(result: Result) -> tuple[StepUse, ...]:
    return result.uses if result.late is None else (*result.uses, result.late)


def shared_seconds(before: Counters, now: Counters, workers: int, disk: Disk | None) -> Shared:
    """Seconds per row that a stage took of memory bandwidth, the disk and the network between two
    moments. Bytes are counted per block; what a byte takes is measured beside the run or found in
    it, and is never more than the time that passed."""
    rows, blocks = now.rows - before.rows, now.blocks - before.blocks
    if rows <= 0:
        return NOTHING_SHARED
    moved, busy = now.moved - before.moved, now.busy - before.busy
    memory = memory_seconds(moved, moved / blocks, within=busy / max(workers, 1))
    of_disk, of_network = device_seconds(before, now, disk)
    of_disk *= now.came.disk - before.came.disk
    of_network *= now.came.network.nbytes - before.came.network.nbytes
    most = now.elapsed - before.elapsed
    return Shared(*(min(seconds, most) / rows for seconds in (memory, of_disk, of_network)))


def device_seconds(before: Counters, now: Counters, disk: Disk | None) -> tuple[float, float]:
    """Seconds per byte of the disk and of the network; 0 where that is not known."""
    of_disk = 0.0 if disk is None or now.came.disk < _MUCH_DISK_BYTES else disk.seconds
    elapsed = now.elapsed - before.elapsed
    return of_disk, now.came.network.line(before.came.network, elapsed)
