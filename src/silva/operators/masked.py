"""Rows that are arrays of which some items are missing: numpy's masked arrays.

What is missing stays missing, or the row fails. An operator that computes each item on its own
keeps the mask (`keeps_masks` in its declaration); any other would have to read what the mask hides,
so it gets no such row. Where nothing is missing, a masked array is an array like any other, and a
masked scalar is a null.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns import Array, Column, Values
from silva.columns.column import is_masked_array
from silva.columns.union import Union


def refuse_masks(name: str, column: Column, *, keeps_masks: bool) -> Column:
    """The column as the operator `name` gets it. Raises `ValueError` for a row of which a part is
    missing, unless the operator `keeps_masks`.

    >>> row = np.ma.array([1, 2], mask=[True, False])
    >>> refuse_masks("image.flip", Values([row]), keeps_masks=False)
    Traceback (most recent call last):
    ValueError: image.flip takes no array of which some items are missing (a masked array): fill \
them before, as in derive(a=lambda a: a.filled(0))
    """
    if "numpy.ma" not in sys.modules:  # then there is no masked array
        return column
    if isinstance(column, Union):
        parts = tuple(refuse_masks(name, part, keeps_masks=keeps_masks) for part in column.parts)
        return Union(parts, column.which)
    if isinstance(column, Array) and is_masked_array(column.data):
        rows = list(column.data)
        valid = [True] * len(rows) if column.valid is None else column.valid.tolist()
        column = Values([row if ok else None for row, ok in zip(rows, valid, strict=True)])
    if not holds_masked(column):
        return column

    def given(row: Any) -> Any:
        if not is_masked_array(row):
            return row
        if not missing_in(row).any():
            return np.ma.getdata(row) if row.ndim else np.ma.getdata(row)[()]
        if row.ndim == 0 or keeps_masks:
            return row if row.ndim else None
        raise ValueError(
            f"{name} takes no array of which some items are missing (a masked array): fill them "
            "before, as in derive(a=lambda a: a.filled(0))"
        )

    assert isinstance(column, Values)
    return Values([given(row) for row in column.items])


def holds_masked(column: Column) -> bool:
    """Whether a row of the column is a masked array."""
    if not isinstance(column, Values) or "numpy.ma" not in sys.modules:
        return False
    return any(issubclass(kind, np.ma.MaskedArray) for kind in column.kinds)


def missing_in(row: Any) -> np.ndarray:
    """True for each item that is missing; of rows with fields, for each field."""
    mask = np.ma.getmaskarray(row) if is_masked_array(row) else np.zeros(np.shape(row), bool)
    return np.ma.flatten_mask(mask) if mask.dtype.names else mask


def keep_mask(work: Callable[..., Any], *rows: Any) -> Any:
    """`work(*rows)`, which computes each item on its own: an item is missing where it is missing in
    one of the rows. What a mask hides is read as 1, which no check and no arithmetic refuses.

    >>> keep_mask(np.add, np.ma.array([5, 6], mask=[True, False]), 1).tolist()
    [None, 7]
    """
    missing = np.zeros((), bool)
    present = []
    for row in rows:
        if is_masked_array(row):
            hidden = missing_in(row)
            missing = missing | hidden
            data = np.ma.getdata(row).copy()
            data[hidden] = 1
            row = data
        present.append(row)
    made = np.asarray(work(*present))
    return np.ma.MaskedArray(made, mask=np.broadcast_to(missing, made.shape).copy())
