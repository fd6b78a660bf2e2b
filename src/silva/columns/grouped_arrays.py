"""Arrays whose distinct rows are found when somebody first asks for them.

Batches of an array are slices, which cost less than finding rows that are equal. So the groups of a
batch are found when its `values` or `inverse` are first read, together with those of its
neighbours, which are then made with their groups; `expand()`, which needs neither, copies the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from silva.columns.codes import row_keys
from silva.columns.column import Array, Column
from silva.columns.number_runs import appearance_in_each
from silva.columns.ragged import Grouped

_ROWS = 8192
"""Rows that are grouped together, about: many, since each batch by itself costs calls of numpy; and
no more, since the system takes back the memory of large arrays, and clears it for the next one."""
_Found = tuple[dict[str, list[np.ndarray]], list[np.ndarray]]
"""For each batch, the distinct rows of each column, and the index."""


class GroupedArrays:
    """Columns of one group, in batches of `size` rows.

    >>> groups = GroupedArrays({"x": np.array([7, 7, 3, 3])}, 2)
    >>> first, second = groups.batches("x")
    >>> second.expand().tolist(), second.values.tolist(), second.inverse.tolist()
    ([3, 3], [3], [0, 0])
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], size: int) -> None:
        self._arrays, self.size = arrays, size
        self._together = max(_ROWS // size, 1)
        """Batches that are grouped together."""
        self._found: dict[int, _Found] = {}
        """By the number of the first of these batches."""

    def batches(self, name: str) -> Iterator[Grouped]:
        """Each batch of a column."""
        count = len(self._arrays[name]) // self.size
        for begin in range(0, count, self._together):
            for number in range(begin, min(begin + self._together, count)):
                if begin in self._found:  # who has read one batch reads the others
                    values, inverse = self._found[begin]
                    left = slice(number - begin, None)
                    yield from map(_grouped, values[name][left], inverse[left])
                    break
                made = _GroupedLater()
                made.later = self, name, number
                yield made

    def rows(self, name: str, batch: int) -> np.ndarray:
        """The rows of a batch, copied."""
        return self._arrays[name][batch * self.size : (batch + 1) * self.size].copy()

    def groups(self, name: str, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct rows of a batch, and the index, which all columns of the group share."""
        begin = batch // self._together * self._together
        found = self._found.get(begin)
        if found is None:  # where two threads find them, those of the first
            found = self._found.setdefault(begin, self._find(begin))
        values, inverse = found
        return values[name][batch - begin], inverse[batch - begin]

    def _find(self, begin: int) -> _Found:
        rows = slice(begin * self.size, (begin + self._together) * self.size)
        arrays = {name: data[rows] for name, data in self._arrays.items()}
        keys = row_keys([Array(data) for data in arrays.values()])
        first, number, bounds = appearance_in_each(keys, self.size)
        values = {
            name: list(map(data[first].__getitem__, map(slice, bounds, bounds[1:])))
            for name, data in arrays.items()
        }
        return values, list(number.reshape(-1, self.size))


def _grouped(values: np.ndarray, inverse: np.ndarray) -> Grouped:
    """A `Grouped` of arrays: half of the time of its constructor, which sets attributes of a frozen
    class one by one."""
    made = object.__new__(Grouped)
    made.__dict__.update(values=values, offsets=None, inverse=inverse)
    return made


class _GroupedLater(Grouped):
    """A batch whose groups nobody has read yet; whoever does makes it a `Grouped`."""

    __module__, __qualname__ = Grouped.__module__, Grouped.__qualname__  # for who asks for its type
    later: tuple[GroupedArrays, str, int]
    """The groups, the column, and the number of the batch."""
    __init__ = object.__init__  # one call less for each batch
    __setattr__ = object.__setattr__

    @property
    def values(self) -> Any:
        return self._read().values

    @property
    def offsets(self) -> Any:
        return self._read().offsets

    @property
    def inverse(self) -> Any:
        return self._read().inverse

    def _read(self) -> Grouped:
        later = self.__dict__.get("later")
        if later is not None:  # no other thread has read them in the meantime
            groups, column, batch = later
            values, inverse = groups.groups(column, batch)
            self.__dict__.update(values=values, offsets=None, inverse=inverse)
            self.__class__ = Grouped  # type: ignore[assignment]
            self.__dict__.pop("later", None)
        return self

    def __len__(self) -> int:
        later = self.__dict__.get("later")
        return len(self.inverse) if later is None else later[0].size

    def expand(self) -> Any:
        later = self.__dict__.get("later")
        if later is None:
            return super().expand()
        groups, name, batch = later
        return groups.rows(name, batch)

    def __reduce__(self) -> tuple[type[Grouped], tuple[Any, Any, Any]]:
        return Grouped, (self.values, self.offsets, self.inverse)


def grouped_arrays(
    names: Sequence[str], columns: Mapping[str, Column], size: int
) -> GroupedArrays | None:
    """The group of these columns; None where it has to be found at once, since rows are not those
    of arrays, or can be changed through another column of the batch."""
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        column = columns[name]
        if not isinstance(column, Array) or column.valid is not None or not size:
            return None
        if column.data.dtype.hasobject:
            return None
        arrays[name] = column.data
    others = [c.data for n, c in columns.items() if n not in arrays and isinstance(c, Array)]
    if any(np.may_share_memory(ours, data) for ours in arrays.values() for data in others):
        return None
    return GroupedArrays(arrays, size)
