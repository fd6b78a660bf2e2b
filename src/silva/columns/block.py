"""A contiguous run of rows in logical order, held as columns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from silva.columns.column import Column
from silva.columns.concat import concat


@dataclass(frozen=True, eq=False)
class Block:
    """Rows with their columns and their identities."""

    columns: dict[str, Column]
    ids: np.ndarray
    """uint64: which source (high 8 bits) and which row of it; never the place in the order."""
    places: np.ndarray | None = None
    """uint64: the place within an exploded row, from 1 up, and 0 of a row that was never exploded;
    None where all are 0."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self.columns.values()) + int(self.ids.nbytes)

    def take(self, indices: np.ndarray) -> Block:
        return Block(
            {name: c.take(indices) for name, c in self.columns.items()},
            self.ids[indices],
            None if self.places is None else self.places[indices],
        )

    def slice(self, start: int, stop: int) -> Block:
        if start == 0 and stop >= len(self):
            return self
        return Block(
            {name: c.slice(start, stop) for name, c in self.columns.items()},
            self.ids[start:stop],
            None if self.places is None else self.places[start:stop],
        )

    def with_columns(self, columns: dict[str, Column]) -> Block:
        return replace(self, columns=columns)

    @staticmethod
    def concat(blocks: list[Block]) -> Block:
        """The rows of all blocks; the first block says which columns there are."""
        if len(blocks) == 1:
            return blocks[0]
        full = [b for b in blocks if len(b)] or blocks[:1]
        if len(full) == 1:
            return full[0]
        places = None
        if any(b.places is not None for b in full):
            places = np.concatenate(
                [np.zeros(len(b), np.uint64) if b.places is None else b.places for b in full]
            )
        return Block(
            {name: concat([b.columns[name] for b in full]) for name in full[0].columns},
            np.concatenate([b.ids for b in full]),
            places,
        )
