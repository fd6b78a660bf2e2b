"""Rows of several parts, each part a column: an image with its boxes, before they go separate
ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.column import Allocate, Column
from silva.columns.recycle import empty


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    def take(self, indices: np.ndarray) -> Parts:
        return Parts(tuple(column.take(indices) for column in self.columns))

    def slice(self, start: int, stop: int) -> Parts:
        return Parts(tuple(column.slice(start, stop) for column in self.columns))

    def rows(self) -> list[Any]:
        return list(zip(*(column.rows() for column in self.columns), strict=True))

    def batch(self) -> Any:
        return tuple(column.batch() for column in self.columns)

    def settled(self, allocate: Allocate = empty) -> Parts:
        return Parts(tuple(column.settled(allocate) for column in self.columns))
