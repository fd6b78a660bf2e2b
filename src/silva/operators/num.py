"""Operators on numbers and categories, item by item: `sv.num("price").clip(0).log1p()`.

Each kernel makes one fresh array and works on it in place.

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

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

import silva.operators.items.num_laws  # noqa: F401  registers the laws
from silva.columns import Array, Column, Strings, Values, empty
from silva.columns.column import is_masked_array
from silva.errors import PlanError
from silva.operators.arguments import column_name, integer
from silva.operators.items import arguments
from silva.operators.items.arguments import Number, Params
from silva.operators.items.declare import item_operator
from silva.operators.items.hashing import hash_items
from silva.operators.items.items import chunks, numbers, on_items, plain, shared, with_value
from silva.operators.masked import missing_in
from silva.plan.expr import Call, Col, Expr
from silva.plan.open import chooses

_FEW = 16
"""Up to so many boundaries, comparing with each is faster than a binary search."""

_WIDTH = {bool: 0, int: 1, float: 2}


class NumExpr(Expr):
    """A column of numbers, or of words to be hashed. Nulls stay nulls, and NaN stays NaN, unless a
    method says otherwise.

    >>> num("price").clip(0).log1p()
    price.clip(low=0).log1p()
    """

    __slots__ = ()

    def hash(self, buckets: int, seed: int = 0) -> Self:
        """Hashes to a number from 0 to `buckets` - 1 (int64) that depends on the value and `seed`
        alone: the same in every process and on every machine.

        Whole numbers are hashed by their value, whatever their dtype; floats as float64 (all NaNs
        are one, and so are 0.0 and -0.0; 1.0 is not 1); text and bytes by their bytes.

        >>> num("user").hash(1000)
        user.hash(buckets=1000, seed=0)
        """
        return self._call("num.hash", **arguments.hash_params(buckets, seed))

    def modulo(self, n: int) -> Self:
        """Computes the remainder by `n`, from 0 to n - 1 also for negative numbers (int64). Floats
        are an error.

        >>> num("user").modulo(100)
        user.modulo(n=100)
        """
        return self._call("num.modulo", **arguments.modulo_params(n))

    def clip(self, low: Number | None = None, high: Number | None = None) -> Self:
        """Limits numbers to the range from `low` to `high`; None is no bound. The dtype stays, but
        whole numbers become float64 where a bound is not whole.

        >>> num("price").clip(high=99.5)
        price.clip(high=99.5)
        """
        return self._call("num.clip", **arguments.clip_params(low, high))

    def log1p(self) -> Self:
        """Computes log(1 + x) as float32. A number of -1 or less is an error: `clip(0)` first.

        >>> num("price").log1p()
        price.log1p()
        """
        return self._call("num.log1p")

    def bucketize(self, boundaries: Sequence[Number], right: bool = True) -> Self:
        """Finds the interval of a number, from 0 to the number of boundaries (int64).

        A number on a boundary belongs to the interval above it; with `right=False` to the one
        below. As in `torch.bucketize` (whose default is False) and `np.searchsorted`; so NaN falls
        into the last.

        >>> num("age").bucketize([18, 65])
        age.bucketize(boundaries=(18, 65), right=True)
        """
        return self._call("num.bucketize", **arguments.bucketize_params(boundaries, right))

    def standardize(self, mean: Number, std: Number) -> Self:
        """Computes (x - mean) / std in float64 and rounds once, to float32.

        >>> num("price").standardize(19.5, 4)
        price.standardize(mean=19.5, std=4)
        """
        mean, std = arguments.number("mean", mean), arguments.number("std", std)
        if std <= 0:
            raise PlanError(f"std must be positive, not {std}")
        return self._call("num.standardize", mean=mean, std=std)

    def one_hot(self, classes: int) -> Expr:
        """Makes a float32 array of `classes` numbers: 1 at the place of the class, else 0. A null
        gives zeros only; a number that is no class is an error.

        >>> num("label").one_hot(10)
        label.one_hot(classes=10)
        """
        classes = integer("classes", classes, 1)
        return Expr(Call("num.one_hot", (self.term,), (("classes", classes),)))

    def fill_null(self, value: Any, nan: bool = False) -> Self:
        """Replaces nulls by `value`; with `nan=True` also NaN. Whole numbers become float64 where
        `value` is not whole.

        >>> num("price").fill_null(0, nan=True)
        price.fill_null(value=0, nan=True)
        """
        return self._call("num.fill_null", **arguments.fill_null_params(value, nan))


@item_operator("num.hash", on_lists=True, ids_to_ids=True)
def hash(column: Column, params: Params) -> Column:
    buckets, seed = params["buckets"], params["seed"]
    return on_items(column, lambda data: hash_items(data, buckets, seed), np.int64)


@item_operator("num.modulo", on_lists=True, ids_to_ids=True)
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


@item_operator("num.clip", on_lists=True)
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


@item_operator("num.log1p", on_lists=True)
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


@item_operator("num.bucketize", on_lists=True, ids_to_ids=True)
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


@item_operator("num.standardize")
def standardize(column: Column, params: Params) -> Column:
    mean, std = params["mean"], params["std"]
    return on_items(column, lambda data: _standardize(numbers(data), mean, std), np.float32)


def _standardize(data: np.ndarray, mean: Number, std: Number) -> np.ndarray:
    out = empty(data.shape, np.float32)
    for x, z in chunks(data, out):
        exact = np.subtract(x, mean, dtype=np.float64)
        np.divide(exact, std, out=z, casting="same_kind")
    return out


@item_operator("num.one_hot", keeps_masks=False)
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


@item_operator("num.fill_null")
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
    if is_masked_array(item):
        filled = _promoted(np.ma.getdata(item), value).copy()
        filled[missing_in(item)] = value
        if nan and filled.dtype.kind == "f":
            filled[np.isnan(filled)] = value
        return filled
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


@chooses
def num(name: str) -> NumExpr:
    """A column of numbers or categories, by name.

    >>> num("price").fill_null(0).clip(0, 100)
    price.fill_null(value=0, nan=False).clip(low=0, high=100)
    """
    return NumExpr(Col(column_name(name)))


__all__ = ["NumExpr", "num"]
