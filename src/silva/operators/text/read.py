"""Columns as Arrow text, whatever they were before: so a result cannot depend on that."""

from __future__ import annotations

from typing import Any

from silva.columns import Column, Strings
from silva.operators.native import pa

_BYTES = "bytes are not text yet: decode() comes first"


def read_text(column: Column) -> pa.Array:
    """The rows as a string or large_string array."""
    if isinstance(column, Strings):
        if is_text(column.data):
            return column.data
        if column.data.null_count < len(column):
            raise ValueError(_BYTES)
        return pa.nulls(len(column), pa.large_string())
    rows = column.rows()
    for kind in set(map(type, rows)):
        if issubclass(kind, bytes | bytearray | memoryview):
            raise ValueError(_BYTES)
        if kind is not type(None) and not issubclass(kind, str):
            raise ValueError(f"text is needed here, not {kind.__name__}")
    return _large_text(rows)


def read_bytes(column: Column) -> pa.Array:
    """The rows as a binary or large_binary array."""
    if isinstance(column, Strings):
        if not is_text(column.data):
            return column.data
        if column.data.null_count < len(column):
            raise ValueError("this is text already: decode() is for bytes")
        return pa.nulls(len(column), pa.large_binary())
    rows = column.rows()
    for kind in set(map(type, rows)):
        if issubclass(kind, str):
            raise ValueError("this is text already: decode() is for bytes")
        if kind is not type(None) and not issubclass(kind, bytes | bytearray | memoryview):
            raise ValueError(f"bytes are needed here, not {kind.__name__}")
    return pa.array([x if x is None else bytes(x) for x in rows], pa.large_binary())


def is_text(data: pa.Array) -> bool:
    return bool(pa.types.is_string(data.type) or pa.types.is_large_string(data.type))


def _large_text(rows: list[Any]) -> pa.Array:
    try:
        return pa.array(rows, pa.large_string())
    except UnicodeEncodeError as error:
        raise ValueError(f"text with half a surrogate pair is not Unicode: {error}") from None
