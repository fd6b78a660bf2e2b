"""Equal shares of an order: S logical shards, dealt out to any number of ranks that divides S."""

from __future__ import annotations

from collections.abc import Sequence

from silva.errors import PlanError

Ranges = tuple[tuple[int, int], ...]
"""Half-open runs of places in an order, ascending."""


def share(count: int, shards: int, shard: int) -> int:
    """How many of `count` things shard `shard` has: equal shares, the first ones take the rest."""
    return count // shards + (shard < count % shards)


def shard_range(count: int, shards: int, shard: int) -> tuple[int, int]:
    """The run of places that a shard owns.

    >>> [shard_range(10, 3, s) for s in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    start = shard * (count // shards) + min(shard, count % shards)
    return start, start + share(count, shards, shard)


def shards_of_rank(shards: int, rank: int, world: int) -> range:
    """The shards that a rank reads."""
    if shards % world:
        raise PlanError(
            f"{shards} shards cannot be dealt out evenly to {world} ranks: choose "
            f"options(shards=…) as a multiple of {world}"
        )
    each = shards // world
    return range(rank * each, (rank + 1) * each)


def redistribute(remaining: Sequence[Ranges], shards: int) -> list[Ranges]:
    """The same places, dealt out to another number of shards as equally as can be.

    >>> redistribute([((2, 6),), ((8, 12),)], 3)
    [((2, 5),), ((5, 6), (8, 10)), ((10, 12),)]
    """
    runs = [run for ranges in remaining for run in ranges if run[1] > run[0]]
    total = sum(stop - start for start, stop in runs)
    out: list[Ranges] = []
    for shard in range(shards):
        need = share(total, shards, shard)
        mine: list[tuple[int, int]] = []
        while need:
            start, stop = runs[0]
            used = min(need, stop - start)
            mine.append((start, start + used))
            need -= used
            if start + used == stop:
                runs.pop(0)
            else:
                runs[0] = (start + used, stop)
        out.append(tuple(mine))
    return out
