"""How large the blocks of a stage are, and how many of them are in flight."""

from __future__ import annotations

from typing import NamedTuple

from silva.run.placement.lane_stats import LaneStats

_BLOCK_SECONDS = 0.05
"""Long enough to hide the cost of handing a block over, short enough to start and stop quickly."""
_MOST_SECONDS = 1.0
"""The longest block on actors, whose blocks grow with their number: the trainer's thread spends
half a millisecond on each block."""
_SHARES = 4
"""Blocks per actor that are left of an epoch, at least, so that actors end at about the same
time."""
_AT_ONCE = 128
"""Rows that are requested together: two workers then use all requests that may be open, and if one
row cannot be read, this many are read again one by one."""
_BLOCK_BYTES = 8 << 20
_MOST_ROWS = 1 << 17
_MOST_PYTHON_ROWS = 1 << 13
"""Lists of more Python objects than this do not fit the CPU's cache."""
_MOST_BLOCKS = 256
"""The most blocks in flight: each look at the window takes time."""
_FIRST_BLOCKS = 16
"""Blocks after which the block size has settled."""
_FIRST_ROWS = 4


class RowCost(NamedTuple):
    seconds: float
    waits: float
    """Those of the seconds in which other rows of the block are waited for as well."""
    nbytes: float


class Blocks:
    def __init__(self, stats: LaneStats, budget: int, calls_python: bool, alone: bool) -> None:
        """`alone`: the consumer runs the first blocks itself, one at a time. On workers several
        start at once, before the size of a row is known."""
        self.stats = stats
        self.budget = budget
        self.align = 1
        """Rows of a batch, if the stage neither drops nor adds rows."""
        self.need_rows = 0
        """Rows that the consumer takes at once; a window should hold twice as many."""
        self.rows = _FIRST_ROWS if alone else 1
        self._bytes_per_row = 0.0
        self._most_rows = _MOST_PYTHON_ROWS if calls_python else _MOST_ROWS

    def expect(self, rows: int, *, aligned: bool) -> None:
        """The consumer takes so many rows at once; `aligned`: rows stay one to one, so that blocks
        can end where batches do."""
        self.need_rows = rows
        if aligned:
            self.align = rows

    def learn(self, row: RowCost, weight: float, actors: int, left: int | None) -> None:
        """Adapts the block size to the recent cost of a row; `actors` share the rows that are left
        (0: local workers)."""
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
        """Whether one more block may be submitted, with `blocks` in flight or waiting, on `width`
        workers (0: the consumer's thread) that may have `ahead` blocks each."""
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
