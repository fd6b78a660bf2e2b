"""What a stage takes of what all workers of a machine share: memory, disks, the network.

Bytes are counted for each block. What a byte takes is measured beside the run, or found in it, and
never taken to be more than the time that passed.
"""

from __future__ import annotations

from silva.io.incoming import Incoming
from silva.optimize.model import NOTHING_SHARED, Shared
from silva.physical.stage import Result
from silva.profile.bandwidth import memory_seconds
from silva.profile.costs import StepUse
from silva.profile.disk import Disk
from silva.run.forecast import Counters

_MUCH = 1 << 20
"""Bytes of a disk: with less, it does not matter how fast it is."""


def moved_by(result: Result) -> int:
    """Bytes that the steps have read from memory or written to it, at least."""
    return sum(use.moved for use in _uses(result))


def came_for(result: Result) -> Incoming:
    """What came from outside."""
    return result.came.plus(Incoming(sum(use.disk for use in _uses(result))))


def _uses(result: Result) -> tuple[StepUse, ...]:
    return result.uses if result.late is None else (*result.uses, result.late)


def taken(before: Counters, now: Counters, workers: int, disk: Disk | None) -> Shared:
    """For a row, between two moments."""
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
    """That a byte takes of the disk and of the network, as far as it is known."""
    of_disk = 0.0 if disk is None or now.came.disk < _MUCH else disk.seconds
    elapsed = now.elapsed - before.elapsed
    return of_disk, now.came.network.line(before.came.network, elapsed)
