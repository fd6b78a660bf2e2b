"""Entries: for each of some input rows of a stage, all output rows that came of it.

A cache keeps entries, not rows: after a filter an input row may have no output row, after an
explode several, and both are worth remembering.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from silva.columns import Column, Dictionary, concat
from silva.physical.stage.stage import Result

_MOST_ROWS = 1 << 38
"""Rows of one entry. The sum over the entries of a page then fits into 64 bits."""


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of some input rows, with their output rows held as columns."""

    counts: np.ndarray
    """int64: the number of output rows of each entry."""
    columns: dict[str, Column]
    """The output rows, entry after entry."""
    places: np.ndarray | None
    """As in `Block`."""
    subs: tuple[np.ndarray, ...]
    """As in `Result`."""

    def __len__(self) -> int:
        return len(self.counts)

    def is_sound(self) -> bool:
        """Whether the parts fit together: counts, columns, places and subs agree on the number of
        rows. An entry has more than one row only where `subs` tells the rows apart."""
        counts = self.counts
        if self.subs:
            if counts.view(np.uint64).max(initial=0) > _MOST_ROWS:  # negative counts are huge here
                return False
            rows = int(counts.sum())
        else:
            if np.count_nonzero(counts >> 1):  # neither 0 nor 1
                return False
            rows = int(np.count_nonzero(counts))
        for column in self.columns.values():
            if len(column) != rows:
                return False
        arrays = self.subs if self.places is None else (*self.subs, self.places)
        return all(len(part) == rows for part in arrays)

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
        """One entry for each input row of a result. The entries of failed rows may lack rows."""
        if result.origin is None:
            counts = np.ones(result.size_in, dtype=np.int64)
        else:
            counts = np.bincount(result.origin, minlength=result.size_in).astype(np.int64)
        return Entries(counts, result.block.columns, result.block.places, result.subs)

    def take(self, picked: np.ndarray) -> Entries:
        """The entries at these indices, in this order; neighbours are not copied."""
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
            {name: _slice(column, first, first + rows) for name, column in self.columns.items()},
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
            _concat_places(many),
            tuple(np.concatenate(parts) for parts in zip(*(e.subs for e in many), strict=True)),
        )

    @property
    def origin(self) -> np.ndarray | None:
        """The entry of each output row; None where each entry has exactly one row."""
        if not self.subs and (self.counts == 1).all():
            return None
        return np.repeat(np.arange(len(self)), self.counts)


def _concat_places(many: list[Entries]) -> np.ndarray | None:
    if all(e.places is None for e in many):
        return None
    rows = [
        np.zeros(int(e.counts.sum()), np.uint64) if e.places is None else e.places for e in many
    ]
    return np.concatenate(rows)


def _slice(column: Column, start: int, stop: int) -> Column:
    """Rows of a column, without the distinct values that only other rows use."""
    part = column.slice(start, stop)
    return part.compact() if isinstance(part, Dictionary) else part


FoundEntries = list[tuple[np.ndarray, Entries]]
"""Entries in pieces: the indices of some of the rows asked for, and their entries."""
