"""What a batch shows for rows of different lengths: values and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns.column import is_masked_array
from silva.errors import ColumnError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row `i` is `values[offsets[i]:offsets[i + 1]]`.

    >>> tokens = Ragged(np.array([5, 6, 7]), np.array([0, 2, 3]))
    >>> [row.tolist() for row in tokens]
    [[5, 6], [7]]
    >>> tokens.padded(0).tolist()
    [[5, 6], [7, 0]]
    """

    values: Any
    """A numpy array, or a `Ragged` of the next level."""
    offsets: np.ndarray
    """One more than there are rows, starting at 0."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        return _rows(self.values, start, stop)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def padded(self, value: Any = 0, length: int | None = None) -> np.ndarray:
        """A dense array: rows shorter than `length` (default: the longest) end with `value`."""
        if isinstance(self.values, Ragged):
            raise ColumnError("only one ragged level can be padded; pad the inner lists first")
        lengths = self.lengths
        longest = int(lengths.max(initial=0))
        width = longest if length is None else length
        if longest > width:
            raise ColumnError(f"a row of length {longest} does not fit into pad length {width}")
        within = np.arange(width) < lengths[:, None]
        out = filled((len(self), width, *self.values.shape[1:]), value, self.values.dtype)
        out[within] = self.values
        if is_masked_array(self.values):
            missing = np.zeros(out.shape, np.ma.make_mask_descr(out.dtype))
            missing[within] = np.ma.getmaskarray(self.values)
            return np.ma.MaskedArray(out, mask=missing)
        return out


def _rows(values: Any, start: int, stop: int) -> Any:
    """Rows of one level, with their own items of the levels below."""
    if not isinstance(values, Ragged):
        return values[start:stop]
    offsets = values.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return Ragged(_rows(values.values, first, last), offsets - first)


def filled(shape: tuple[int, ...], value: Any, dtype: np.dtype) -> np.ndarray:
    """An array full of a pad value."""
    try:
        return np.full(shape, value, dtype=dtype)
    except (OverflowError, TypeError, ValueError):
        raise ColumnError(f"rows of {dtype} cannot be padded with {value!r}") from None
