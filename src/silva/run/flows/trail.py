"""Trails: from a row back to the position that continues after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from silva.columns import Block
from silva.order.cursors import Cursor, Mark, Position

if TYPE_CHECKING:
    from silva.physical.plan import PhysicalNode
    from silva.run.session import Session

__all__ = [
    "Cursor", "Fetched", "Flow", "Joined", "Mark", "Offset", "OpenFlow", "Piece", "Position",
    "Reader",
]  # fmt: skip


class Trail(Protocol):
    def after(self, row: int) -> Position:
        """The position from which the rows after row `row` of the piece follow; -1: before its
        first row. Failures are counted from where the flow was opened."""

    def mark(self, row: int) -> Mark:
        """What `Flow.fetch` needs to read this row again."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A block with its trail."""

    block: Block
    trail: Trail


@dataclass(frozen=True, eq=False, slots=True)
class Fetched:
    """Rows that were read again by their marks."""

    rows: Any
    """A block, or what a stage reads them by."""
    which: list[int]
    """The numbers of the marks that the rows belong to, ascending; rows that failed are missing."""

    @staticmethod
    def joined(parts: list[tuple[list[int], Fetched]]) -> Fetched:
        """Joins rows that were fetched by different marks, in the order of all marks."""
        which = [marks[i] for marks, part in parts for i in part.which]
        order = np.argsort(np.array(which, dtype=np.int64), kind="stable")
        block = Block.concat([part.rows for _, part in parts])
        ascends = all(a < b for a, b in pairwise(which))
        return Fetched(block if ascends else block.take(order), sorted(which))


class Flow(Protocol):
    """A physical node opened at a cursor, for one shard and epoch."""

    def pieces(self) -> Iterator[Piece]:
        """Blocks in logical order, until the epoch ends."""

    def fetch(self, marks: list[Mark]) -> Fetched:
        """The rows with these marks, in this order."""


OpenFlow = Callable[["PhysicalNode", "Session", Cursor], Flow]
"""Opens a physical node of rows for one shard, at a cursor."""


@dataclass(frozen=True, eq=False, slots=True)
class Offset:
    """The trail of a slice of a piece."""

    trail: Trail
    start: int

    def after(self, row: int) -> Position:
        return self.trail.after(self.start + row)

    def mark(self, row: int) -> Mark:
        return self.trail.mark(self.start + row)


class Joined:
    """The trail of several consecutive runs of rows."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: list[tuple[Trail, int, int]]) -> None:
        """Runs of (trail, first row, number of rows)."""
        self._runs = runs
        self._ends: list[int] = []
        total = 0
        for _, _, count in runs:
            total += count
            self._ends.append(total)

    def _find(self, row: int) -> tuple[Trail, int]:
        run = bisect_right(self._ends, row)
        trail, start, count = self._runs[run]
        return trail, start + row - (self._ends[run] - count)

    def after(self, row: int) -> Position:
        if row < 0:
            trail, start, _ = self._runs[0]
            return trail.after(start - 1)
        trail, at = self._find(row)
        return trail.after(at)

    def mark(self, row: int) -> Mark:
        trail, at = self._find(row)
        return trail.mark(at)


class Reader:
    """Reads any number of rows at a time from the pieces of a flow."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._piece: Piece | None = None
        self._at = 0
        self.ended = False

    def available(self) -> int:
        """The number of rows left of the present piece; reads the next one if there are none. 0
        only at the end."""
        while self._piece is None or self._at >= len(self._piece.block):
            found = next(self._pieces, None)
            if found is None:
                self.ended = True
                self._piece = None
                return 0
            self._piece, self._at = found, 0
        return len(self._piece.block) - self._at

    @property
    def at_hand_rows(self) -> int:
        """The number of rows left of the present piece; reads nothing."""
        return 0 if self._piece is None else len(self._piece.block) - self._at

    def at_hand(self) -> int:
        """Bytes of the present piece."""
        return self._piece.block.nbytes if self._piece is not None else 0

    def take(self, count: int) -> tuple[Block, Trail, int]:
        """At most `count` rows of the present piece, with its trail and their first row in it."""
        assert self._piece is not None
        start = self._at
        stop = min(start + count, len(self._piece.block))
        self._at = stop
        return self._piece.block.slice(start, stop), self._piece.trail, start

    def gather(self, count: int) -> tuple[list[Block], list[tuple[Trail, int, int]]]:
        """The next `count` rows, or as many as are left, and their runs of (trail, first row,
        rows)."""
        blocks: list[Block] = []
        runs: list[tuple[Trail, int, int]] = []
        while count and self.available():
            block, trail, start = self.take(count)
            blocks.append(block)
            runs.append((trail, start, len(block)))
            count -= len(block)
        return blocks, runs
