"""The cost of a step, added up from the blocks that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from silva.cost.bytes_fit import Line
from silva.cost.gil import WATCHED_SECONDS
from silva.operators.meter import Metered

BLOCK_SECONDS = 0.05
"""Seconds that a block takes: long enough to hide the cost of handing it over, short enough to
start and stop quickly. Less work than that is too little for a measurement."""
BLOCK_BYTES = 8 << 20
"""Bytes of a block, at most: what is larger does not stay in the CPU's cache between two steps."""
ENOUGH_BLOCKS = 8
"""Blocks of a measurement, at least: the error of fewer is not known, and the first are small."""
ERRORS = 2.0
"""Standard errors by which two measurements of the same may differ (95 %)."""
AHEAD = 2
"""Blocks in flight for each worker: the one it runs, and the next one."""
_FASTEST = 5e10
"""Bytes per second that a core can read and write in memory, at the very most."""

_SUMS = (
    "rows", "kept", "seconds", "cpu", "blocks", "squares", "watched", "locked", "disk", "network",
    "moved",
)  # fmt: skip


class StepUse(NamedTuple):
    """What one step used for one block."""

    seconds: float
    cpu: float
    rows_in: int
    rows_out: int
    columns: tuple[tuple[str, int], ...] = ()
    """The columns that it wrote: names and bytes."""
    operators: Metered | None = None
    """Seconds, rows and bytes of each operator of an expression, if they were metered."""
    began: float = 0.0
    """The start, on the clock of the process that ran it."""
    bytes_in: int = 0
    """Bytes of the columns that it read."""
    objects: tuple[str, ...] = ()
    """The columns it wrote that hold Python objects."""
    disk: int = 0
    """Bytes that were read from a disk for it."""

    @property
    def moved(self) -> int:
        """Bytes that it read from memory or wrote to it, at least. A step that took less time than
        that needs only handed views on.

        >>> StepUse(1e-3, 1e-3, 10, 10, (("x", 8000),), bytes_in=2000).moved
        10000
        >>> StepUse(1e-6, 1e-6, 10, 10, (("view", 1 << 30),)).moved
        50000
        """
        written = sum(nbytes for _, nbytes in self.columns)
        return min(self.bytes_in + written, round(self.seconds * _FASTEST))


def without_queue(uses: Sequence[StepUse], queued: float) -> Sequence[StepUse]:
    """What the steps of a block used, without the seconds that their worker was `queued` for a core
    which others had: they passed in the steps that waited, in proportion.

    >>> busy, slept = StepUse(3.0, 1.0, 10, 10), StepUse(4.0, 0.0, 10, 10)
    >>> [use.seconds for use in without_queue([busy, slept], queued=1.5)]
    [2.5, 3.0]
    """
    waited = sum(max(use.seconds - use.cpu, 0.0) for use in uses)
    if not queued or not waited:
        return uses
    share = min(queued / waited, 1.0)
    return [
        use._replace(seconds=use.seconds - share * max(use.seconds - use.cpu, 0.0)) for use in uses
    ]


@dataclass
class Cost:
    """The sum of what a step used, over blocks.

    >>> cost = Cost()
    >>> cost.add(StepUse(2.0, 1.5, rows_in=10, rows_out=5, columns=(("x", 80),)))
    >>> cost.seconds_a_row, cost.cpu_a_row, cost.selectivity, cost.bytes_a_row("x")
    (0.2, 0.15, 0.5, 16.0)
    """

    rows: int = 0
    kept: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    columns: dict[str, int] = field(default_factory=dict)
    """Bytes written, by column."""
    operators: Metered = field(default_factory=dict)
    blocks: int = 0
    squares: float = 0.0
    """The sum of seconds² / rows over all blocks, for the variance between blocks."""
    objects: frozenset[str] = frozenset()
    """Columns that hold Python objects."""
    watched: float = 0.0
    """Seconds sampled by the GIL probe."""
    locked: float = 0.0
    """Seconds of these in which the GIL was held."""
    by_size: Line = field(default_factory=Line)
    """Seconds as a function of the bytes of the columns that it reads."""
    grows: Line = field(default_factory=Line)
    """Bytes written, as a function of the same."""
    disk: int = 0
    """Bytes that were read from a disk for it."""
    network: int = 0
    """Bytes that were read from an object store for it."""
    moved: int = 0
    """Bytes that it read from memory or wrote to it, at least."""
    by_block: Line = field(default_factory=Line)
    """Seconds as a function of the number of blocks with rows: its slope are those of a block."""

    def add(self, use: StepUse) -> None:
        self.blocks += 1
        self.squares += use.seconds**2 / use.rows_in if use.rows_in else 0.0
        self.rows += use.rows_in
        self.kept += use.rows_out
        self.seconds += use.seconds
        self.cpu += use.cpu
        for name, nbytes in use.columns:
            self.columns[name] = self.columns.get(name, 0) + nbytes
        self.objects |= frozenset(use.objects)
        self.disk += use.disk
        self.moved += use.moved
        written = sum(nbytes for _, nbytes in use.columns)
        self.by_size = self.by_size.seen(use.rows_in, use.bytes_in, use.seconds)
        self.grows = self.grows.seen(use.rows_in, use.bytes_in, written)
        self.by_block = self.by_block.seen(use.rows_in, 1, use.seconds)
        for name, (seconds, rows, nbytes) in (use.operators or {}).items():
            spent, count, size = self.operators.get(name, (0.0, 0, 0))
            self.operators[name] = (spent + seconds, count + rows, size + nbytes)

    def copy(self) -> Cost:
        return replace(self, columns=dict(self.columns), operators=dict(self.operators))

    def since(self, before: Cost) -> Cost:
        """What was added since an earlier moment.

        >>> cost = Cost()
        >>> cost.add(StepUse(2.0, 1.5, rows_in=10, rows_out=5, columns=(("x", 80),)))
        >>> then = cost.copy()
        >>> cost.add(StepUse(1.0, 1.0, rows_in=10, rows_out=10, columns=(("x", 160),)))
        >>> cost.since(then).seconds_a_row, cost.since(then).bytes_a_row("x")
        (0.1, 16.0)
        """
        if not before.rows:
            return self
        operators: Metered = {}
        for name, (seconds, rows, nbytes) in self.operators.items():
            spent, count, size = before.operators.get(name, (0.0, 0, 0))
            operators[name] = (seconds - spent, rows - count, nbytes - size)
        numbers = {name: getattr(self, name) - getattr(before, name) for name in _SUMS}
        return replace(
            self,
            **numbers,
            columns={name: n - before.columns.get(name, 0) for name, n in self.columns.items()},
            operators=operators,
            by_size=self.by_size + before.by_size.scaled(-1),
            grows=self.grows + before.grows.scaled(-1),
            by_block=self.by_block + before.by_block.scaled(-1),
        )

    def resized(self, size: float, others: Iterable[Cost] = ()) -> Cost:
        """The cost for rows of which the step reads `size` bytes, estimated from this cost and from
        others of the same step.

        >>> cost = Cost()
        >>> cost.add(StepUse(1.0, 1.0, 10, 10, (("y", 40_000),), bytes_in=20_000))
        >>> large = cost.resized(20_000)  # ten times as large
        >>> large.seconds_a_row, large.bytes_a_row("y")
        (1.0, 40000.0)
        """
        took, made = self.by_size, self.grows
        for other in others:
            took, made = took + other.by_size, made + other.grows
        slower = took.at(size) / self.seconds_a_row if self.seconds_a_row else 1.0
        written = sum(self.columns.values())
        larger = made.at(size) * self.rows / written if written else 1.0
        return replace(
            self,
            seconds=self.seconds * slower,
            cpu=self.cpu * slower,
            squares=self.squares * slower**2,
            by_block=self.by_block.times(slower),
            moved=round(self.moved * larger),
            columns={name: round(nbytes * larger) for name, nbytes in self.columns.items()},
            operators={
                name: (seconds * slower, rows, round(nbytes * larger))
                for name, (seconds, rows, nbytes) in self.operators.items()
            },
        )

    @property
    def seconds_a_row(self) -> float:
        """Seconds of wall time per row that comes in."""
        return self.seconds / self.rows if self.rows else 0.0

    @property
    def cpu_a_row(self) -> float:
        return self.cpu / self.rows if self.rows else 0.0

    @property
    def rows_a_block(self) -> float:
        """Rows of a block that has any; 0 where that was not measured."""
        return self.by_block.rows / self.by_block.x if self.by_block.x else 0.0

    @property
    def block_share(self) -> float:
        """The share of its seconds that blocks take however few rows they have, as far as blocks of
        different numbers of rows prove it.

        >>> cost = Cost()
        >>> for rows in (10, 20, 30, 40) * 2:  # 3 ms for a block and 0.1 ms for a row
        ...     cost.add(StepUse(3e-3 + rows * 1e-4, 1e-3, rows, rows))
        >>> round(cost.block_share, 3), cost.rows_a_block
        (0.545, 25.0)
        """
        line = self.by_block
        if line.x < ENOUGH_BLOCKS or not line.varied or not self.seconds:
            return 0.0
        sizes, both = line.xx - line.x**2 / line.rows, line.xy - line.x * line.y / line.rows
        slope, squares = line.slope, self.squares - line.y**2 / line.rows
        left = max(squares - 2 * slope * both + slope**2 * sizes, 0.0)
        error = math.sqrt(left / (line.x - 2) / sizes)
        return float(max(slope - ERRORS * error, 0.0) * line.x / self.seconds)

    @property
    def lock_share(self) -> float | None:
        """The share of its time under the GIL; None if it was not sampled for long enough."""
        return self.locked / self.watched if self.watched >= WATCHED_SECONDS else None

    @property
    def uncertainty(self) -> float:
        """The relative standard error of the measured seconds per row, over blocks.

        >>> cost = Cost()
        >>> for seconds in (1.0, 3.0):
        ...     cost.add(StepUse(seconds, seconds, rows_in=10, rows_out=10))
        >>> round(cost.uncertainty, 2)
        0.5

        Blocks without rows say nothing about a row:

        >>> cost = Cost()
        >>> for _ in range(2):
        ...     cost.add(StepUse(1.0, 1.0, rows_in=0, rows_out=0))
        >>> cost.uncertainty
        1.0
        """
        if self.blocks < 2 or not self.seconds or not self.rows:
            return 1.0 if self.seconds else 0.0
        mean = self.seconds_a_row
        variance = max(self.squares / self.rows - mean**2, 0.0)
        return float((variance / (self.blocks - 1)) ** 0.5 / mean)

    @property
    def selectivity(self) -> float:
        """The share of the rows that it keeps."""
        return self.kept / self.rows if self.rows else 1.0

    def bytes_a_row(self, column: str) -> float:
        """Bytes of a column per row that it keeps."""
        return self.columns.get(column, 0) / self.kept if self.kept else 0.0

    def shares(self) -> dict[str, float]:
        """The share of each operator in the time of an expression; they add up to 1."""
        per_row = {name: s / max(rows, 1) for name, (s, rows, _) in self.operators.items()}
        total = sum(per_row.values())
        return {name: s / total for name, s in per_row.items()} if total else {}
