"""Columns that can be kept: private copies that nobody outside can change.

A stage's result is also handed to the user, may be a view of a source, or lie in shared memory that
a worker wants back. `owned` copies all of it; its arrays are read-only. `lent` is what may be given
out again: read-only arrays are shared, containers are built anew.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from silva.columns.array import Array
from silva.columns.column import Column
from silva.columns.grouped import Grouped
from silva.columns.lists import Lists
from silva.columns.strings import Strings
from silva.columns.values import Values

_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


def owned(column: Column) -> Column:
    """A copy of the column that shares nothing with it."""
    match column:
        case Array():
            return Array(_copy(column.data), _optional(column.valid))
        case Lists():
            first, last = int(column.offsets[0]), int(column.offsets[-1])
            inner = owned(column.values.slice(first, last))
            return Lists(inner, _copy(column.offsets - first), _optional(column.valid))
        case Grouped():
            return Grouped(owned(column.unique), _copy(column.inverse), column.distinct)
        case Strings():
            return column.take(np.arange(len(column)))
        case Values():
            return Values([_keep(x) for x in column.items])
    return copy.deepcopy(column)


def frozen(column: Column) -> Column:
    """The column, with its own arrays made read-only."""
    match column:
        case Array():
            column.data.flags.writeable = False
        case Lists():
            frozen(column.values)
            column.offsets.flags.writeable = False
        case Grouped():
            frozen(column.unique)
            column.inverse.flags.writeable = False
    return column


def lent(column: Column) -> Column:
    """The column without any container that a change by the receiver would change for all."""
    match column:
        case Values() if not all(_is_fixed(kind) for kind in column.kinds):
            return Values([_lend(x) for x in column.items])
        case Lists():
            return Lists(lent(column.values), column.offsets, column.valid)
        case Grouped():
            return Grouped(lent(column.unique), column.inverse, column.distinct)
    return column


def _is_fixed(kind: type) -> bool:
    """Values of this type cannot be changed; scalars of numpy are, but for structured ones."""
    return kind in _UNCHANGEABLE or (issubclass(kind, np.generic) and kind is not np.void)


def _copy(data: np.ndarray) -> np.ndarray:
    out = data.copy(order="K")  # the layout decides the order in which floats are summed
    out.flags.writeable = False
    return out


def _optional(data: np.ndarray | None) -> np.ndarray | None:
    return None if data is None else _copy(data)


def _is_plain(item: Any) -> bool:
    return type(item) in (np.ndarray, np.memmap) and not item.dtype.hasobject


def _keep(item: Any) -> Any:
    if _is_fixed(type(item)):
        return item
    return _copy(item) if _is_plain(item) else _rebuilt(item, _keep)


def _lend(item: Any) -> Any:
    return item if _is_fixed(type(item)) or _is_plain(item) else _rebuilt(item, _lend)


def _rebuilt(item: Any, each: Any) -> Any:
    kind = type(item)
    if kind is list:
        return [each(x) for x in item]
    if kind is tuple:
        return tuple(each(x) for x in item)
    if kind is dict:
        return {key: each(x) for key, x in item.items()}
    return copy.deepcopy(item)
