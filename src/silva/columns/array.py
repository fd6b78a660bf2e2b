"""Rows of one shape and dtype in one numpy array, with an optional null mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.column import Allocate


@dataclass(frozen=True, eq=False, slots=True)
class Array:
    data: np.ndarray
    """One row along the first axis."""
    valid: np.ndarray | None = None
    """False where the row is null; None when no row is."""

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def take(self, indices: np.ndarray) -> Array:
        return Array(self.data[indices], None if self.valid is None else self.valid[indices])

    def slice(self, start: int, stop: int) -> Array:
        return Array(self.data[start:stop], None if self.valid is None else self.valid[start:stop])

    def rows(self) -> list[Any]:
        if self.data.ndim == 1 and self.data.dtype.kind in "biufc":
            items: list[Any] = self.data.tolist()
        elif self.data.ndim == 1:
            items = list(self.data)  # dates stay numpy scalars: tolist() would lose their unit
        else:
            view = self.data.view()
            view.flags.writeable = False
            items = list(view)
        if self.valid is not None:
            items = [x if ok else None for x, ok in zip(items, self.valid.tolist(), strict=True)]
        return items

    def batch(self) -> Any:
        if self.valid is None or self.valid.all():
            return self.data
        return np.ma.MaskedArray(self.data, mask=_broadcast(~self.valid, self.data))

    def settled(self, allocate: Allocate = np.empty) -> Array:
        return self


def _broadcast(mask: np.ndarray, data: np.ndarray) -> np.ndarray:
    return np.broadcast_to(mask.reshape(-1, *[1] * (data.ndim - 1)), data.shape).copy()
