"""Converts Arrow arrays to columns and back, without a copy where the layout is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns.block import concat
from silva.columns.column import Array, Column, Strings
from silva.columns.dictionary import Dictionary, expanded
from silva.columns.lists import Lists
from silva.columns.union import Union, union
from silva.columns.values import Values

if TYPE_CHECKING:
    import pyarrow as pa


def table_columns(table: pa.Table | pa.RecordBatch) -> dict[str, Column]:
    """The columns of a table; a struct becomes one column per field, with a dotted name."""
    out: dict[str, Column] = {}
    for name in table.schema.names:
        _add(out, name, table.column(name))
    return out


def column_names(schema: pa.Schema) -> tuple[str, ...]:
    """The names of the columns that `table_columns` returns for this schema."""
    import pyarrow as pa

    names: list[str] = []

    def add(name: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for i in range(kind.num_fields):
                add(f"{name}.{kind.field(i).name}", kind.field(i).type)
        else:
            names.append(name)

    for field in schema:
        add(field.name, field.type)
    return tuple(names)


def _add(out: dict[str, Column], name: str, data: Any) -> None:
    import pyarrow as pa

    if pa.types.is_struct(data.type):
        chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
        for i in range(data.type.num_fields):
            parts = [chunk.flatten()[i] for chunk in chunks]
            field = data.type.field(i)
            _add(out, f"{name}.{field.name}", pa.chunked_array(parts, type=field.type))
    else:
        out[name] = from_arrow(data)


def from_arrow(data: pa.Array | pa.ChunkedArray) -> Column:
    import pyarrow as pa

    if isinstance(data, pa.ChunkedArray):
        if data.num_chunks == 0:
            return from_arrow(pa.array([], type=data.type))
        return concat([from_arrow(chunk) for chunk in data.chunks])
    if isinstance(data, pa.ExtensionArray):
        data = data.storage
    kind = data.type
    types = pa.types
    if types.is_dictionary(kind):
        return _from_dictionary(data)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        data = data.cast(pa.large_string() if types.is_string_view(kind) else pa.large_binary())
        return Strings(data)
    if types.is_fixed_size_binary(kind):
        return Strings(data.cast(pa.binary()))
    if (
        types.is_string(kind) or types.is_binary(kind)
        or types.is_large_string(kind) or types.is_large_binary(kind)
    ):  # fmt: skip
        return Strings(data)
    if types.is_list(kind) or types.is_large_list(kind):
        return _from_lists(data)
    if types.is_fixed_size_list(kind):
        return _from_fixed_lists(data)
    return _from_numbers(data) if _are_numbers(kind) else Values(data.to_pylist())


def _are_numbers(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        or types.is_timestamp(kind) or types.is_duration(kind) or types.is_date(kind)
    )  # fmt: skip


def _from_dictionary(data: pa.DictionaryArray) -> Column:
    """Keeps the encoding: steps then run once for each distinct value."""
    if data.null_count or data.dictionary.null_count or len(data.dictionary) > len(data):
        return from_arrow(data.dictionary_decode())
    return Dictionary(
        from_arrow(data.dictionary), data.indices.to_numpy().astype(np.int64)
    ).compact()


def _from_lists(data: pa.ListArray | pa.LargeListArray) -> Column:
    offsets = data.offsets.to_numpy().astype(np.int64)
    lists = Lists(expanded(from_arrow(data.values)), offsets, _validity(data))
    if not isinstance(lists.values, Union | Values):
        return lists
    ordinary = expanded(from_arrow(data.values.slice(0, 0)))
    if type(lists.values) is type(ordinary):
        return lists
    odd = np.ones(len(lists.values), dtype=bool)  # items that are arrays with a null in them
    if isinstance(lists.values, Union):
        odd = lists.values.which > 0
    before = np.concatenate([[0], np.cumsum(odd)])
    has_odd = before[offsets[1:]] > before[offsets[:-1]]
    whole = lists.take(np.flatnonzero(~has_odd))
    if not len(whole.values):
        whole = Lists(ordinary, whole.offsets, whole.valid)
    others = Values(lists.take(np.flatnonzero(has_odd)).rows())
    return union([whole, others], has_odd.astype(np.int32))


def _from_fixed_lists(data: pa.FixedSizeListArray) -> Column:
    size = data.type.list_size
    inner = expanded(from_arrow(data.values.slice(data.offset * size, len(data) * size)))
    lists = Lists(inner, np.arange(len(data) + 1, dtype=np.int64) * size, _validity(data))
    if not _is_dense(data.type):
        return Values(lists.rows())
    dense, odd = _dense(data)
    if not odd.any():
        return dense
    others = Values(lists.take(np.flatnonzero(odd)).rows())
    return union([dense.take(np.flatnonzero(~odd)), others], odd.astype(np.int32))


def _is_dense(kind: pa.DataType) -> bool:
    """Whether rows without nulls in them are arrays of one shape."""
    import pyarrow as pa

    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return _are_numbers(kind)


def _dense(data: pa.Array) -> tuple[Array, np.ndarray]:
    """The rows as one array, and which of them contain a null."""
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(data.type):
        return _from_numbers(data), np.zeros(len(data), dtype=bool)
    size = data.type.list_size
    inner, odd = _dense(data.values.slice(data.offset * size, len(data) * size))
    if inner.valid is not None:
        odd = odd | ~inner.valid
    valid = _validity(data)
    odd = np.asarray(odd.reshape(len(data), size).any(axis=1))
    shaped = inner.data.reshape(len(data), size, *inner.data.shape[1:])
    return Array(shaped, valid), odd if valid is None else odd & valid


def _from_numbers(data: pa.Array) -> Array:
    import pyarrow as pa

    valid = _validity(data)
    if pa.types.is_boolean(data.type):
        return Array(_flags(data.fill_null(False) if valid is not None else data), valid)
    if pa.types.is_date(data.type):
        unit = "D" if pa.types.is_date32(data.type) else "ms"
        days = data.cast(pa.int32() if unit == "D" else pa.int64())
        filled = days.fill_null(0) if valid is not None else days
        return Array(filled.to_numpy().astype(f"datetime64[{unit}]"), valid)
    if valid is not None:
        zero = pa.scalar(0, pa.int64()).cast(data.type)
        data = data.fill_null(zero)
    return Array(data.to_numpy(), valid)


def _flags(data: pa.BooleanArray) -> np.ndarray:
    """Arrow's bits as numpy bools (`to_numpy` would import pandas for this)."""
    import pyarrow as pa

    flags: np.ndarray = data.cast(pa.uint8()).to_numpy().astype(bool)
    return flags


def _validity(data: pa.Array) -> np.ndarray | None:
    return None if data.null_count == 0 else _flags(data.is_valid())


def to_arrow(column: Column) -> pa.Array:
    """An Arrow array with the same rows; rows of several dimensions become nested lists."""
    import pyarrow as pa

    if isinstance(column, Strings):
        return column.data
    if isinstance(column, Dictionary):
        return to_arrow(column.expand())
    if isinstance(column, Lists):
        first, last = int(column.offsets[0]), int(column.offsets[-1])
        inner = to_arrow(column.values.slice(first, last))
        mask = None if column.valid is None else pa.array(~column.valid)
        return pa.LargeListArray.from_arrays(column.offsets - first, inner, mask=mask)
    if isinstance(column, Array):
        return dense_to_arrow(column.data, None if column.valid is None else ~column.valid)
    items = [_plain(x) for x in column.rows()]
    return pa.array(items)


def dense_to_arrow(data: np.ndarray, missing: np.ndarray | None) -> pa.Array:
    """An Arrow array with one row per index of the first axis; rows of several dimensions become
    nested lists of fixed size. `missing` has one flag per row, or one per item: a row whose items
    are all missing is null, and another has nulls for those that are."""
    import pyarrow as pa

    if not data.dtype.isnative:  # Arrow has no other byte order
        data = data.astype(data.dtype.newbyteorder("="))
    if data.ndim == 1:
        return pa.array(data, mask=missing)
    shape = data.shape
    flags: np.ndarray | None = None
    if missing is not None and missing.ndim > 1:
        by_row = missing.reshape(len(data), -1) if missing.size else np.zeros((len(data), 1), bool)
        flags, missing = missing.reshape(-1), np.asarray(by_row.all(axis=1))
    flat = pa.array(np.ascontiguousarray(data).reshape(-1), mask=flags)
    for axis in range(len(shape) - 1, 0, -1):
        count = int(np.prod(shape[:axis]))
        flat = _fixed_lists(flat, shape[axis], count, missing if axis == 1 else None)
    return flat


def _fixed_lists(values: pa.Array, size: int, count: int, missing: np.ndarray | None) -> pa.Array:
    import pyarrow as pa

    if size == 0:  # from_arrays cannot tell how many empty lists there are
        return pa.array([[]] * count, type=pa.list_(values.type, 0))
    mask = None if missing is None else pa.array(missing)
    return pa.FixedSizeListArray.from_arrays(values, size, mask=mask)


def _plain(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, np.generic):
        return item.item()
    return item
