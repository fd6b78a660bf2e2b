"""Operators on lists, which choose and place items: `sv.list("history").truncate(50).pad(50)`.

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

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from silva.columns import Array, Column, Lists, Strings, Values, empty
from silva.columns.union import row_items
from silva.errors import PlanError
from silva.operators import num as numbers
from silva.operators.arguments import column_name, integer
from silva.operators.items import arguments
from silva.operators.items.arguments import Number, Params, Side
from silva.operators.items.declare import item_operator
from silva.operators.items.hashing import float_words
from silva.operators.items.items import plain, shared, with_value
from silva.operators.items.ragged import as_given, dense, read_lists, select
from silva.operators.items.table import Table, read_table
from silva.operators.num import NumExpr
from silva.plan.expr import Call, Col, Expr
from silva.plan.open import chooses


class ListExpr(Expr):
    """A column of lists: of ids, of numbers, of words; or of arrays with one length.

    What is said of numbers in `NumExpr` holds here for the items of each list. A null list stays
    null, an empty one stays empty, and a null among the items stays a null, unless a method says
    otherwise.

    >>> list("history").truncate(50).hash(1000)
    history.truncate(n=50, side='right').hash(buckets=1000, seed=0)
    """

    __slots__ = ()

    def hash(self, buckets: int, seed: int = 0) -> Self:
        """Hashes each item to a number from 0 to `buckets` - 1 (int64): see `NumExpr.hash`.

        >>> list("history").hash(1000, seed=7)
        history.hash(buckets=1000, seed=7)
        """
        return self._call("list.hash", **arguments.hash_params(buckets, seed))

    def modulo(self, n: int) -> Self:
        """Computes the remainder of each item by `n`, from 0 to n - 1: see `NumExpr.modulo`.

        >>> list("history").modulo(100)
        history.modulo(n=100)
        """
        return self._call("list.modulo", **arguments.modulo_params(n))

    def clip(self, low: Number | None = None, high: Number | None = None) -> Self:
        """Limits each item to the range from `low` to `high`: see `NumExpr.clip`.

        >>> list("watched").clip(0, 3600)
        watched.clip(low=0, high=3600)
        """
        return self._call("list.clip", **arguments.clip_params(low, high))

    def log1p(self) -> Self:
        """Computes log(1 + x) of each item (float32): see `NumExpr.log1p`.

        >>> list("watched").log1p()
        watched.log1p()
        """
        return self._call("list.log1p")

    def bucketize(self, boundaries: Sequence[Number], right: bool = True) -> Self:
        """Finds the interval of each item (int64): see `NumExpr.bucketize`.

        >>> list("ages").bucketize([18, 65])
        ages.bucketize(boundaries=(18, 65), right=True)
        """
        return self._call("list.bucketize", **arguments.bucketize_params(boundaries, right))

    def fill_null(self, value: Any, nan: bool = False) -> Self:
        """Replaces null items by `value` and null lists by empty ones, so that nothing is null
        afterwards. With `nan=True` NaN is replaced too.

        >>> list("history").fill_null(0)
        history.fill_null(value=0, nan=False)
        """
        return self._call("list.fill_null", **arguments.fill_null_params(value, nan))

    def truncate(self, n: int, side: Side = "right") -> Self:
        """Keeps at most `n` items; `side` is the end that is cut off. `"right"` keeps the first n,
        `"left"` the last n: the latest, where a history grows at its end.

        >>> list("history").truncate(50, side="left")
        history.truncate(n=50, side='left')
        """
        n = integer("n", n, 0)
        return self._call("list.truncate", n=n, side=arguments.side(side))

    def unique(self) -> Self:
        """Keeps each value once, in the order of first occurrence. Nulls count as one value, NaNs
        too.

        >>> list("history").unique()
        history.unique()
        """
        return self._call("list.unique")

    def length(self) -> NumExpr:
        """Counts the items (int64), null items included; null for a null list.

        >>> list("history").length().clip(0, 50)
        history.length().clip(low=0, high=50)
        """
        return NumExpr(Call("list.length", (self.term,)))

    def pad(self, length: int, value: Any = 0, side: Side = "right") -> Self:
        """Pads lists to arrays of one length, so that a batch is one array (rows, length): adds
        `value` at `side`. A longer list is an error: use `truncate` first. So is a null item: use
        `fill_null` first. A null list stays null.

        >>> list("history").truncate(50).pad(50)
        history.truncate(n=50, side='right').pad(length=50, value=0, side='right')
        """
        length = integer("length", length, 1)
        value = arguments.scalar(value)
        if not isinstance(value, bool | int | float):
            raise PlanError(f"lists are padded with a number, not {value!r}")
        return self._call("list.pad", length=length, value=value, side=arguments.side(side))

    def embed(self, table: Any) -> Self:
        """Looks each id up in `table`, a numpy array or torch tensor (ids, dimensions).

        Lists become lists of vectors, arrays (rows, length) become (rows, length, dimensions); so
        it also works after `batch(n, pad=0)`. An id that the table does not have is an error.

        The table is not copied and must not change while the pipeline is in use.

        >>> import numpy as np
        >>> list("ids").truncate(8).pad(8).embed(np.zeros((100, 16), np.float32))
        ids.truncate(n=8, side='right').pad(length=8, ...).embed(table of 100 × 16 float32)
        """
        return self._call("list.embed", table=read_table(table))


@item_operator("list.fill_null")
def fill_null(column: Column, params: Params) -> Column:
    arrays = dense(column)
    if arrays is not None:  # a null array cannot be empty: it is filled
        return numbers.fill_null(arrays, params)
    lists = read_lists(column)
    return as_given(column, Lists(numbers.fill_null(lists.values, params), lists.offsets))


@item_operator("list.truncate")
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
        return as_given(column, _shared(lists))
    runs, keeps = [short, lengths - short], [True, False]
    if side == "left":
        runs, keeps = runs[::-1], keeps[::-1]
    mask = np.repeat(np.tile(keeps, len(lengths)), np.stack(runs, axis=1).ravel())
    return as_given(column, select(lists, mask, short))


def _shared(lists: Lists) -> Lists:
    if not isinstance(lists.values, Array):
        return lists
    values = Array(shared(lists.values.data), lists.values.valid)
    return Lists(values, lists.offsets, lists.valid)


@item_operator("list.unique")
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


def _value_codes(items: Sequence[Any]) -> tuple[np.ndarray, int]:
    """Python values of any type: 1 and 1.0 are equal, as they are to Python; NaNs are too."""
    seen: dict[Any, int] = {}
    nan = object()
    try:
        codes = [seen.setdefault(nan if x != x else x, len(seen)) for x in items]
    except (TypeError, ValueError):
        raise ValueError("unique() takes lists of single values, not of lists or arrays") from None
    return np.array(codes, np.int64), max(len(seen), 1)


@item_operator("list.length")
def length(column: Column, params: Params) -> Column:
    arrays = dense(column)
    if arrays is not None:
        return Array(np.full(len(arrays), arrays.data.shape[1], np.int64), arrays.valid)
    lists = read_lists(column)
    return Array(np.diff(lists.offsets), lists.valid)


@item_operator("list.pad")
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
            present = np.ones(len(lists), bool) if lists.valid is None else lists.valid
            rows = zip(row_items(lists), present.tolist(), strict=True)
            return Values([_pad_row(row, params) if ok else None for row, ok in rows])
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


def _pad_row(row: Any, params: Params) -> np.ndarray:
    items = row.batch() if len(row) else np.empty(0, np.asarray(params["value"]).dtype)
    if isinstance(items, np.ma.MaskedArray) or any(x is None for x in row.items):
        raise ValueError("a null among the items cannot be padded: fill_null() comes first")
    if not isinstance(items, np.ndarray) or items.dtype == object:
        raise ValueError(f"pad() takes lists of numbers, not {row.items!r:.60}")
    lengths = np.array([len(items)])
    padded: np.ndarray = _padded(items, lengths, params["length"], params["value"], params["side"])[
        0
    ]
    return padded


@item_operator("list.embed")
def embed(column: Column, params: Params) -> Column:
    table = params["table"]
    arrays = dense(column)
    if arrays is not None:
        ids = numbers.whole_numbers(arrays)
        return Array(_rows_of(table, ids.data), ids.valid)
    lists = read_lists(column)
    ids = numbers.whole_numbers(lists.values)
    made = Lists(Array(_rows_of(table, ids.data), ids.valid), lists.offsets, lists.valid)
    return as_given(column, made)


def _rows_of(table: Table, ids: np.ndarray) -> np.ndarray:
    rows, width = table.shape
    numbers.check_range(ids, rows, "id")
    out = empty((*ids.shape, width), table.vectors.dtype)
    # One call, since each takes the GIL back at its end. The range is checked: "clip" only tells
    # numpy to write into `out` without a copy of its own.
    np.take(table.vectors, ids.reshape(-1), axis=0, out=out.reshape(-1, width), mode="clip")
    return out


@chooses
def list(name: str) -> ListExpr:
    """A column of lists, by name.

    >>> list("history").unique().truncate(20)
    history.unique().truncate(n=20, side='right')
    """
    return ListExpr(Col(column_name(name)))


import silva.operators.items.list_laws  # noqa: E402, F401  comes last: laws name operators by their facts

__all__ = ["ListExpr", "list"]
