"""Kernels on numbers, item by item. Each makes one fresh array, and works on it in place.

Laws, exact for every dtype and tested:
    clip(a, b)(clip(c, d)(x)) = clip(clip(a, b)(c), clip(a, b)(d))(x)  but for the sign of a zero
    modulo(n)(modulo(m)(x)) = modulo(n)(x)  where n divides m
    fill_null(v)(fill_null(u)(x)) = fill_null(u)(x)
and of `f`, an operator on items that keeps nulls, with the operators on lists: see `lists`.

Not laws:
    log1p(clip(a, b)(x)) = clip(log1p(a), log1p(b))(log1p(x)): equal but for the last bit, and
        log1p fails below -1, where clip may just have saved it
    hash(modulo(n)(x)) is not modulo(n)(hash(x))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.columns import Array, Column, Strings, Values, empty
from silva.operators._features.arguments import Number, Params
from silva.operators._features.hashing import hash_items
from silva.operators._features.items import chunks, numbers, on_items, plain, shared, with_value

_FEW = 16
"""Up to so many boundaries, comparing with each is faster than a binary search."""

_WIDTH = {bool: 0, int: 1, float: 2}


def hash(column: Column, params: Params) -> Column:
    buckets, seed = params["buckets"], params["seed"]
    return on_items(column, lambda data: hash_items(data, buckets, seed), np.int64)


def modulo(column: Column, params: Params) -> Column:
    return on_items(column, lambda data: _modulo(numbers(data, "biu"), params["n"]), np.int64)


def _modulo(data: np.ndarray, n: int) -> np.ndarray:
    out = empty(data.shape, np.int64)
    if data.dtype == np.uint64:
        np.remainder(data, np.uint64(n), out=out, casting="unsafe")
        return out
    data = data.astype(np.int64, copy=False)
    if n & (n - 1) == 0:  # a power of two: the low bits, also of a negative number
        np.bitwise_and(data, n - 1, out=out)
        return out
    for x, z in chunks(data, out):  # floor_divide is vectorised, remainder is not
        np.floor_divide(x, n, out=z)
        np.multiply(z, n, out=z)
        np.subtract(x, z, out=z)
    return out


def clip(column: Column, params: Params) -> Column:
    return on_items(column, lambda data: _clip(numbers(data), params["low"], params["high"]))


def _clip(data: np.ndarray, low: Number | None, high: Number | None) -> np.ndarray:
    bounds = [x for x in (low, high) if x is not None]
    if data.dtype.kind in "iu" and all(isinstance(x, int) for x in bounds):
        least, most = (int(x) for x in (np.iinfo(data.dtype).min, np.iinfo(data.dtype).max))
        if (low is not None and low > most) or (high is not None and high < least):
            raise ValueError(f"clip({low}, {high}) gives numbers that {data.dtype} cannot hold")
        low = None if low is None else max(int(low), least)
        high = None if high is None else min(int(high), most)
        dtype = data.dtype
    else:
        dtype = np.result_type(data.dtype, *bounds)
    out = empty(data.shape, dtype)
    np.clip(data, low, high, out=out, dtype=dtype)
    return out


def log1p(column: Column, params: Params) -> Column:
    return on_items(column, lambda data: _log1p(numbers(data)), np.float32)


def _log1p(data: np.ndarray) -> np.ndarray:
    if data.size and data.dtype.kind in "if":
        least = np.fmin.reduce(data, axis=None) if data.dtype.kind == "f" else data.min()
        if least <= -1:
            raise ValueError(f"log1p of {least} is no number: clip(0) first, or fill_null(0)")
    out = empty(data.shape, np.float32)
    # float64 is rounded only afterwards: next to -1 its float32 would be -1 itself
    inner = np.float64 if data.dtype == np.float64 else np.float32
    np.log1p(data, out=out, dtype=inner, casting="same_kind")
    return out


def bucketize(column: Column, params: Params) -> Column:
    edges = np.array(params["boundaries"])
    right = params["right"]
    return on_items(column, lambda data: _bucketize(numbers(data), edges, right), np.int64)


def _bucketize(data: np.ndarray, edges: np.ndarray, right: bool) -> np.ndarray:
    if len(edges) > _FEW:
        return np.searchsorted(edges, data, side="right" if right else "left")
    below = np.less if right else np.less_equal
    out = empty(data.shape, np.int64)
    for x, z in chunks(data, out):
        count = np.zeros(len(x), np.int8)
        for edge in edges:
            count += below(x, edge).view(np.int8)  # false for NaN, which comes last therefore
        np.subtract(len(edges), count, out=z)
    return out


def standardize(column: Column, params: Params) -> Column:
    mean, std = params["mean"], params["std"]
    return on_items(column, lambda data: _standardize(numbers(data), mean, std), np.float32)


def _standardize(data: np.ndarray, mean: Number, std: Number) -> np.ndarray:
    out = empty(data.shape, np.float32)
    for x, z in chunks(data, out):
        exact = np.subtract(x, mean, dtype=np.float64)
        np.divide(exact, std, out=z, casting="same_kind")
    return out


def one_hot(column: Column, params: Params) -> Column:
    classes = params["classes"]
    found = whole_numbers(column)
    data, valid = found.data, found.valid
    if data.ndim != 1:
        raise ValueError(f"one_hot() takes one class a row, not an array of {data.shape[1:]}")
    check_range(data, classes, "class")
    out = empty((len(data), classes), np.float32)
    out.fill(0)
    rows = np.arange(len(data)) if valid is None else np.flatnonzero(valid)
    out[rows, data[rows]] = 1
    return Array(out)


def whole_numbers(column: Column) -> Array:
    """The items as int64; a null's place holds a zero."""
    found = on_items(column, lambda x: numbers(x, "biu").astype(np.int64, copy=False), np.int64)
    assert isinstance(found, Array)
    return found


def check_range(data: np.ndarray, count: int, what: str) -> None:
    if data.size and (data.min() < 0 or data.max() >= count):
        wrong = data[(data < 0) | (data >= count)].flat[0]
        raise ValueError(f"{what} {wrong} is not one of the {count} from 0 to {count - 1}")


def fill_null(column: Column, params: Params) -> Column:
    value, nan = params["value"], params["nan"]
    column = plain(column)
    if isinstance(column, Strings):
        return _fill_text(column, value)
    if isinstance(column, Values):
        return Values([_fill_item(x, value, nan) for x in column.items])
    if not isinstance(column, Array):
        raise ValueError("fill_null() takes numbers or text; for lists there is sv.list")
    data = _promoted(column.data, value)
    missing = None if column.valid is None else ~column.valid
    if missing is not None and missing.any():
        data = data.copy()
        data[missing] = value
    if nan and data.dtype.kind == "f" and (gaps := np.isnan(data)).any():
        data = np.where(gaps, data.dtype.type(value), data)
    return Array(shared(data) if data is column.data else data)


def _promoted(data: np.ndarray, value: Any) -> np.ndarray:
    """In the type that the results have, whether or not there is a null among these."""
    if isinstance(value, str):
        raise ValueError(f"fill_null({value!r}) puts text into a column of {data.dtype}")
    return numbers(data).astype(with_value(data.dtype, value), copy=False)


def _fill_item(item: Any, value: Any, nan: bool) -> Any:
    """As in an array: what `value` does to the type, it does where nothing is null too."""
    if item is None:
        return value
    if nan and isinstance(item, float | np.floating) and item != item:
        return type(item)(value)
    if type(item) is type(value) or isinstance(item, str | bytes):
        return item
    if type(item) in _WIDTH and type(value) in _WIDTH:
        return type(value)(item) if _WIDTH[type(value)] > _WIDTH[type(item)] else item
    return _promoted(np.asarray(item), value)[()]


def _fill_text(column: Strings, value: Any) -> Strings:
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = column.data.type
    if not isinstance(value, str) or not (types.is_string(kind) or types.is_large_string(kind)):
        raise ValueError(f"fill_null({value!r}) does not go into a column of {kind}")
    return Strings(pc.fill_null(column.data, value))
