"""Reading units of a chunked source in a worker.

A worker reads a unit from front to back, in blocks; only where to begin and end travels to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns import Block, Column
from silva.physical.stage.context import IN_SOURCE, TAG_SHIFT, UNIT_SHIFT, Context

_SMALL_BYTES = 1 << 18
"""Smaller blocks are copied to join several into one."""


@dataclass(frozen=True, eq=False)
class UnitRows:
    """The input of a stage that reads a chunked source: rows of one or several units."""

    runs: tuple[tuple[int, int, int], ...]
    """Consecutive runs of (unit, first row, end)."""
    most: int
    """The rows of a block that the stage should get."""
    picked: np.ndarray | None = None
    """The numbers of the rows to read among these, ascending; None for all."""

    def __len__(self) -> int:
        if self.picked is not None:
            return len(self.picked)
        return sum(stop - start for _, start, stop in self.runs)

    def slice(self, start: int, stop: int) -> UnitRows:
        return self.take(np.arange(start, stop))

    def take(self, rows: np.ndarray) -> UnitRows:
        return replace(self, picked=rows if self.picked is None else self.picked[rows])

    def describe(self) -> str:
        (first, start, _), (last, _, stop) = self.runs[0], self.runs[-1]
        return f"row {start} of chunk {first} to row {stop - 1} of chunk {last}"


@dataclass(frozen=True, eq=False)
class ReadUnits:
    """Reads units of a chunked source, or runs of rows of them.

    A unit that cannot be read is an error, whatever is done about rows that fail: nothing is known
    of its rows.
    """

    source: Any
    columns: tuple[str, ...]
    tag: int

    @property
    def label(self) -> str:
        return f"read {', '.join(self.columns)}" if self.columns else "read"

    def ids(self, unit: int, start: int, stop: int) -> np.ndarray:
        """The identities of a run of rows."""
        first = (self.tag << TAG_SHIFT) | (unit << UNIT_SHIFT)
        return np.arange(start, stop, dtype=np.uint64) + np.uint64(first)

    def identities(self, rows: UnitRows, context: Context) -> tuple[np.ndarray, np.ndarray]:
        """Of each row, what it is computed from and its identity."""
        runs = [self.ids(*run) for run in rows.runs]
        ids = runs[0] if len(runs) == 1 else np.concatenate(runs)
        ids = ids if rows.picked is None else ids[rows.picked]
        return ids & np.uint64(IN_SOURCE), ids

    def blocks(self, rows: UnitRows) -> Iterator[Block]:
        """The rows as they are read, in blocks of bounded size; small ones are joined."""
        held: list[Block] = []
        for block in self._blocks(rows):
            small = block.nbytes < _SMALL_BYTES
            if held and not (small and sum(map(len, held)) + len(block) <= rows.most):
                yield Block.concat(held)
                held = []
            if small:
                held.append(block)
            else:
                yield block
        if held:
            yield Block.concat(held)

    def _blocks(self, rows: UnitRows) -> Iterator[Block]:
        before = 0
        for unit, start, stop in rows.runs:
            if rows.picked is None:
                yield from self.unit_blocks(unit, start, stop, rows.most)
                continue
            first, last = np.searchsorted(rows.picked, (before, before + stop - start))
            wanted = rows.picked[first:last] - before + start
            before += stop - start
            if len(wanted):
                yield from self._picked(unit, wanted, rows.most)

    def _picked(self, unit: int, wanted: np.ndarray, most: int) -> Iterator[Block]:
        at = int(wanted[0])
        for block in self.unit_blocks(unit, at, int(wanted[-1]) + 1, most):
            first, last = np.searchsorted(wanted, (at, at + len(block)))
            if first < last:
                yield block.take(wanted[first:last] - at)
            at += len(block)

    def unit_blocks(self, unit: int, start: int, stop: int, most: int) -> Iterator[Block]:
        """A run of rows in blocks of at most so many."""
        for block in self.cut(self.source.open(unit, start, self.columns), unit, start, stop):
            for at in range(0, len(block), most):
                yield block.slice(at, at + most)

    def cut(
        self, runs: Iterator[dict[str, Column]], unit: int, start: int, stop: int | None
    ) -> Iterator[Block]:
        """What the source gives of a unit from row `start` on, as blocks, up to row `stop`."""
        for columns in runs:
            end = start + len(next(iter(columns.values())))
            if stop is not None and end > stop:
                columns = {n: c.slice(0, stop - start) for n, c in columns.items()}
                end = stop
            if start < end:
                ids = self.ids(unit, start, end)
                yield Block({n: c for n, c in columns.items() if n}, ids)
            if end == stop:
                return
            start = end
