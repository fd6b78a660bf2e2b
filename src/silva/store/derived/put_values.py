"""Converts values from outside to Arrow arrays of the types that a table holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.columns import Values, to_arrow
from silva.columns.values import as_numpy
from silva.errors import PlanError
from silva.io.arrays.memory import as_column
from silva.store.append.normal_form import as_normal, check_held, is_untyped, normal_type


def given_values(name: str, values: Any) -> Any:
    """The values as an Arrow array of a type that a table holds."""
    import pyarrow as pa

    array = pa.chunked_array([as_arrow(name, values)])
    kind = normal_type(array.type)
    check_held(name, kind)
    if pa.types.is_struct(kind):
        fields = ", ".join(repr(f"{name}.{field.name}") for field in kind)
        raise PlanError(
            f"put: {name!r} has rows of several fields, which are columns of their own in a table: "
            f"put each by itself, as {fields}"
        )
    if pa.types.is_null(kind):
        kind = pa.float64()
    elif is_untyped(kind):
        raise PlanError(
            f"put: all lists of {name!r} are empty, so their type is unknown: give one, e.g. by "
            "pa.array(values, pa.list_(pa.float32()))"
        )
    return as_normal(array, kind).combine_chunks()


def as_arrow(name: str, values: Any) -> Any:
    import pyarrow as pa

    try:
        if hasattr(values, "__arrow_c_stream__"):
            found = pa.chunked_array(values)
            return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
        if hasattr(values, "__arrow_c_array__"):
            return pa.array(values)
        column = as_column(name, values, "put")
        if isinstance(column, Values):
            column = Values([as_numpy(item) for item in column.items]).settled()
        if isinstance(column, Values):
            return pa.array([_nested(item) for item in column.items])
        return to_arrow(column)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise PlanError(f"put: the values of {name!r} do not have one type: {error}") from error


def _nested(item: Any) -> Any:
    """A value as Arrow takes it: arrays of several dimensions as lists of arrays, which keep their
    type."""
    if isinstance(item, np.ndarray):
        return [_nested(row) for row in item] if item.ndim > 1 else item[()]
    return item


def default_row(name: str, default: Any, kind: Any) -> Any:
    """One row with the value of rows that are given none."""
    import pyarrow as pa

    try:
        return pa.array([default.tolist() if hasattr(default, "tolist") else default], kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise PlanError(
            f"put: default={default!r:.80} is not a value of the type {kind}: {error}"
        ) from error


def as_bytes(value: Any) -> bytes:
    """A row in Arrow's IPC format."""
    import pyarrow as pa

    batch = pa.record_batch([value], names=["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def contents(piece: Any) -> tuple[Any, ...]:
    """The values in a form to hash, without the bytes that Arrow holds in place of nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, piece.type
    there = piece.is_valid().cast(pa.uint8()).to_numpy()
    dense = piece.drop_null()
    if types.is_struct(kind):
        return there, [contents(field) for field in dense.flatten()]
    if types.is_fixed_size_list(kind):
        return there, contents(dense.flatten())
    if types.is_list(kind):
        return there, pc.list_value_length(dense).to_numpy(), contents(dense.flatten())
    if types.is_string(kind) or types.is_binary(kind):
        joined = b"".join(dense.cast(pa.binary()).to_pylist())
        return there, pc.binary_length(dense).to_numpy(), joined
    if types.is_map(kind):
        return there, dense.to_pylist()
    if types.is_boolean(kind):
        dense = dense.cast(pa.uint8())
    width, data = dense.type.byte_width, dense.buffers()[1]
    return there, bytes(data.slice(dense.offset * width, len(dense) * width)) if data else b""
