"""Where the planner may keep rows: in memory, and on as much of the disk as it was given."""

from __future__ import annotations

from silva.errors import PlanError
from silva.planning.units import Room
from silva.profile.machine import parse_bytes
from silva.profile.speeds import disk_speeds, memory_speeds
from silva.run.cache_folder import default_folder
from silva.run.executor import Executor


def disk_of(cache: int | str) -> int | None:
    """The bytes that the planner may keep on disk, by `loader(cache=…)`."""
    if isinstance(cache, bool) or not isinstance(cache, int | str):
        raise PlanError(f"cache is 'auto', 'off' or an amount of disk, not {cache!r}")
    return None if cache in ("auto", "off") else parse_bytes(cache)


def rooms(executor: Executor, disk: int | None) -> tuple[Room, ...]:
    """Where the planner may keep rows."""
    found = [Room(None, executor.room, memory_speeds())]
    if disk is not None:
        folder = default_folder()
        found.append(Room(str(folder), disk, disk_speeds(folder)))
    return tuple(found)
