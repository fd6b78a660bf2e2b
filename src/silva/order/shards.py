"""Shards: equal shares of an order, dealt out to any number of ranks that divides their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from silva.errors import PlanError

Ranges = tuple[tuple[int, int], ...]
"""Half-open runs of places in an order, ascending."""


def share(count: int, shards: int, shard: int) -> int:
    """The part of `count` that a shard gets: equal shares; the first shards take the remainder."""
    return count // shards + (shard < count % shards)


def shard_range(count: int, shards: int, shard: int) -> tuple[int, int]:
    """The run of places that a shard reads.

    >>> [shard_range(10, 3, s) for s in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    start = shard * (count // shards) + min(shard, count % shards)
    return start, start + share(count, shards, shard)


def unit_bounds(
    units: int, rows: np.ndarray | None, shards: int, shard: int
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Where a shard begins and ends, as (unit, row in it), and the number of shards that share its
    units row by row. `rows` holds the rows of each unit, in reading order.

    Where rows are counted, a shard has a contiguous run of rows; otherwise a run of units, or, with
    fewer units than shards, every S-th row.

    >>> unit_bounds(3, np.array([4, 4, 2]), 2, 1), unit_bounds(1, None, 2, 1)
    (((1, 1), (3, 0), 1), ((0, 0), (1, 0), 2))
    """
    if shards == 1:
        return (0, 0), (units, 0), 1
    if rows is not None:
        ends = np.cumsum(rows)
        start, stop = shard_range(int(ends[-1]) if units else 0, shards, shard)
        return _locate(ends, start), _locate(ends, stop), 1
    if units >= shards:
        start, stop = shard_range(units, shards, shard)
        return (start, 0), (stop, 0), 1
    return (0, 0), (units, 0), shards


def _locate(ends: np.ndarray, row: int) -> tuple[int, int]:
    """The (unit, row in it) of a row, given the running sum of the units' rows."""
    unit = int(np.searchsorted(ends, row, side="right"))
    return unit, row - (int(ends[unit - 1]) if unit else 0)


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
    """The same places, dealt out to another number of shards as equally as possible.

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
