"""A column of lists: all items in one column, and the offsets at which rows begin."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from silva.columns.column import Allocate, Array, Column, with_nulls
from silva.columns.number_runs import offsets_of
from silva.columns.ragged import Ragged


@dataclass(frozen=True, eq=False, slots=True)
class Lists:
    """A column of lists."""

    values: Column
    offsets: np.ndarray
    """int64, one more than there are rows; may start above 0 (slices share `values`)."""
    valid: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        total = max(len(self.values), 1)
        share = (int(self.offsets[-1]) - int(self.offsets[0])) / total
        return int(self.values.nbytes * share) + int(self.offsets.nbytes)

    def take(self, indices: np.ndarray) -> Lists:
        starts = self.offsets[:-1][indices]
        lengths = self.offsets[1:][indices] - starts
        offsets = offsets_of(lengths)
        valid = None if self.valid is None else self.valid[indices]
        return Lists(_picked(self.values, starts, lengths, offsets), offsets, valid)

    def slice(self, start: int, stop: int) -> Lists:
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)
        valid = None if self.valid is None else self.valid[start:stop]
        return Lists(self.values, self.offsets[start : stop + 1], valid)

    def rows(self) -> list[Any]:
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        bounds = (self.offsets - first).tolist()
        inner = self.values.slice(first, last)
        items: Any
        if isinstance(inner, Array):
            items = inner.data.view()
            items.flags.writeable = False
        else:
            items = inner.rows()
        out = [items[a:b] for a, b in pairwise(bounds)]
        if isinstance(inner, Array) and inner.valid is not None:
            out = _items_with_nulls(out, inner, bounds)
        return with_nulls(out, self.valid)

    def batch(self) -> Any:
        if self.valid is not None and not self.valid.all():
            return np.fromiter(self.rows(), object, len(self))
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return Ragged(self.values.slice(first, last).batch(), self.offsets - first)

    def settled(self, allocate: Allocate = np.empty) -> Lists:
        return self


def _picked(values: Column, starts: np.ndarray, lengths: np.ndarray, offsets: np.ndarray) -> Column:
    """The items of some lists, end to end, copied."""
    away = starts - offsets[:-1]
    if isinstance(values, Array) and len(away) and (away == away[0]).all():  # neighbours
        run = values.slice(int(away[0]), int(away[0] + offsets[-1]))
        return Array(run.data.copy(), None if run.valid is None else run.valid.copy())
    uniform = _uniform(values, starts, lengths)
    if uniform is not None:
        return uniform
    return values.take(np.arange(int(offsets[-1])) + np.repeat(away, lengths))


def _uniform(values: Column, starts: np.ndarray, lengths: np.ndarray) -> Array | None:
    """The items of lists of one length that lie end to end, copied list by list, which is several
    times as fast as item by item; None for other lists."""
    if not isinstance(values, Array) or values.valid is not None or values.data.ndim > 1:
        return None
    size = int(lengths[0]) if len(lengths) else 0
    if not size or (lengths != size).any():
        return None
    number, first = np.divmod(starts, size)
    if (first != first[0]).any():
        return None
    begin = int(first[0])
    count = (len(values) - begin) // size
    table = values.data[begin : begin + count * size].reshape(count, size)
    return Array(table[number].reshape(-1))


def _items_with_nulls(rows: list[Any], inner: Array, bounds: list[int]) -> list[Any]:
    """The rows; those that contain a null become lists with None, the others stay arrays."""
    assert inner.valid is not None
    whole = inner.rows()
    return [
        row if inner.valid[a:b].all() else whole[a:b]
        for row, (a, b) in zip(rows, pairwise(bounds), strict=True)
    ]
