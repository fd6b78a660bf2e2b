"""Rows that are lists, from whatever holds them, as values and offsets.

Typed in, typed out; untyped in, untyped out. Arrow lists and rows that are numpy arrays of one
dtype are typed: their items are an `Array`. Python lists are not: their items stay `Values`, for
each batch to find the type of its own rows (an empty Python list has none).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from silva.columns import Array, Column, Lists, Strings, Values
from silva.operators.items.items import plain

_EXACT = (np.int64, np.float64, np.bool_)


def dense(column: Column) -> Array | None:
    """The column if its rows are arrays of one shape (fixed-size lists, a padded batch)."""
    found = plain(column)
    return found if isinstance(found, Array) and found.data.ndim > 1 else None


def read_lists(column: Column) -> Lists:
    """The rows with offsets from 0, only the values in use, and nothing within null lists."""
    column = plain(column)
    if isinstance(column, Lists):
        return _without_hidden(_trimmed(column))
    if isinstance(column, Values):
        return _from_rows(column.items)
    if isinstance(column, Array) and column.data.ndim > 1:
        rows, width = column.data.shape[:2]
        flat = column.data.reshape(rows * width, *column.data.shape[2:])
        return _without_hidden(Lists(Array(flat), np.arange(rows + 1) * width, column.valid))
    what = "text" if isinstance(column, Strings) else "single values"
    raise ValueError(f"expected lists, but the column holds {what}: use sv.num or sv.text for them")


def _trimmed(lists: Lists) -> Lists:
    first, last = int(lists.offsets[0]), int(lists.offsets[-1])
    if first == 0 and last == len(lists.values):
        return lists
    return Lists(lists.values.slice(first, last), lists.offsets - first, lists.valid)


def _without_hidden(lists: Lists) -> Lists:
    """Removes the items that Arrow allows within a null list, so that no check fails on them."""
    if lists.valid is None:
        return lists
    lengths = np.diff(lists.offsets)
    if not lengths[~lists.valid].any():
        return lists
    kept = np.where(lists.valid, lengths, 0)
    return select(lists, np.repeat(lists.valid, lengths), kept)


def select(lists: Lists, mask: np.ndarray, lengths: np.ndarray) -> Lists:
    """The items that `mask` selects; row i keeps `lengths[i]` of them."""
    values = lists.values
    if isinstance(values, Array):
        valid = None if values.valid is None else values.valid[mask]
        return Lists(Array(values.data[mask], valid), offsets_of(lengths), lists.valid)
    return Lists(values.take(np.flatnonzero(mask)), offsets_of(lengths), lists.valid)


def as_given(column: Column, lists: Lists) -> Column:
    """Lists made of these rows: rows that are arrays stay arrays, whatever their lengths, as they
    do where all are of one shape."""
    if isinstance(column, Values) and any(issubclass(kind, np.ndarray) for kind in column.kinds):
        return Values(lists.rows())
    return lists


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _from_rows(items: list[Any]) -> Lists:
    rows = [_row(x) for x in items]
    offsets = offsets_of(np.fromiter(map(len, rows), np.int64, len(rows)))
    present = [row for row, item in zip(rows, items, strict=True) if item is not None]
    valid = None
    if len(present) < len(items):
        valid = np.fromiter((x is not None for x in items), bool, len(items))
    kinds = {_kind(row) for row in present}
    if len(kinds) == 1 and None not in kinds:
        return Lists(Array(np.concatenate(present)), offsets, valid)
    return Lists(Values(list(chain.from_iterable(map(_untyped, present)))), offsets, valid)


def _row(item: Any) -> Any:
    if item is None:
        return ()
    if isinstance(item, np.ma.MaskedArray):
        return item.tolist()
    if isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim):
        return item
    if type(item).__module__.partition(".")[0] == "torch" and item.ndim:
        return item.detach().cpu().numpy()
    raise ValueError(f"expected a list, not {type(item).__name__}: {item!r:.60}")


def _kind(row: Any) -> Any:
    """What rows must agree on to be typed; None for rows that have no type."""
    if not isinstance(row, np.ndarray) or row.dtype == object:
        return None
    return row.dtype, row.shape[1:]


def _untyped(row: Any) -> Any:
    exact = isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype in _EXACT
    return row.tolist() if exact else row
