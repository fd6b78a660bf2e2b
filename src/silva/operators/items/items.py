"""A kernel over the items of a flat column, whatever holds them.

A kernel sees items of one type at a time: a numpy array, or Arrow text. Where a column holds
Python values of several types, each type is done apart, so that an item's result never depends on
its neighbours: 1 is hashed as a whole number also where the next row has 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Lists, Strings, Values
from silva.operators.masked import holds_masked, keep_mask

if TYPE_CHECKING:
    import pyarrow as pa

Kernel = Callable[[Any], np.ndarray]
"""Items of one type to as many results; the places of nulls hold zeros, and may be ignored."""

_PLAIN = {bool: np.dtype(bool), int: np.dtype(np.int64), float: np.dtype(np.float64)}
_COMMON = frozenset({*_PLAIN, str, bytes})
_EXACT = frozenset(_PLAIN.values())
"""Types whose items are Python's own numbers, so that `tolist` loses nothing."""
CHUNK = 1 << 14
"""Items that a chain of operations on 64-bit numbers does at once, to stay in the L2 cache."""


def on_items(column: Column, kernel: Kernel, dtype: Any = None) -> Column:
    """What `kernel` makes of each item; nulls stay nulls.

    `dtype` is the type of all results, or None where it follows from the items. Then Python values
    give Python values: their type is for each batch to decide, as anywhere.
    """
    column = plain(column)
    if isinstance(column, Array):
        data = column.data if column.valid is None else _zero_nulls(column)
        return Array(kernel(data), column.valid)
    if isinstance(column, Strings):
        return Array(kernel(column.data), valid_text(column.data))
    if holds_masked(column):
        return Values([row if row is None else keep_mask(kernel, row) for row in column.rows()])
    if isinstance(column, Values):
        return _on_values(column, kernel, dtype)
    raise ValueError(f"expected numbers or text, not {_kind(column)}")


def plain(column: Column) -> Column:
    """Without the forms that only batches have: masked arrays, and arrays of objects."""
    if isinstance(column, Dictionary):
        return plain(column.expand())
    if not isinstance(column, Array):
        return column
    if column.data.dtype == object:
        return Values(column.rows())
    if isinstance(column.data, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(column.data).reshape(len(column), -1)
        null = np.asarray(missing.any(axis=1))
        if not np.array_equal(missing.all(axis=1), null):
            raise ValueError("some items of an array are null: fill_null() comes before batch()")
        return Array(column.data.data, ~null)
    return column


def _zero_nulls(column: Array) -> np.ndarray:
    """A null's place may hold anything; a zero is in the range of every check."""
    assert column.valid is not None
    data = column.data.copy()
    data[~column.valid] = np.zeros((), data.dtype)
    return data


def _on_values(column: Values, kernel: Kernel, dtype: Any) -> Column:
    items = column.items
    groups = _groups(column)
    results = {kind: kernel(_typed(_at(items, found), kind)) for kind, found in groups.items()}
    if dtype is None:
        return _as_values(len(items), groups, results)
    if len(groups) == 1 and len(alone := next(iter(results.values()))) == len(items):
        return Array(alone)
    out = np.zeros(len(items), dtype)
    valid = np.zeros(len(items), dtype=bool)
    for kind, places in groups.items():
        out[places] = results[kind]
        valid[places] = True
    return Array(out, None if valid.all() else valid)


def _groups(column: Values) -> dict[Any, Sequence[int]]:
    """The places of the items of each type; those of nulls are left out."""
    kinds = column.kinds - {type(None)}
    if len(kinds) == 1 and (kind := next(iter(kinds))) in _COMMON:
        places: Sequence[int] = range(len(column))
        if type(None) in column.kinds:
            places = [i for i in places if column.items[i] is not None]
        return {_PLAIN.get(kind, kind): places}
    groups: dict[Any, Any] = {}
    for place, item in enumerate(column.items):
        if item is not None:
            groups.setdefault(_type_of(item), []).append(place)
    return groups


def _at(items: list[Any], places: Sequence[int]) -> list[Any]:
    return items if len(places) == len(items) else [items[i] for i in places]


def _as_values(
    count: int, groups: dict[Any, Sequence[int]], results: dict[Any, np.ndarray]
) -> Values:
    out: list[Any] = [None] * count
    for kind, places in groups.items():
        made = results[kind]
        found = made.tolist() if made.dtype in _EXACT else list(made)
        if len(found) == count:
            return Values(found)
        for place, item in zip(places, found, strict=True):
            out[place] = item
    return Values(out)


def _type_of(item: Any) -> Any:
    """What an item is grouped by: a dtype, or `str` or `bytes`."""
    kind = type(item)
    if kind in _COMMON:
        return _PLAIN.get(kind, kind)
    if isinstance(item, np.generic) or (isinstance(item, np.ndarray) and item.ndim == 0):
        if item.dtype.kind in "biufmM":
            return item.dtype
    elif isinstance(item, str | bytes | int | float):  # a subclass, such as an enum
        base = next(t for t in (str, bytes, int, float) if isinstance(item, t))
        return _PLAIN.get(base, base)
    raise ValueError(f"expected a number or text, not {kind.__name__}: {item!r:.60}")


def _typed(items: list[Any], kind: Any) -> Any:
    if kind in (str, bytes):
        import pyarrow as pa

        return pa.array(items, pa.large_string() if kind is str else pa.large_binary())
    try:
        return np.array(items, kind)
    except OverflowError:
        big = next(x for x in items if not -(1 << 63) <= x < 1 << 63)
        raise ValueError(f"{big} does not fit into 64 bits") from None


def valid_text(text: pa.Array) -> np.ndarray | None:
    import pyarrow as pa

    if text.null_count == 0:
        return None
    flags: np.ndarray = text.is_valid().cast(pa.uint8()).to_numpy().astype(bool)
    return flags


def shared(array: np.ndarray) -> np.ndarray:
    """For a result that is an input, or a part of it: read-only, so that a batch copies it."""
    view = array.view()
    view.flags.writeable = False
    return view


def numbers(data: Any, kinds: str = "biuf") -> np.ndarray:
    """The items as numbers of these kinds, or an error that says what they are."""
    if isinstance(data, np.ndarray) and data.dtype.kind in kinds:
        return data
    found = data.dtype.name if isinstance(data, np.ndarray) else "text"
    raise ValueError(f"expected {'whole ' if 'f' not in kinds else ''}numbers, not {found}")


def with_value(dtype: np.dtype, value: bool | float) -> np.dtype:
    """The type of a column that also holds a Python number; it stays as it is where it can."""
    try:
        found = np.result_type(dtype, value)
        np.array(value, found)
    except OverflowError:
        raise ValueError(f"{dtype} cannot hold {value}") from None
    return found


def chunks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Matching pieces of arrays of one shape. Only the first, which is read, may be strided."""
    flat = [np.ascontiguousarray(arrays[0]).reshape(-1), *(a.reshape(-1) for a in arrays[1:])]
    for start in range(0, len(flat[0]), CHUNK):
        yield tuple(a[start : start + CHUNK] for a in flat)


def _kind(column: Column) -> str:
    return "lists" if isinstance(column, Lists) else type(column).__name__
