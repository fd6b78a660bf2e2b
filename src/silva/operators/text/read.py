"""Columns as Arrow text, whatever they were before: so a result cannot depend on that."""

from __future__ import annotations

from typing import Any

from silva.columns import Column, Strings
from silva.operators.native import pa

_BINARY = (bytes, bytearray, memoryview)


def read_text(column: Column) -> pa.Array:
    """The rows as a string or large_string array."""
    if isinstance(column, Strings) and is_text(column.data):
        return column.data
    rows = _rows(column, (str,), "text is", _BINARY, "bytes are not text yet: decode() comes first")
    try:
        return pa.array(rows, pa.large_string())
    except UnicodeEncodeError as error:
        raise ValueError(f"text with half a surrogate pair is not Unicode: {error}") from None


def read_bytes(column: Column) -> pa.Array:
    """The rows as a binary or large_binary array."""
    if isinstance(column, Strings) and not is_text(column.data):
        return column.data
    other = "this is text already: decode() is for bytes"
    rows = _rows(column, _BINARY, "bytes are", (str,), other)
    return pa.array([None if row is None else bytes(row) for row in rows], pa.large_binary())


def _rows(
    column: Column, wanted: tuple[type, ...], what: str, other: tuple[type, ...], hint: str
) -> list[Any]:
    """The rows, each None or of a `wanted` type; `hint` is the error for the `other` types."""
    rows = column.rows()
    for kind in set(map(type, rows)) - {type(None)}:
        if issubclass(kind, other):
            raise ValueError(hint)
        if not issubclass(kind, wanted):
            raise ValueError(f"{what} needed here, not {kind.__name__}")
    return rows


def is_text(data: pa.Array) -> bool:
    return bool(pa.types.is_string(data.type) or pa.types.is_large_string(data.type))
