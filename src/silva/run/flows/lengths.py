"""The lengths of rows, by which buckets and token budgets group them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sized
from typing import Any

import numpy as np

from silva.columns import Array, Block, Lists
from silva.errors import ColumnError
from silva.physical.stage.context import key_at


def item_lengths(block: Block, name: str, axis: int | None) -> Iterable[int]:
    """The length of each row of a column, along `axis` where it has several dimensions: a number
    stands for itself, a sequence for its length. A row that has none is an error when its turn
    comes, whatever block it is in."""
    column = block.columns[name]
    if axis is None and isinstance(column, Array | Lists) and column.valid is None:
        lengths: list[int]
        if isinstance(column, Lists):
            lengths = np.diff(column.offsets).tolist()
            return lengths
        if column.data.ndim == 1 and column.data.dtype.kind in "iu":
            lengths = column.data.tolist()
            return lengths
    return (
        _length(row, axis, functools.partial(_where, block, name, i))
        for i, row in enumerate(column.rows())
    )


def _where(block: Block, name: str, row: int) -> str:
    return f"row {key_at(block.ids, block.places, row)} of column {name!r}"


def _length(row: Any, axis: int | None, where: Callable[[], str]) -> int:
    if type(row) is int and axis is None:
        return row
    shape = getattr(row, "shape", None)
    if shape is None and isinstance(row, Sized) and not isinstance(row, dict):
        shape = (len(row),)
    if not shape:
        hint = ""
        if isinstance(row, float):
            hint = "; round up first, derive(frames=lambda seconds: math.ceil(seconds * 100))"
        raise ColumnError(
            f"{where()} must be a length (a whole number) or a sequence, not {row!r:.60}{hint}"
        )
    if axis is None and len(shape) > 1:
        raise ColumnError(
            f"{where()} has the shape {tuple(shape)}: say which axis is its length, e.g. axis=-1 "
            "for the last one"
        )
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise ColumnError(f"{where()} has the shape {tuple(shape)}, and no axis {axis}")
    return int(shape[axis or 0])
