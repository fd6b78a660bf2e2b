"""Rows that repeat: each distinct value once, and an index from row to value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from silva.columns.column import Allocate, Column


@dataclass(frozen=True, eq=False, slots=True)
class Grouped:
    unique: Column
    inverse: np.ndarray
    """Row `i` holds `unique[inverse[i]]`."""
    distinct: bool = False
    """Whether it is known that no two values of `unique` are equal."""

    def __len__(self) -> int:
        return len(self.inverse)

    @property
    def nbytes(self) -> int:
        return self.unique.nbytes + int(self.inverse.nbytes)

    def take(self, indices: np.ndarray) -> Grouped:
        return replace(self, inverse=self.inverse[indices]).compact()

    def slice(self, start: int, stop: int) -> Grouped:
        inverse = self.inverse[start:stop]
        if not len(inverse) or len(self.unique) <= len(inverse):
            return replace(self, inverse=inverse)
        low, high = int(inverse.min()), int(inverse.max()) + 1
        part = Grouped(self.unique.slice(low, high), inverse - low, self.distinct)
        return part.compact() if high - low > len(inverse) else part

    def at(self, rows: np.ndarray) -> Column:
        """The values of these rows, one each, in memory of their own."""
        return self.unique.take(self.inverse[rows])

    def compact(self) -> Grouped:
        """Without the values that no row uses; those that remain keep their order."""
        used, inverse = np.unique(self.inverse, return_inverse=True)
        if len(used) == len(self.unique):
            return self
        unique = self.unique.take(used)
        return Grouped(unique, inverse.astype(self.inverse.dtype), self.distinct)

    def expand(self) -> Column:
        return self.unique.take(self.inverse)

    def rows(self) -> list[Any]:
        unique = self.unique.rows()
        return [unique[i] for i in self.inverse.tolist()]

    def batch(self) -> Any:
        return self.expand().batch()

    def settled(self, allocate: Allocate = np.empty) -> Grouped:
        return replace(self, unique=self.unique.settled(allocate))
