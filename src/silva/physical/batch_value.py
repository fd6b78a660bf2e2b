"""A batch as the user will see it, made of its rows and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Block, Column, Ragged, Values
from silva.columns.codes import rows_at, together
from silva.columns.grouped_batch import Grouped
from silva.errors import ColumnError


@dataclass(frozen=True, eq=False)
class BatchValue:
    """One batch: what the user will see, and the identity of its first row."""

    values: dict[str, Any]
    rows: int
    id: int
    place: int | None

    @property
    def nbytes(self) -> int:
        return sum(map(nbytes_of, self.values.values()))

    def __len__(self) -> int:
        return 1


def nbytes_of(value: Any) -> int:
    return int(getattr(value, "nbytes", 64))


def batch_value(block: Block, pad: Any, grouped: tuple[tuple[str, ...], ...] = ()) -> BatchValue:
    """The batch of exactly these rows; columns named in `grouped` once for each distinct row."""
    columns = dict(block.columns)
    inverse: dict[str, np.ndarray] = {}
    for names in grouped:
        first, number = _distinct(names, columns)
        columns |= {name: rows_at(columns[name], first) for name in names}
        inverse |= dict.fromkeys(names, number)
    values = {name: column_batch(name, column, pad) for name, column in columns.items()}
    values |= {name: Grouped.of(values[name], number) for name, number in inverse.items()}
    place = None if block.places is None or not len(block) else int(block.places[0])
    return BatchValue(values, len(block), int(block.ids[0]) if len(block) else 0, place)


def _distinct(names: tuple[str, ...], columns: dict[str, Column]) -> tuple[np.ndarray, np.ndarray]:
    try:
        return together([columns[name] for name in names])
    except ColumnError as error:
        shown = ", ".join(map(repr, names))
        raise ColumnError(f"batch(grouped=…), column {shown}: {error}") from None


def column_batch(name: str, column: Column, pad: Any) -> Any:
    """One column of a batch: padded where asked, writable, never shared with a source."""
    try:
        value = _padded(name, column, pad)
    except ColumnError as error:
        raise ColumnError(f"column {name!r}: {error}") from None
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if isinstance(value, Ragged):
        inner = value.values
        if isinstance(inner, np.ndarray) and not inner.flags.writeable:
            return Ragged(inner.copy(), value.offsets)
    return value


def _padded(name: str, column: Column, pad: Any) -> Any:
    if pad is None or (isinstance(pad, dict) and name not in pad):
        return column.batch()
    fill = pad[name] if isinstance(pad, dict) else pad
    if isinstance(column, Values) and any(_dims(x) > 1 for x in column.items):
        return _pad_arrays(column.items, fill)
    value = column.batch()
    if isinstance(value, Ragged) and isinstance(value.values, np.ndarray):
        return value.padded(fill) if value.values.dtype != object else value
    return value


def _dims(item: Any) -> int:
    return int(getattr(item, "ndim", 0))


def _pad_arrays(items: list[np.ndarray], fill: Any) -> np.ndarray:
    """Arrays of different shapes in one, each in the corner at the origin."""
    ranks = {x.ndim for x in items}
    if len(ranks) > 1:
        raise ColumnError(f"rows of {sorted(ranks)} dimensions cannot be padded to one shape")
    shape = np.max([x.shape for x in items], axis=0)
    dtype = np.result_type(*sorted({x.dtype for x in items}, key=str))
    out = np.full((len(items), *shape), fill, dtype=dtype)
    for row, x in zip(out, items, strict=True):
        row[tuple(slice(0, n) for n in x.shape)] = x
    return out
