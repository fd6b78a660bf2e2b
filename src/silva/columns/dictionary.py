"""A dictionary-encoded column: each distinct value once, and an index from row to value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns.column import Allocate, Column
from silva.columns.values import Values


@dataclass(frozen=True, eq=False, slots=True)
class Dictionary:
    """A column that holds each distinct value once."""

    unique: Column
    inverse: np.ndarray
    """Row `i` holds `unique[inverse[i]]`."""
    distinct: bool = False
    """Whether all values of `unique` are known to differ."""

    def __len__(self) -> int:
        return len(self.inverse)

    @property
    def nbytes(self) -> int:
        return self.unique.nbytes + int(self.inverse.nbytes)

    def take(self, indices: np.ndarray) -> Dictionary:
        return replace(self, inverse=self.inverse[indices]).compact()

    def slice(self, start: int, stop: int) -> Dictionary:
        inverse = self.inverse[start:stop]
        if not len(inverse) or len(self.unique) <= len(inverse):
            return replace(self, inverse=inverse)
        low, high = int(inverse.min()), int(inverse.max()) + 1
        part = Dictionary(self.unique.slice(low, high), inverse - low, self.distinct)
        return part.compact() if high - low > len(inverse) else part

    def at(self, rows: np.ndarray) -> Column:
        """The values of these rows, one each, copied."""
        return self.unique.take(self.inverse[rows])

    def compact(self) -> Dictionary:
        """The column without unused values; the others keep their order."""
        used, inverse = np.unique(self.inverse, return_inverse=True)
        if len(used) == len(self.unique):
            return self
        unique = self.unique.take(used)
        return Dictionary(unique, inverse.astype(self.inverse.dtype), self.distinct)

    def expand(self) -> Column:
        """A column with one value per row; containers are copied for each row."""
        from silva.columns.owned import without_shared_containers

        return without_shared_containers(self.unique.take(self.inverse))

    def rows(self) -> list[Any]:
        if isinstance(self.unique, Values):
            return self.expand().rows()
        unique = self.unique.rows()
        if any(isinstance(value, list) for value in unique):  # each row has a list of its own
            return self.expand().rows()
        return [unique[i] for i in self.inverse.tolist()]

    def batch(self) -> Any:
        return self.expand().batch()

    def settled(self, allocate: Allocate = np.empty) -> Dictionary:
        return replace(self, unique=self.unique.settled(allocate))


def expanded(column: Column) -> Column:
    """The column with one value per row: a dictionary's values, and others as they are."""
    return column.expand() if isinstance(column, Dictionary) else column
