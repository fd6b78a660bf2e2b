"""Entries: for each of some input rows of a stage, all of the output rows that came of it.

A cache keeps entries, not rows: after a filter an input row may have no output row, after an
explode several, and both are worth remembering.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silva.columns import Column, Grouped, concat
from silva.physical.stage import Result


@dataclass(frozen=True, eq=False)
class Entries:
    counts: np.ndarray
    """int64: output rows of each entry."""
    columns: dict[str, Column]
    """The output rows, entry after entry."""
    places: np.ndarray | None
    """As in `Block`."""
    subs: tuple[np.ndarray, ...]
    """As in `Result`."""

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def nbytes(self) -> int:
        arrays = [self.counts, *self.subs, *([] if self.places is None else [self.places])]
        return sum(c.nbytes for c in self.columns.values()) + sum(a.nbytes for a in arrays)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first output row of each entry."""
        starts: np.ndarray = np.cumsum(self.counts) - self.counts
        return starts

    @staticmethod
    def of(result: Result) -> Entries:
        """One entry for each input row of a result; those of failed rows may lack rows."""
        if result.origin is None:
            counts = np.ones(result.size_in, dtype=np.int64)
        else:
            counts = np.bincount(result.origin, minlength=result.size_in).astype(np.int64)
        return Entries(counts, result.block.columns, result.block.places, result.subs)

    def take(self, picked: np.ndarray) -> Entries:
        """The entries at these places, in this order; not copied where they are neighbours."""
        if len(picked) and (np.diff(picked) == 1).all():
            return self.slice(int(picked[0]), int(picked[-1]) + 1)
        counts = self.counts[picked]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        rows = np.arange(total) + np.repeat(self.starts[picked] - (ends - counts), counts)
        return Entries(
            counts,
            {name: column.take(rows) for name, column in self.columns.items()},
            None if self.places is None else self.places[rows],
            tuple(part[rows] for part in self.subs),
        )

    def slice(self, start: int, stop: int) -> Entries:
        if start == 0 and stop >= len(self):
            return self
        first, rows = int(self.counts[:start].sum()), int(self.counts[start:stop].sum())
        return Entries(
            self.counts[start:stop],
            {name: _cut(column, first, first + rows) for name, column in self.columns.items()},
            None if self.places is None else self.places[first : first + rows],
            tuple(part[first : first + rows] for part in self.subs),
        )

    @staticmethod
    def concat(many: list[Entries]) -> Entries:
        if len(many) == 1:
            return many[0]
        first = many[0]
        return Entries(
            np.concatenate([e.counts for e in many]),
            {name: concat([e.columns[name] for e in many]) for name in first.columns},
            None
            if first.places is None
            else np.concatenate([e.places for e in many if e.places is not None]),
            tuple(np.concatenate(parts) for parts in zip(*(e.subs for e in many), strict=True)),
        )

    @property
    def origin(self) -> np.ndarray | None:
        """The entry of each output row; None where each has exactly one."""
        if not self.subs and (self.counts == 1).all():
            return None
        return np.repeat(np.arange(len(self)), self.counts)


def _cut(column: Column, start: int, stop: int) -> Column:
    """Rows of a column without what only other rows need."""
    part = column.slice(start, stop)
    return part.compact() if isinstance(part, Grouped) else part


Parts = list[tuple[np.ndarray, Entries]]
"""Entries in pieces: which of the rows asked for, and their entries."""
