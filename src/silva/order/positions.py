"""From a place in the order to a row of an indexed source, by composing small maps.

`read_files(…).skip(10).shuffle(seed=0).take(100)` over an indexed source is not work to be done but
a function on positions: (Range, Permute, Range). The last map is the outermost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from silva.order.draws import Draw, stream_key
from silva.order.groups import PermuteGroups
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
class DrawRows:
    """`count` draws with replacement, row i with probability in proportion to its weight."""

    cumulative: np.ndarray
    """Running sum of the weights, one a row."""
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
    """Number of places in the order over a source of n rows."""
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
