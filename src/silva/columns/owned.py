"""Private copies of columns, which nobody outside can change.

A stage's result is also handed to the user, may be a view of a source, or lie in shared memory that
a worker reuses. `owned` copies all of it; its arrays are read-only. `lent` is what may be handed
out again: arrays are shared and read-only; containers are copied deeply, since the receiver may
change them.
"""

from __future__ import annotations

import array
import copy
import dataclasses
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from silva.columns.column import Array, Column, Strings
from silva.columns.dictionary import Dictionary
from silva.columns.lists import Lists
from silva.columns.union import Union
from silva.columns.values import Values

_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONTAINERS = (list, tuple, dict, set, bytearray, deque, array.array)


def owned(column: Column) -> Column:
    """A copy that shares nothing with the column."""
    match column:
        case Array():
            return Array(_copy(column.data), _optional(column.valid))
        case Lists():
            first, last = int(column.offsets[0]), int(column.offsets[-1])
            inner = owned(column.values.slice(first, last))
            return Lists(inner, _copy(column.offsets - first), _optional(column.valid))
        case Dictionary():
            return Dictionary(owned(column.unique), _copy(column.inverse), column.distinct)
        case Union():
            return Union(tuple(map(owned, column.parts)), _copy(column.which))
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
        case Dictionary():
            frozen(column.unique)
            column.inverse.flags.writeable = False
        case Union():
            for part in column.parts:
                frozen(part)
            column.which.flags.writeable = False
    return column


def lent(column: Column) -> Column:
    """The column in a form that the receiver may change without changing it for others."""
    return _map_items(column, lambda item: _lend(item, copy.deepcopy))


def without_shared_containers(column: Column) -> Column:
    """The column with copies of its containers, as a source in memory hands it out. Objects of
    other types are not copied: what that costs, or means, is unknown."""
    return _map_items(column, lambda item: _lend(item, _as_it_is))


def may_change(column: Column) -> bool:
    """Whether rows of the column, or their items, may be containers or other objects that can be
    written into."""
    match column:
        case Values():
            return not all(map(is_fixed, column.kinds))
        case Lists():
            return may_change(column.values)
        case Dictionary():
            return may_change(column.unique)
        case Union():
            return any(map(may_change, column.parts))
    return False


def _map_items(column: Column, each: Callable[[Any], Any]) -> Column:
    match column:
        case Values() if may_change(column):
            copies = _flat_copies(column) or list(map(each, column.items))
            return Values(copies, column.kinds)
        case Lists() if may_change(column.values):
            first, last = int(column.offsets[0]), int(column.offsets[-1])
            inner = _map_items(column.values.slice(first, last), each)
            return Lists(inner, column.offsets - first, column.valid)
        case Dictionary():
            unique = _map_items(column.unique, each)
            return Dictionary(unique, column.inverse, column.distinct)
        case Union():
            return Union(tuple(_map_items(part, each) for part in column.parts), column.which)
    return column


def _flat_copies(column: Values) -> list[Any] | None:
    """Copies of rows that are lists or dicts of immutable values, several times as fast as one by
    one; None for other rows."""
    if column.kinds == {list}:
        return (
            list(map(list.copy, column.items))
            if _is_flat(chain.from_iterable(column.items))
            else None
        )
    if column.kinds == {dict}:
        values = chain.from_iterable(map(dict.values, column.items))
        return list(map(dict.copy, column.items)) if _is_flat(values) else None
    return None


def private(item: Any) -> Any:
    """A writable copy of a row's value that shares nothing with it."""
    return _private(item, copy.deepcopy)


def private_container(item: Any) -> Any:
    """A writable copy of arrays and containers; objects of other types, also within them, are
    shared."""
    return _private(item, _as_it_is)


def plain_copy(item: Any) -> Any:
    """A writable copy of a row's value that shares nothing with it. A `TypeError` if it holds an
    object of another type than arrays, containers and plain values: what copying that costs, or
    means, is unknown.

    >>> plain_copy([{"a": 1}])
    [{'a': 1}]
    """
    try:
        return _rebuilt(item, _refuse)
    except RecursionError:
        raise TypeError("it is nested too deeply") from None


def is_fixed(kind: type) -> bool:
    """Whether values of this type are immutable, as numpy scalars are, except structured ones."""
    return kind in _UNCHANGEABLE or (issubclass(kind, np.generic) and kind is not np.void)


def is_record(item: Any) -> bool:
    """Whether the item is an object of a dataclass."""
    return dataclasses.is_dataclass(item) and not isinstance(item, type)


def _as_it_is(item: Any) -> Any:
    return item


def _refuse(item: Any) -> Any:
    raise TypeError(f"{type(item).__name__} is no plain value")


def _lend(item: Any, other: Callable[[Any], Any]) -> Any:
    if not _is_plain(item):
        return _private(item, other)
    if item.flags.writeable:
        item = item.view()
        item.flags.writeable = False
    return item


def _private(item: Any, other: Callable[[Any], Any]) -> Any:
    try:
        return _rebuilt(item, other)
    except RecursionError:  # it contains itself, or is nested too deeply
        try:
            return copy.deepcopy(item)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  it cannot be copied at all
            return item


def _rebuilt(item: Any, other: Callable[[Any], Any]) -> Any:
    kind = type(item)
    if is_fixed(kind):
        return item
    if kind is list:
        return item.copy() if _is_flat(item) else [_rebuilt(x, other) for x in item]
    if kind is tuple:
        return item if _is_flat(item) else tuple(_rebuilt(x, other) for x in item)
    if kind is dict:
        if _is_flat(item.values()):
            return item.copy()
        return {key: _rebuilt(x, other) for key, x in item.items()}
    if kind is set or kind is bytearray:
        return item.copy()
    if isinstance(item, np.ndarray) and not item.dtype.hasobject:
        return item.copy(order="K")
    if kind is np.ndarray and item.dtype == object:
        out = np.empty(item.size, dtype=object)
        for i, x in enumerate(item.ravel()):  # a slice assignment would unpack lists
            out[i] = _rebuilt(x, other)
        return out.reshape(item.shape)
    if isinstance(item, (*_CONTAINERS, np.ndarray)) or is_record(item):
        try:
            return copy.deepcopy(item)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  it holds an object that cannot be copied
            return other(item)
    return other(item)


def _is_flat(items: Any) -> bool:
    """Whether all items are of Python's own immutable types."""
    return _UNCHANGEABLE.issuperset(map(type, items))


def _copy(data: np.ndarray) -> np.ndarray:
    out = data.copy(order="K")  # the layout decides the order in which floats are summed
    out.flags.writeable = False
    return out


def _optional(data: np.ndarray | None) -> np.ndarray | None:
    return None if data is None else _copy(data)


def _is_plain(item: Any) -> bool:
    return type(item) in (np.ndarray, np.memmap) and not item.dtype.hasobject


def _keep(item: Any) -> Any:
    return _copy(item) if _is_plain(item) else _private(item, copy.deepcopy)
