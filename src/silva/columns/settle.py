"""From row values to a column, and to the value that a batch shows.

The type of a batch is a function of its own rows, and a per-row function sees the same values
wherever blocks begin. A block may therefore be turned into an array as a whole only if *every*
sub-run of it would get the same type and give the same rows back: all ints, all floats, all
arrays of one shape. Anything else (ints among floats, None, lists) stays `Values`, and is decided
batch by batch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from silva.columns.array import Array
from silva.columns.column import Allocate, Column
from silva.columns.ragged import Ragged
from silva.columns.recycle import empty
from silva.columns.values import Values
from silva.errors import ColumnError

_NUMBERS = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64)}


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
    """What a batch of exactly these rows shows: an array, a `Ragged`, or an object array."""
    if not items:
        return np.empty(0)
    settled = settle(Values(items))
    if isinstance(settled, Array):
        return settled.data
    if any(item is None for item in items):
        return _with_nulls(items)
    if "torch" in sys.modules:
        items = [_from_torch(x) for x in items]
    if all(isinstance(x, bool | int | float | complex | np.number | np.bool_) for x in items):
        return _numbers(items)
    if all(isinstance(x, np.ndarray) and x.dtype != object for x in items):
        return _arrays(items)
    if all(isinstance(x, list | tuple) or _is_vector(x) for x in items):
        return _lists(items)
    return _objects(items)


def _from_torch(item: Any) -> Any:
    tensor = sys.modules["torch"].Tensor
    return item.detach().cpu().numpy() if isinstance(item, tensor) else item


def _is_vector(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim == 1


def _with_nulls(items: list[Any]) -> Any:
    present = [x for x in items if x is not None]
    inner = batch_of_rows(present)
    if not present or not isinstance(inner, np.ndarray) or inner.dtype == object:
        return _objects(items)
    valid = np.array([x is not None for x in items])
    data = np.zeros((len(items), *inner.shape[1:]), dtype=inner.dtype)
    data[valid] = inner
    return Array(data, valid).batch()


def _numbers(items: list[Any]) -> np.ndarray:
    dtypes = {
        x.dtype if isinstance(x, np.generic) else _NUMBERS.get(type(x), np.dtype(complex))
        for x in items
    }
    try:
        return np.array(items, dtype=np.result_type(*sorted(dtypes, key=str)))
    except OverflowError:
        return _objects(items)


def _arrays(items: list[np.ndarray]) -> Any:
    dtype = np.result_type(*sorted({x.dtype for x in items}, key=str))
    shapes = {x.shape for x in items}
    if any(isinstance(x, np.ma.MaskedArray) for x in items):
        return np.ma.stack(items) if len(shapes) == 1 else _objects(items)
    if len(shapes) == 1:
        return np.stack(items).astype(dtype, copy=False)
    if all(len(shape) == 1 for shape in shapes):
        return Ragged(np.concatenate(items).astype(dtype, copy=False), _offsets(items))
    shown = ", ".join(map(str, sorted(shapes)[:4])) + (", …" if len(shapes) > 4 else "")
    raise ColumnError(
        f"rows of different shapes cannot be one array: {shown}. Resize or crop them to one "
        "shape, use batch(pad=…), or give batch(collate=…) a function of your own."
    )


def _lists(items: list[Any]) -> Any:
    inner = batch_of_rows([x for row in items for x in row])
    if isinstance(inner, np.ma.MaskedArray):
        return _objects(items)
    return Ragged(inner, _offsets(items))


def _offsets(items: list[Any]) -> np.ndarray:
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in items], out=offsets[1:])
    return offsets


def _objects(items: list[Any]) -> np.ndarray:
    out = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):  # a slice assignment would unpack equal-length sequences
        out[i] = item
    return out
