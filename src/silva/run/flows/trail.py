"""Trails: from a row back to the state that continues after it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from silva.columns import Block

State = Any
"""JSON: numbers, strings, lists and dicts. None is the beginning."""

Mark = Any
"""JSON: finds one row again."""


class Trail(Protocol):
    def after(self, row: int) -> State:
        """The state that continues after row `row` of the piece; -1 for before its first."""

    def mark(self, row: int) -> Mark:
        """What `Flow.fetch` needs to read this row again."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    block: Block
    trail: Trail


class Flow(Protocol):
    """A physical node opened at a state, for one shard and epoch."""

    def pieces(self) -> Iterator[Piece]:
        """Blocks in logical order, until the epoch ends."""

    def fetch(self, marks: list[Mark]) -> Block:
        """The rows with these marks, in this order."""


@dataclass(frozen=True, eq=False, slots=True)
class Offset:
    """The trail of a slice of a piece."""

    trail: Trail
    start: int

    def after(self, row: int) -> State:
        return self.trail.after(self.start + row)

    def mark(self, row: int) -> Mark:
        return self.trail.mark(self.start + row)


class Joined:
    """The trail of several runs of rows laid end to end."""

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

    def after(self, row: int) -> State:
        if row < 0:
            trail, start, _ = self._runs[0]
            return trail.after(start - 1)
        trail, at = self._find(row)
        return trail.after(at)

    def mark(self, row: int) -> Mark:
        trail, at = self._find(row)
        return trail.mark(at)


class Reader:
    """Takes any number of rows at a time from a flow's pieces."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._piece: Piece | None = None
        self._at = 0
        self.ended = False

    def available(self) -> int:
        """Rows at hand; looks for the next piece if there are none. 0 only at the end."""
        while self._piece is None or self._at >= len(self._piece.block):
            found = next(self._pieces, None)
            if found is None:
                self.ended = True
                self._piece = None
                return 0
            self._piece, self._at = found, 0
        return len(self._piece.block) - self._at

    def at_hand(self) -> int:
        """Bytes of the piece whose rows are at hand."""
        return self._piece.block.nbytes if self._piece is not None else 0

    def take(self, count: int) -> tuple[Block, Trail, int]:
        """At most `count` of the rows at hand, with their trail and where they begin in it."""
        assert self._piece is not None
        start = self._at
        stop = min(start + count, len(self._piece.block))
        self._at = stop
        return self._piece.block.slice(start, stop), self._piece.trail, start

    def gather(self, count: int) -> tuple[list[Block], list[tuple[Trail, int, int]]]:
        """`count` rows, or as many as there are before the end, and their runs of trails."""
        blocks: list[Block] = []
        runs: list[tuple[Trail, int, int]] = []
        while count and self.available():
            block, trail, start = self.take(count)
            blocks.append(block)
            runs.append((trail, start, len(block)))
            count -= len(block)
        return blocks, runs
