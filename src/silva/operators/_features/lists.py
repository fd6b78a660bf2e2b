"""Kernels on lists: which items there are, and where they stand.

Laws, exact and tested; `f` is an operator on items (hash, modulo, clip, log1p, bucketize):
    truncate(n)(truncate(m)(x)) = truncate(min(n, m))(x)  on the same side
    f(truncate(n)(x)) = truncate(n)(f(x))  where f does not fail on what is cut off
    embed(t)(truncate(n)(x)) = truncate(n)(embed(t)(x))  likewise
    unique(unique(x)) = unique(x)
    length(f(x)) = length(x)
    length(truncate(n)(x)) = clip(high=n)(length(x))

Not laws:
    sides: truncate(2, "left")(truncate(2)([1, 2, 3])) = [1, 2], the other way round [2, 3]
    unique(truncate(2)([1, 1, 2])) = [1], but truncate(2)(unique([1, 1, 2])) = [1, 2]
    unique(hash(x)) = hash(unique(x)): two values may share a bucket
    embed(t)(pad(n, p)(x)) = pad(n, 0)(embed(t)(x)): only where row p of the table is zero
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns import Array, Column, Lists, Strings, Values, empty
from silva.operators._features import numbers
from silva.operators._features.arguments import Params, Side
from silva.operators._features.hashing import float_words
from silva.operators._features.items import plain, shared, with_value
from silva.operators._features.ragged import dense, read_lists, select
from silva.operators._features.table import Table

ItemKernel = Callable[[Column, Params], Column]


def on_lists(kernel: ItemKernel) -> ItemKernel:
    """A kernel on items, as one on the items of lists."""

    def on_each(column: Column, params: Params) -> Column:
        arrays = dense(column)
        if arrays is not None:
            return kernel(arrays, params)
        lists = read_lists(column)
        return Lists(kernel(lists.values, params), lists.offsets, lists.valid)

    return on_each


def fill_null(column: Column, params: Params) -> Column:
    arrays = dense(column)
    if arrays is not None:  # a null array cannot be empty: it is filled
        return numbers.fill_null(arrays, params)
    lists = read_lists(column)
    return Lists(numbers.fill_null(lists.values, params), lists.offsets)


def truncate(column: Column, params: Params) -> Column:
    n, side = params["n"], params["side"]
    arrays = dense(column)
    if arrays is not None:
        width = arrays.data.shape[1]
        kept = slice(0, n) if side == "right" else slice(max(width - n, 0), width)
        return Array(shared(arrays.data[:, kept]), arrays.valid)
    lists = read_lists(column)
    lengths = np.diff(lists.offsets)
    short = np.minimum(lengths, n)
    if int(short.sum()) == int(lists.offsets[-1]):
        return _shared(lists)
    runs, keeps = [short, lengths - short], [True, False]
    if side == "left":
        runs, keeps = runs[::-1], keeps[::-1]
    mask = np.repeat(np.tile(keeps, len(lengths)), np.stack(runs, axis=1).ravel())
    return select(lists, mask, short)


def _shared(lists: Lists) -> Lists:
    if not isinstance(lists.values, Array):
        return lists
    values = Array(shared(lists.values.data), lists.values.valid)
    return Lists(values, lists.offsets, lists.valid)


def unique(column: Column, params: Params) -> Column:
    lists = read_lists(column)
    lengths = np.diff(lists.offsets)
    codes, count = _codes(lists.values)
    rows = np.repeat(np.arange(len(lists)), lengths)
    keys = rows * count + codes
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    kept = np.zeros(len(keys), dtype=bool)
    kept[order[first]] = True
    return select(lists, kept, np.bincount(rows[kept], minlength=len(lists)))


def _codes(values: Column) -> tuple[np.ndarray, int]:
    """A number for each item, below the count that is also given: equal items, equal numbers."""
    import pyarrow as pa

    values = plain(values).settled()
    if isinstance(values, Strings):
        keys = values.data
    elif isinstance(values, Array):
        if values.data.ndim > 1:
            raise ValueError("unique() takes lists of single values, not of arrays")
        data = values.data
        if data.dtype.kind in "bi" and values.valid is None and len(data):
            low, span = int(data.min()), int(data.max()) - int(data.min()) + 1
            if span <= 1 << 31:
                return data.astype(np.int64) - low, span
        words = float_words(data) if data.dtype.kind == "f" else data
        keys = pa.array(words, mask=None if values.valid is None else ~values.valid)
    else:
        return _value_codes(values.rows())
    found = keys.dictionary_encode(null_encoding="encode")
    return found.indices.to_numpy().astype(np.int64), max(len(found.dictionary), 1)


def _value_codes(items: list[Any]) -> tuple[np.ndarray, int]:
    """Python values of any type: 1 and 1.0 are equal, as they are to Python; NaNs are too."""
    seen: dict[Any, int] = {}
    nan = object()
    try:
        codes = [seen.setdefault(nan if x != x else x, len(seen)) for x in items]
    except (TypeError, ValueError):
        raise ValueError("unique() takes lists of single values, not of lists or arrays") from None
    return np.array(codes, np.int64), max(len(seen), 1)


def length(column: Column, params: Params) -> Column:
    arrays = dense(column)
    if arrays is not None:
        return Array(np.full(len(arrays), arrays.data.shape[1], np.int64), arrays.valid)
    lists = read_lists(column)
    return Array(np.diff(lists.offsets), lists.valid)


def pad(column: Column, params: Params) -> Column:
    width, value, side = params["length"], params["value"], params["side"]
    lists = read_lists(column)
    values = lists.values
    lengths = np.diff(lists.offsets)
    longest = int(lengths.max(initial=0))
    if longest > width:
        raise ValueError(
            f"a list of {longest} items does not fit into pad({width}): say which end is to go "
            f"with truncate({width}) before it"
        )
    if isinstance(values, Strings):
        raise ValueError("pad() takes numbers, not text: hash() comes first")
    if isinstance(values, Values):
        found = _typed(values, value, bool(lengths.all()))
        if found is None:
            return Values([_pad_row(row, params) for row in lists.rows()])
        values = found
    assert isinstance(values, Array)
    if values.valid is not None and not values.valid.all():
        raise ValueError("a null among the items cannot be padded: fill_null() comes first")
    return Array(_padded(values.data, lengths, width, value, side), lists.valid)


def _padded(
    data: np.ndarray, lengths: np.ndarray, width: int, value: Any, side: Side
) -> np.ndarray:
    out = empty((len(lengths), width, *data.shape[1:]), with_value(data.dtype, value))
    out.fill(value)
    places = np.arange(width)
    if side == "right":
        out[places < lengths[:, None]] = data
    else:
        out[places >= width - lengths[:, None]] = data
    return out


def _typed(values: Values, value: Any, all_have_items: bool) -> Array | None:
    """Python values as one array, or None where rows have types of their own. A row without items
    has that of the padding."""
    alone = np.asarray(value).dtype
    if not len(values):
        return Array(np.empty(0, alone))
    found = values.settled()
    if not isinstance(found, Array):
        return None
    return found if all_have_items or with_value(found.data.dtype, value) == alone else None


def _pad_row(row: Any, params: Params) -> np.ndarray | None:
    if row is None:
        return None
    items = Values(row).batch() if len(row) else np.empty(0, np.asarray(params["value"]).dtype)
    if isinstance(items, np.ma.MaskedArray) or None in row:
        raise ValueError("a null among the items cannot be padded: fill_null() comes first")
    if not isinstance(items, np.ndarray) or items.dtype == object:
        raise ValueError(f"pad() takes lists of numbers, not {row!r:.60}")
    lengths = np.array([len(items)])
    padded: np.ndarray = _padded(items, lengths, params["length"], params["value"], params["side"])[
        0
    ]
    return padded


def embed(column: Column, params: Params) -> Column:
    table = params["table"]
    arrays = dense(column)
    if arrays is not None:
        ids = numbers.whole_numbers(arrays)
        return Array(_rows_of(table, ids.data), ids.valid)
    lists = read_lists(column)
    ids = numbers.whole_numbers(lists.values)
    return Lists(Array(_rows_of(table, ids.data), ids.valid), lists.offsets, lists.valid)


def _rows_of(table: Table, ids: np.ndarray) -> np.ndarray:
    rows, width = table.shape
    numbers.check_range(ids, rows, "id")
    out = empty((*ids.shape, width), table.vectors.dtype)
    # the range is checked: "clip" only tells numpy to write into `out` without a copy of its own
    np.take(table.vectors, ids.reshape(-1), axis=0, out=out.reshape(-1, width), mode="clip")
    return out
