"""Turns row values into a column, and into the value that a batch holds.

The type of a batch is a function of its own rows, and a per-row function sees the same values
wherever blocks begin. So a block may become an array only if *every* sub-run of it would get the
same type and give the same rows back: all ints, all floats, all arrays of one shape. Anything else
(ints among floats, None, lists) stays `Values`, and is decided batch by batch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from silva.columns.allocation import empty
from silva.columns.column import Allocate, Array, Column, is_masked_array
from silva.columns.ragged import Ragged
from silva.columns.union import common_dtype
from silva.columns.values import PLAIN, Values
from silva.errors import ColumnError

_NUMBERS = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64)}
_OWN = frozenset({np.bool_, np.int64, np.float64})
"""Numpy scalars that come back from an array as Python numbers."""


def settle(values: Values, allocate: Allocate = empty) -> Column:
    """The densest column of these rows for which every slice has the type of its own rows."""
    if len(values.kinds) != 1:
        return values
    (kind,) = values.kinds
    if kind in _NUMBERS:
        try:
            return Array(np.fromiter(values.items, _NUMBERS[kind], len(values)))
        except OverflowError:  # beyond int64: Python's integers are kept as they are
            return values
    if kind is np.ndarray or kind is np.memmap:
        return _settle_arrays(values, allocate)
    if issubclass(kind, np.number | np.bool_ | np.datetime64):
        dtypes = {x.dtype for x in values.items}
        return Array(np.array(values.items)) if len(dtypes) == 1 else values
    return values


def _settle_arrays(values: Values, allocate: Allocate) -> Column:
    items: list[np.ndarray] = values.items
    shape, dtype = items[0].shape, items[0].dtype
    if dtype.hasobject or any(x.shape != shape or x.dtype != dtype for x in items):
        return values
    out = allocate((len(items), *shape), dtype)
    np.stack(items, out=out)
    return Array(out)


def batch_of_rows(items: list[Any]) -> Any:
    """The value of a batch of exactly these rows: an array, a `Ragged`, or an object array."""
    if not items:
        return np.empty(0)
    values = Values(items)
    settled = settle(values)
    if isinstance(settled, Array):
        return settled.data
    if type(None) in values.kinds:
        return _with_nulls(items)
    if values.kinds == {np.ndarray} and all(x.ndim and x.dtype != object for x in items):
        return _arrays(items)
    if not values.kinds <= PLAIN:
        items = [plain_item(x) for x in items]
    if all(isinstance(x, bool | int | float | complex | np.number | np.bool_) for x in items):
        return _numbers(items)
    if all(isinstance(x, np.ndarray) and x.dtype != object for x in items):
        return _arrays(items)
    if all(isinstance(x, list | tuple) or _is_vector(x) for x in items):
        return _lists(items)
    return object_array(items)


def as_numpy(item: Any) -> Any:
    """A torch tensor as an array that shares its memory; anything else unchanged."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item, torch.Tensor):
        return item.detach().cpu().numpy()
    return item


def plain_item(item: Any) -> Any:
    """The form of an item that does not depend on where blocks begin: a settled block returns
    int64, float64 and bool as Python numbers, and an array without dimensions as a scalar."""
    item = as_numpy(item)
    if type(item) in (np.ndarray, np.memmap) and item.ndim == 0 and item.dtype.kind in "biufcmM":
        item = item[()]
    return item.item() if type(item) in _OWN else item


def _is_vector(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim == 1


def _with_nulls(items: list[Any]) -> Any:
    present = [x for x in items if x is not None]
    inner = batch_of_rows(present)
    if not present or type(inner) is not np.ndarray or inner.dtype == object:
        return object_array(items)
    valid = np.array([x is not None for x in items])
    data = np.zeros((len(items), *inner.shape[1:]), dtype=inner.dtype)
    data[valid] = inner
    return Array(data, valid).batch()


def _numbers(items: list[Any]) -> np.ndarray:
    dtype = common_dtype({_NUMBERS.get(type(x)) or _dtype_of(x) for x in items})
    try:
        return object_array(items) if dtype.hasobject else np.array(items, dtype=dtype)
    except OverflowError:
        return object_array(items)


def _dtype_of(item: Any) -> np.dtype:
    if isinstance(item, np.generic):
        return item.dtype
    kinds = (kind for kind in _NUMBERS if isinstance(item, kind))  # an IntEnum is an int, too
    return _NUMBERS.get(next(kinds, complex), np.dtype(complex))


def _arrays(items: list[np.ndarray]) -> Any:
    dtype = common_dtype({x.dtype for x in items})
    shapes = {x.shape for x in items}
    if dtype.hasobject or (len(shapes) > 1 and () in shapes):
        return object_array(items)
    if any(is_masked_array(x) for x in items):
        return np.ma.stack(items) if len(shapes) == 1 else object_array(items)
    if len(shapes) == 1:
        return np.stack([x.astype(dtype, copy=False) for x in items])
    if all(len(shape) == 1 for shape in shapes):
        return Ragged(np.concatenate(items).astype(dtype, copy=False), _offsets(items))
    shown = ", ".join(map(str, sorted(shapes)[:4])) + (", …" if len(shapes) > 4 else "")
    raise ColumnError(
        f"rows of different shapes cannot be one array: {shown}. Resize or crop them to one "
        "shape, use batch(pad=…), or give batch(collate=…) a function of your own."
    )


def _lists(items: list[Any]) -> Any:
    inner = batch_of_rows([x for row in items for x in row])
    if is_masked_array(inner):
        return object_array(items)
    return Ragged(inner, _offsets(items))


def _offsets(items: list[Any]) -> np.ndarray:
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in items], out=offsets[1:])
    return offsets


def object_array(items: list[Any]) -> np.ndarray:
    """An object array of the items, with scalars in the form of `plain_item`."""
    plain = Values(items).kinds <= PLAIN
    return np.fromiter(items if plain else map(_object, items), object, len(items))


def _object(item: Any) -> Any:
    item = plain_item(item)
    return item[()] if type(item) is np.ndarray and not item.ndim else item
