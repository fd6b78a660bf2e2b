"""Arithmetic, comparisons and logic on any column: numpy's meaning, nulls carried along.

A null on either side gives a null; a filter keeps only rows that are true, so nulls are dropped
there. Python numbers in an expression are weak, as in numpy: `uint8 + 1` stays uint8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns import Array, Column, Constant, Lists, Values
from silva.columns.column import is_masked_array
from silva.columns.values import object_array
from silva.operators.declare import column_operator
from silva.operators.laws import inner
from silva.operators.masked import holds_masked, keep_mask
from silva.order.draws import Draw
from silva.plan.expr import Call, Term
from silva.plan.law import law

_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "power": np.power,
    "negative": np.negative,
    "absolute": np.absolute,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
}
_PREDICATES = {
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "and", "or", "xor", "not",
}  # fmt: skip


def _operands(columns: list[Column]) -> tuple[list[Any], np.ndarray | None]:
    """The columns as arrays (constants as plain scalars, so that they stay weak), and which rows
    have a value in all of them."""
    arrays: list[Any] = []
    valid: np.ndarray | None = None
    for column in columns:
        settled = column.settled()
        if isinstance(settled, Array):
            data, ok = settled.data, settled.valid
            if isinstance(settled, Constant) and len(data):
                data = data[0].item()
        else:
            items = settled.rows()
            present = np.array([x is not None for x in items], dtype=bool)
            ok = None if present.all() else present
            data = object_array(items)
        arrays.append(data)
        if ok is not None:
            valid = ok if valid is None else valid & ok
    return arrays, valid


def _elementwise(name: str) -> Callable[[list[Column], dict[str, Any], Draw], Column]:
    ufunc = _UFUNCS[name]

    def kernel(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
        arrays, valid = _operands(columns)
        count = len(columns[0])
        if any(map(holds_masked, columns)):
            return _masked(ufunc, arrays, valid, count)
        if any(isinstance(a, np.ndarray) and a.dtype == object for a in arrays):
            return _objects(name, ufunc, arrays, valid, count)
        out = np.asarray(ufunc(*_row_by_row(arrays)))
        if out.ndim == 0:
            out = np.full(count, out)
        return Array(out, valid)

    return kernel


def _row_by_row(arrays: list[Any]) -> list[Any]:
    """Arrays that numpy broadcasts within each row: (rows,) beside (rows, 3) becomes (rows, 1). As
    they are, numpy would align the rows of the one with the items of the other."""
    axes = max((a.ndim for a in arrays if isinstance(a, np.ndarray)), default=0)
    return [
        a.reshape(len(a), *[1] * (axes - a.ndim), *a.shape[1:])
        if isinstance(a, np.ndarray) and 0 < a.ndim < axes
        else a
        for a in arrays
    ]


def _masked(
    ufunc: Callable[..., Any], arrays: list[Any], valid: np.ndarray | None, count: int
) -> Column:
    """Rows of which a part may be missing, one by one: as numpy does it on each, and what is
    missing on either side is missing."""
    present = [True] * count if valid is None else valid.tolist()
    rows = ([a[i] if isinstance(a, np.ndarray) else a for a in arrays] for i in range(count))
    return Values(
        [keep_mask(ufunc, *row) if ok else None for row, ok in zip(rows, present, strict=True)]
    )


def _objects(
    name: str, ufunc: Callable[..., Any], arrays: list[Any], valid: np.ndarray | None, count: int
) -> Column:
    """Text, lists and other Python values, row by row with the operators of the values: numpy's
    where one of them is an array."""
    rows = [_one_object_per_row(a, count) for a in arrays]
    beyond = _beyond_64_bits(rows)
    for operand in rows:
        for i in beyond:
            operand[i] = _with_python_numbers(operand[i])
    if valid is None:
        out = ufunc(*rows)
    else:
        out = np.full(count, None, dtype=object)
        out[valid] = ufunc(*(r[valid] for r in rows))
    if name in _PREDICATES:
        keep = np.zeros(count, bool) if valid is None else ~valid
        flags = np.array([bool(x) for x in np.where(keep, False, out)], dtype=bool)
        return Array(flags, valid)
    items = out.tolist()
    for i in beyond:
        items[i] = _without_array(items[i])
    return Values(items).settled()


def _one_object_per_row(operand: Any, count: int) -> np.ndarray:
    """The operand with one axis: as they are, numpy would align the rows of one operand with the
    items of another."""
    if not isinstance(operand, np.ndarray):
        return np.full(count, operand, dtype=object)
    return operand.astype(object) if operand.ndim == 1 else object_array(list(operand))


def _beyond_64_bits(operands: list[np.ndarray]) -> list[int]:
    """The rows in which an integer beyond 64 bits stands beside an array of integers, which would
    refuse it."""
    kinds = {kind for operand in operands for kind in set(map(type, operand))}
    if int not in kinds or not any(issubclass(kind, np.ndarray) for kind in kinds):
        return []
    return [i for i, row in enumerate(zip(*operands, strict=True)) if _is_beyond(row)]


def _is_beyond(row: tuple[Any, ...]) -> bool:
    arrays = [x.dtype for x in row if isinstance(x, np.ndarray) and x.dtype.kind in "iu"]
    end = 1 << (64 if np.dtype(np.uint64) in arrays else 63)
    return bool(arrays) and any(type(x) is int and not -(1 << 63) <= x < end for x in row)


def _with_python_numbers(item: Any) -> Any:
    return item.astype(object) if isinstance(item, np.ndarray) else item


def _without_array(item: Any) -> Any:
    """A row of Python's numbers as a list, like any other row of them."""
    return item.tolist() if isinstance(item, np.ndarray) else item


@column_operator("is_null", keeps_masks=True)
def _is_null(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    (column,) = columns
    if isinstance(column, Array):
        none = np.zeros(len(column), dtype=bool)
        return Array(none if column.valid is None else ~column.valid)
    return Array(np.array([x is None for x in column.rows()], dtype=bool))


@column_operator("is_in", releases_gil=False)
def _is_in(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    wanted = set(params["values"])
    items = columns[0].rows()
    found = np.array([x in wanted for x in items], dtype=bool)
    if None in wanted:
        return Array(found)
    present = np.array([x is not None for x in items], dtype=bool)
    return Array(found, None if present.all() else present)


@column_operator("cast", keeps_masks=True)
def _cast(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    column = columns[0].settled()
    dtype = np.dtype(params["dtype"])
    if isinstance(column, Lists):
        return Lists(_cast([column.values], params, draw), column.offsets, column.valid)
    if isinstance(column, Array):
        return _text_or_numbers(column.data.astype(dtype), column.valid)
    items = column.rows()
    if any(isinstance(x, list | tuple | np.ndarray) for x in items):
        return Values([x if x is None else _cast_row(x, dtype) for x in items]).settled()
    if dtype.kind in "OUS" and all(x is None or isinstance(x, str | bytes) for x in items):
        return Values([x if x is None else _cast_text(x, dtype) for x in items])
    present = np.array([x is not None for x in items], dtype=bool)
    data = np.array([0 if x is None else x for x in items]).astype(dtype)
    return _text_or_numbers(data, None if present.all() else present)


def _cast_text(text: str | bytes, dtype: np.dtype) -> str | bytes:
    """Text or bytes as numpy casts them, which would also cut the NULs off their ends."""
    if dtype.kind == "U" and isinstance(text, bytes):
        text = text.decode("ascii")
    elif dtype.kind == "S" and isinstance(text, str):
        text = text.encode("ascii")
    width = 0 if dtype.kind == "O" else dtype.itemsize // np.dtype((dtype.kind, 1)).itemsize
    return text[:width] if width else text[:]


def _cast_row(row: Any, dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "OUS" and isinstance(row, list | tuple) and any(map(_ends_in_nul, row)):
        return object_array([_cast_text(x, dtype) for x in row])  # numpy's own text has no NULs
    return (row if is_masked_array(row) else np.array(row)).astype(dtype)


def _ends_in_nul(item: Any) -> bool:
    return item[-1:] in ("\0", b"\0") if isinstance(item, str | bytes) else False


def _text_or_numbers(data: np.ndarray, valid: np.ndarray | None) -> Column:
    """Text becomes Python strings: the width of numpy's depends on the longest of the block."""
    if data.dtype.kind not in "OUS":
        return Array(data, valid)
    flags = np.ones(len(data), dtype=bool) if valid is None else valid
    return Values([x if ok else None for x, ok in zip(data.tolist(), flags.tolist(), strict=True)])


@column_operator("hash_fraction", releases_gil=False, keeps_masks=True)
def _hash_fraction(columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    """A number in [0, 1) that depends on the value and the salt alone: stable as data grows."""
    import hashlib

    salt = str(params["salt"]).encode()
    out = np.empty(len(columns[0]))
    rows = zip(*(c.rows() for c in columns), strict=True)
    for i, row in enumerate(rows):
        text = "\x1f".join(f"{type(x).__name__}:{x}" for x in row).encode("utf-8", "replace")
        word = hashlib.blake2b(text, digest_size=8, key=salt[:64]).digest()
        out[i] = (int.from_bytes(word, "little") >> 11) / (1 << 53)
    return Array(out)


for _name in _UFUNCS:
    column_operator(_name, keeps_masks=True)(_elementwise(_name))


@law(
    "cast_twice",
    "cast(t)(cast(t)(x)) = cast(t)(x)",
    "exact",
    fails="another first type: 300 as uint8 is 44, and stays 44 as int64",
)
def cast_twice(call: Call) -> Term | None:
    first = inner(call, "cast")
    same = call.op == "cast" and first is not None and first.params == call.params
    return first if same else None
