"""A column that is a Python list: what a function returned, until (or unless) it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np

from silva.columns.allocation import empty
from silva.columns.column import Allocate, Column

PLAIN = frozenset({bool, int, float, str, bytes, type(None), list, tuple, dict})
"""Types whose values are the same before and after settling."""


class Values:
    __slots__ = ("_kinds", "items")

    def __init__(self, items: list[Any], kinds: frozenset[type] | None = None) -> None:
        self.items = items
        self._kinds = kinds

    @property
    def kinds(self) -> frozenset[type]:
        """The Python types of the items."""
        if self._kinds is None:
            kinds = list(map(type, self.items))
            alike = kinds and kinds.count(kinds[0]) == len(kinds)  # faster than hashing each
            self._kinds = frozenset(kinds[:1] if alike else kinds)
        return self._kinds

    def __len__(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        items = self.items
        if len(items) <= 64:
            return sum(map(_size, items))
        step = len(items) // 64
        return sum(map(_size, items[::step])) * step

    def take(self, indices: np.ndarray) -> Values:
        picked = indices.tolist()
        if len(picked) < 2:
            return Values([self.items[i] for i in picked])
        return Values(list(itemgetter(*picked)(self.items)))

    def keep(self, mask: Sequence[int]) -> Values:
        kept = list(compress(self.items, mask))
        same = self._kinds if self._kinds is not None and len(self._kinds) == 1 and kept else None
        return Values(kept, same)

    def slice(self, start: int, stop: int) -> Values:
        return Values(self.items[start:stop])

    def rows(self) -> list[Any]:
        """The rows, as a settled column returns them: numpy scalars as Python numbers, arrays
        read-only."""
        if self.kinds <= PLAIN:
            return self.items
        return [_as_row(x) for x in self.items]

    def batch(self) -> Any:
        from silva.columns.settle import batch_of_rows

        return batch_of_rows(self.items)

    def settled(self, allocate: Allocate = empty) -> Column:
        from silva.columns.settle import settle

        return settle(self, allocate)


def _as_row(item: Any) -> Any:
    kind = type(item)  # not isinstance, which may run code of the user's object, and raise
    if issubclass(kind, np.ndarray):
        if item.ndim == 0 and type(item) in (np.ndarray, np.memmap):
            return _as_row(item[()])
        if item.flags.writeable:
            item = item.view()
            item.flags.writeable = False
        return item
    if issubclass(kind, np.number | np.bool_) and not issubclass(kind, np.timedelta64):
        return item.item()
    return item


def _size(item: Any) -> int:
    """Roughly the bytes of an item; an object of the user's may raise anything."""
    try:
        return _measured_size(item)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a guess is enough for an estimate
        return 64


def _measured_size(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return int(item.nbytes) + 96
    if isinstance(item, str | bytes | bytearray | memoryview):
        return len(item) + 56
    if isinstance(item, list | tuple):
        return 56 + 8 * len(item) + (len(item) * _size(item[0]) if item else 0)
    if isinstance(item, dict):
        return 200 + sum(_size(v) for v in item.values())
    nbytes = getattr(item, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else 64
