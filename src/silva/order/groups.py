"""A shuffle of groups: a group's rows stay together, groups are permuted.

A place in the order is found by bisection among the ends of the permuted groups, which are worked
out once an epoch: 24 bytes a group, and 8 bytes a row where a group's rows lie apart in the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from silva.order.permutation import permute


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows of a source belong together."""

    starts: np.ndarray
    """Where each group begins among the rows in the order of `rows`, and where the last ends."""
    rows: np.ndarray | None = None
    """The source's rows, group after group; None where they lie like that."""

    def cut(self, most: int | None) -> Groups:
        """Groups of at most so many rows.

        >>> Groups(np.array([0, 5, 6])).cut(2).starts.tolist()
        [0, 2, 4, 5, 6]
        """
        if most is None or len(self.starts) < 2:
            return self
        sizes = np.diff(self.starts)
        pieces = -(-sizes // most)
        first = np.repeat(np.cumsum(pieces) - pieces, pieces)
        within = np.arange(int(pieces.sum())) - first
        starts = np.repeat(self.starts[:-1], pieces) + within * most
        return Groups(np.append(starts, self.starts[-1]), self.rows)


@dataclass(frozen=True, eq=False)
class PermuteGroups:
    """A shuffle of the groups of a source. The source itself says what they are, in each process
    for itself, so that they need not travel."""

    source: Any
    seed: int
    most: int | None
    _known: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def size(self, n: int) -> int:
        return n

    def groups(self) -> Groups:
        found: Groups | None = self._known.get("groups")
        if found is None:
            found = self._known["groups"] = self.source.groups().cut(self.most)
        return found

    def _permuted(self, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The groups in their order, and where each ends in it."""
        found: tuple[np.ndarray, np.ndarray] | None = self._known.get((seed, epoch))
        if found is None:
            starts = self.groups().starts
            count = len(starts) - 1
            order = permute(np.arange(count), count, "groups", self.seed, seed, epoch)
            found = order, np.cumsum(np.diff(starts)[order])
            for old in [key for key in self._known if key != "groups"][:-1]:
                self._known.pop(old, None)  # the epoch before may still be read
            self._known[seed, epoch] = found
        return found

    def map(self, positions: np.ndarray, n: int, seed: int, epoch: int) -> np.ndarray:
        groups = self.groups()
        order, ends = self._permuted(seed, epoch)
        places = np.searchsorted(ends, positions, side="right")
        before_end = ends[places] - positions
        rows: np.ndarray = groups.starts[order[places] + 1] - before_end
        return rows if groups.rows is None else groups.rows[rows]
