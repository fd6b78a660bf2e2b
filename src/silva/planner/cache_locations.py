"""Where the planner may cache rows: in memory, and on disk as far as the user allows."""

from __future__ import annotations

from dataclasses import dataclass

from silva.cost.machine import parse_bytes
from silva.cost.speeds import Speeds, disk_speeds, memory_speeds
from silva.errors import PlanError
from silva.run.memory import MemoryBudget


@dataclass(frozen=True)
class CacheLocation:
    """Memory or a folder, with its size and its speed."""

    folder: str | None
    """None for memory."""
    nbytes: int
    """Bytes that rows may take there."""
    speeds: Speeds


def disk_limit(cache: int | str) -> int | None:
    """The bytes that the planner may use on disk, as given by `loader(cache=…)`; None for none."""
    if isinstance(cache, bool) or not isinstance(cache, int | str):
        raise PlanError(
            f"loader(cache=…) takes 'auto', 'off' or an amount of disk such as '20GiB', not "
            f"{cache!r}"
        )
    return None if cache in ("auto", "off") else parse_bytes(cache)


def cache_locations(memory: MemoryBudget, disk: int | None) -> tuple[CacheLocation, ...]:
    """Memory, and the default folder of caches if `disk` bytes may be used there."""
    found = [CacheLocation(None, memory.cache_bytes(), memory_speeds())]
    if disk is not None:
        from silva.cache.inspect_folder import default_folder

        folder = default_folder()
        found.append(CacheLocation(str(folder), disk, disk_speeds(folder)))
    return tuple(found)
