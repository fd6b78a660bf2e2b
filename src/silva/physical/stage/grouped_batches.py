"""Batches of one block with grouped columns, made all at once.

The distinct rows of all batches are found and copied together, so that a batch costs slices only:
less than the copies of rows that repeat. Those of arrays are found when they are first read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from silva.columns import Array, Block, Column
from silva.columns.codes import row_keys, rows_at
from silva.columns.grouped_arrays import grouped_arrays
from silva.columns.number_runs import appearance_in_each
from silva.columns.ragged import Grouped
from silva.errors import ColumnError
from silva.physical.stage.batch_value import (
    batch_value,
    batches_of,
    column_batch,
    rows_together,
    writable,
)


def grouped_batches(
    block: Block, size: int, pad: Any, grouped: tuple[tuple[str, ...], ...]
) -> Iterator[dict[str, Any]]:
    """The values of `batch_value` of each `size` rows of a block."""
    whole = range(0, len(block) + 1, size)
    each: dict[str, Iterator[Any]] = {}
    try:
        for names in grouped:
            each |= _group(names, block.columns, size, pad)
    except ColumnError:  # of a later batch, perhaps: those before it come first
        for at in range(0, len(block) - size + 1, size):
            yield batch_value(block.slice(at, at + size), pad, grouped).values
        return
    yield from batches_of(
        {n: each.get(n) or _cut(n, c, whole, pad) for n, c in block.columns.items()}
    )


def _group(
    names: tuple[str, ...], columns: dict[str, Column], size: int, pad: Any
) -> dict[str, Iterator[Any]]:
    """The batches of the columns of one group."""
    arrays = grouped_arrays(names, columns, size)
    if arrays is not None:
        return {name: arrays.batches(name) for name in names}
    first, number, bounds = appearance_in_each(row_keys([columns[name] for name in names]), size)
    inverse = list(number.reshape(-1, size))
    distinct = {name: _cut(name, rows_at(columns[name], first), bounds, pad) for name in names}
    return {name: map(Grouped.of, rows, inverse) for name, rows in distinct.items()}


def _cut(name: str, column: Column, bounds: Sequence[int], pad: Any) -> Iterator[Any]:
    """The rows of a column between the bounds, as batches hold them."""
    if isinstance(column, Array) and column.valid is None:
        data = writable(column.data)
        if isinstance(bounds, range) and data.flags.c_contiguous:
            return iter(rows_together(data, bounds.step, len(bounds) - 1))
        return map(data.__getitem__, map(slice, bounds, bounds[1:]))
    parts = map(column.slice, bounds, bounds[1:])
    return (column_batch(name, part, pad) for part in parts)
