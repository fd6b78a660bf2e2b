"""From a place in the order to a row of an indexed source, by composing small maps.

`read_files(…).skip(10).shuffle(seed=0).take(100)` over an indexed source costs no work: it is a
function on positions, (Range, Permute, Range). The last map is the outermost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from silva.order.draws import Draw, stream_key
from silva.order.permutation import permute


@dataclass(frozen=True)
class Range:
    """Rows `start` to `stop` of what comes before."""

    start: int
    stop: int | None

    def size(self, n: int) -> int:
        stop = n if self.stop is None else min(self.stop, n)
        return max(stop - self.start, 0)

    def map(self, positions: np.ndarray, n: int, seed: int, epoch: int) -> np.ndarray:
        return positions + self.start


@dataclass(frozen=True)
class Permute:
    """A global shuffle."""

    seed: int

    def size(self, n: int) -> int:
        return n

    def map(self, positions: np.ndarray, n: int, seed: int, epoch: int) -> np.ndarray:
        return permute(positions, n, "shuffle", self.seed, seed, epoch)


@dataclass(frozen=True)
class PermuteWindows:
    """A shuffle within consecutive windows of `width` rows."""

    seed: int
    width: int

    def size(self, n: int) -> int:
        return n

    def map(self, positions: np.ndarray, n: int, seed: int, epoch: int) -> np.ndarray:
        out = np.empty_like(positions)
        windows = positions // self.width
        for window in np.unique(windows).tolist():
            start = window * self.width
            inside = windows == window
            width = min(self.width, n - start)
            key = ("window", self.seed, seed, epoch, window)
            out[inside] = start + permute(positions[inside] - start, width, *key)
        return out


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a source's rows that stay together in a shuffle."""

    starts: np.ndarray
    """Where each group begins in the order of `rows`, and where the last ends."""
    rows: np.ndarray | None = None
    """The source's rows, group after group; None where the source has them in that order."""

    def cut(self, most: int | None) -> Groups:
        """The groups, cut into groups of at most `most` rows.

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


@runtime_checkable
class HasGroups(Protocol):
    """A source that knows which of its rows belong together."""

    @property
    def group(self) -> str | None: ...
    def describe(self) -> str: ...
    def groups(self) -> Groups: ...


@dataclass(frozen=True, eq=False)
class PermuteGroups:
    """A shuffle of groups: the rows of a group stay together. Each process asks the source for the
    groups, so that they need not be sent.

    A place in the order is found by bisection among the ends of the permuted groups, which are
    computed once per epoch: 24 bytes per group, and 8 bytes per row where the rows of a group are
    scattered in the source.
    """

    source: HasGroups
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
        """The groups in their permuted order, and where each ends in it."""
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


@dataclass(frozen=True, eq=False)
class DrawRows:
    """`count` draws with replacement, row i with probability in proportion to its weight."""

    cumulative: np.ndarray
    """Running sum of the rows' weights."""
    count: int
    seed: int

    def size(self, n: int) -> int:
        return self.count

    def map(self, positions: np.ndarray, n: int, seed: int, epoch: int) -> np.ndarray:
        key = stream_key("sample", self.seed, seed, epoch)
        u = Draw(key, positions.astype(np.uint64)).uniform(1)[:, 0]
        rows = np.searchsorted(self.cumulative, u * self.cumulative[-1], side="right")
        found: np.ndarray = np.minimum(rows, n - 1).astype(np.int64)
        return found


Map = Range | Permute | PermuteWindows | PermuteGroups | DrawRows


def order_size(maps: tuple[Map, ...], n: int) -> int:
    """The number of places in the order over a source of n rows."""
    for step in maps:
        n = step.size(n)
    return n


def order_rows(
    maps: tuple[Map, ...], positions: np.ndarray, n: int, seed: int, epoch: int
) -> np.ndarray:
    """The source's rows at these places of the order."""
    sizes = [n]
    for step in maps:
        sizes.append(step.size(sizes[-1]))
    for step, size in zip(reversed(maps), reversed(sizes[:-1]), strict=True):
        positions = step.map(positions, size, seed, epoch)
    return positions
