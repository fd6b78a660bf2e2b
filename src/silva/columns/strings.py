"""Text and bytes in Arrow's layout: one buffer and offsets, so that moving them is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns.column import Allocate

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, slots=True)
class Strings:
    data: pa.Array
    """A string, binary, large_string or large_binary array."""

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def take(self, indices: np.ndarray) -> Strings:
        return Strings(self.data.take(indices))

    def slice(self, start: int, stop: int) -> Strings:
        start, stop, _ = slice(start, stop).indices(len(self))
        return Strings(self.data.slice(start, max(stop - start, 0)))

    def rows(self) -> list[Any]:
        items: list[Any] = self.data.to_pylist()
        return items

    def batch(self) -> Any:
        return self.data.to_numpy(zero_copy_only=False)

    def settled(self, allocate: Allocate = np.empty) -> Strings:
        return self
