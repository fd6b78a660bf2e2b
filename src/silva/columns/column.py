"""What every kind of column can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]
"""Gives an empty array: on the heap, or inside a shared segment."""


class Column(Protocol):
    """A run of values of one name. Columns are never changed in place."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes held, close enough to keep memory bounded."""

    def take(self, indices: np.ndarray) -> Column:
        """The rows at `indices`, in that order."""

    def slice(self, start: int, stop: int) -> Column:
        """Rows `start` to `stop`, without a copy where that is possible."""

    def rows(self) -> list[Any]:
        """One value a row, as a per-row function receives it: plain numbers, str, bytes,
        read-only arrays, or None."""

    def batch(self) -> Any:
        """The value that a batch of exactly these rows shows to the user."""

    def settled(self, allocate: Allocate = np.empty) -> Column:
        """The same rows in the densest kind that keeps every value and every batch's type."""
