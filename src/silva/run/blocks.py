"""How large the blocks of a stage are, and how many of them are in flight."""

from __future__ import annotations

from typing import NamedTuple

from silva.run.lane_stats import LaneStats

_BLOCK_SECONDS = 0.05
"""Long enough to hide what a block costs to hand over, short enough to start and stop quickly."""
_MOST_SECONDS = 1.0
"""With actors, a block takes so long for each of them, up to this: the trainer's own thread works
half a millisecond for a block, and the more actors there are, the more often it would have to."""
_SHARES = 4
"""Blocks for each actor that what is left of an epoch is enough for: they end at about one time."""
_AT_ONCE = 128
"""Rows that are waited for together: two workers then have as many requests under way as there may
be, and if one row cannot be read, so many are read again, one by one."""
_BLOCK_BYTES = 8 << 20
_MOST_ROWS = 1 << 17
_MOST_PYTHON_ROWS = 1 << 13
"""Lists of more Python objects than this fall out of the CPU's cache."""
_MOST_BLOCKS = 256
"""In flight at once: each look at the window takes time."""
_FIRST_BLOCKS = 16
"""By then blocks have found their size."""
_FIRST_ROWS = 4


class RowCost(NamedTuple):
    seconds: float
    waits: float
    """Of these, seconds in which other rows of the block are waited for as well."""
    nbytes: float


class Blocks:
    def __init__(self, stats: LaneStats, budget: int, calls_python: bool, alone: bool) -> None:
        """`alone`: the consumer does the first ones itself, one at a time. On workers several go
        ahead at once, before anything is known of a row's size."""
        self.stats = stats
        self.budget = budget
        self.align = 1
        """Rows of a batch, where rows stay one to one."""
        self.need_rows = 0
        """Rows that the consumer takes at once; a window should hold two such helpings."""
        self.rows = _FIRST_ROWS if alone else 1
        self._bytes_per_row = 0.0
        self._most_rows = _MOST_PYTHON_ROWS if calls_python else _MOST_ROWS

    def learn(self, row: RowCost, weight: float, actors: int, left: int | None) -> None:
        """Takes note of what a row took lately, and of its bytes in the latest block; how many
        actors share the rows that are left (0: local workers do)."""
        self._bytes_per_row = max(
            row.nbytes, self._bytes_per_row + weight * (row.nbytes - self._bytes_per_row)
        )
        if self.stats.blocks == 1:
            return
        by_bytes = min(_BLOCK_BYTES, self.budget // 8) / max(self._bytes_per_row, 1e-9)
        by_time = _by_time(row, actors, left)
        self.rows = max(1, int(min(by_time, by_bytes, self._most_rows, self.rows * 4)))

    def next_rows(self) -> int:
        """Rows of the next block."""
        rows = self.rows
        if self.align > 1 and rows >= self.align:
            rows -= rows % self.align
        elif self.align > 1 and rows * 4 >= self.align:
            rows = self.align
        return max(rows, 1)

    def admits(
        self, blocks: int, rows: int, done_bytes: int, running_rows: int, width: int, ahead: int
    ) -> bool:
        """Whether one more block may go ahead, with so many in flight or waiting, on so many
        workers (0: on the consumer's own thread), each of which may have so many."""
        self.stats.most_bytes = max(self.stats.most_bytes, done_bytes)
        if blocks == 0:
            return True  # the head of the order always may
        if width == 0:
            return False
        expected = done_bytes + (running_rows + self.next_rows()) * self._bytes_per_row
        if expected > self.budget:
            self.stats.blocked += 1
            return False
        if blocks < ahead * width + 1:
            return True
        if self.stats.blocks < _FIRST_BLOCKS or blocks >= _MOST_BLOCKS:
            return False  # blocks are small as long as little is known: no need for many
        return rows < ahead * self.need_rows + width * self.next_rows()


def _by_time(row: RowCost, actors: int, left: int | None) -> float:
    seconds = max(row.seconds, 1e-9)
    rows = _BLOCK_SECONDS / seconds
    if row.waits:
        rows = max(rows, min(_BLOCK_SECONDS / max(row.seconds - row.waits, 1e-9), _AT_ONCE))
    if actors:
        longer = min(_BLOCK_SECONDS * actors, _MOST_SECONDS) / seconds
        share = longer if left is None else left / (_SHARES * actors)
        rows = max(rows, min(longer, share))
    return rows
