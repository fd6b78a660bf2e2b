"""Columns as bytes and back: what a cache on disk holds. Nothing is pickled.

A table of contents in msgpack says of what kind each column is; the numbers and text themselves
follow as raw buffers, so that decoding is a matter of pointing at them. Decoded arrays are
read-only views of the bytes they came in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns.array import Array
from silva.columns.column import Column
from silva.columns.grouped import Grouped
from silva.columns.lists import Lists
from silva.columns.serial_buffers import Buffers, flat, new_memory, read_array, read_buffers
from silva.columns.serial_items import (
    CannotEncode,
    decode_dtype,
    decode_items,
    encode_dtype,
    encode_items,
)
from silva.columns.strings import Strings
from silva.columns.values import Values
from silva.errors import ColumnError


def encode_columns(
    columns: dict[str, Column], allocate: Callable[[int], memoryview] = new_memory
) -> memoryview:
    """The columns, whatever their lengths, as one string of bytes, in memory from `allocate`."""
    writer = _Writer()
    contents = []
    for name, column in columns.items():
        try:
            contents.append([name, writer.column(column)])
        except CannotEncode as error:
            raise ColumnError(
                f"column {name!r} holds {error}, which cache(folder) cannot write: it keeps "
                "numbers, text, bytes, arrays, and lists, tuples and dicts of these. Put "
                "`.cache(…)` before the step that makes the column, drop the column, or keep rows "
                "in memory with `.cache()`"
            ) from None
    return writer.joined(contents, allocate)


def decode_columns(data: bytes | memoryview) -> dict[str, Column]:
    """The columns that `encode_columns` wrote, equal in kind, type and bytes."""
    contents, buffers = read_buffers(data)
    return {name: _column(described, buffers) for name, described in contents}


class _Writer(Buffers):
    """Columns, described by the numbers of their buffers."""

    def column(self, column: Column) -> list[Any]:
        match column:
            case Array():
                return ["array", self.array(column.data), self._optional(column.valid)]
            case Strings():
                return self._strings(column)
            case Lists():
                first, last = int(column.offsets[0]), int(column.offsets[-1])
                inner = self.column(column.values.slice(first, last))
                offsets = self.array(column.offsets - first)
                return ["lists", inner, offsets, self._optional(column.valid)]
            case Grouped():
                inverse = self.array(column.inverse)
                return ["grouped", self.column(column.unique), inverse, column.distinct]
            case Values():
                return self._values(column)
        raise CannotEncode(f"a column of kind {type(column).__name__}")

    def _optional(self, data: np.ndarray | None) -> list[Any] | None:
        return None if data is None else self.array(data)

    def _strings(self, column: Strings) -> list[Any]:
        data = column.data
        large = str(data.type).startswith("large_")
        _, offsets_buffer, text = data.buffers()
        offsets = np.zeros(1, np.int64 if large else np.int32)
        if len(data):
            found = np.frombuffer(offsets_buffer, dtype=offsets.dtype)
            offsets = found[data.offset : data.offset + len(data) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        valid = None
        if data.null_count:
            flags = data.is_valid().to_numpy(zero_copy_only=False)
            valid = self.array(np.packbits(flags, bitorder="little"))
        raw = memoryview(text)[first:last] if last > first else b""
        return ["strings", str(data.type), self.array(offsets - first), self.add(raw), valid]

    def _values(self, column: Values) -> list[Any]:
        """Arrays of many shapes lie in one buffer; anything else is written value by value."""
        items = column.items
        plain = column.kinds == {np.ndarray} and not any(x.dtype.hasobject for x in items)
        if not plain or any(not x.flags.c_contiguous for x in items):
            return ["values", self.add(encode_items(items, column.kinds))]
        each = [[encode_dtype(x.dtype), list(x.shape)] for x in items]
        return ["arrays", each, self.add(*map(flat, items))]


def _column(described: list[Any], buffers: list[memoryview]) -> Column:
    match described:
        case ["array", data, valid]:
            return Array(read_array(data, buffers), _optional(valid, buffers))
        case ["strings", kind, offsets, text, valid]:
            nulls = _optional(valid, buffers)
            return _strings(kind, read_array(offsets, buffers), buffers[text], nulls)
        case ["lists", inner, offsets, valid]:
            values = _column(inner, buffers)
            return Lists(values, read_array(offsets, buffers), _optional(valid, buffers))
        case ["grouped", inner, inverse, distinct]:
            return Grouped(_column(inner, buffers), read_array(inverse, buffers), distinct)
        case ["values", items]:
            return Values(decode_items(buffers[items]))
        case ["arrays", each, data]:
            return _arrays(each, buffers[data])
    raise ValueError(f"unknown kind of column {described[0]!r}")


def _optional(described: list[Any] | None, buffers: list[memoryview]) -> np.ndarray | None:
    return None if described is None else read_array(described, buffers)


def _strings(kind: str, offsets: np.ndarray, text: memoryview, valid: np.ndarray | None) -> Strings:
    import pyarrow as pa

    types = {str(t): t for t in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())}
    parts = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets)]
    parts.append(pa.py_buffer(text))
    return Strings(pa.Array.from_buffers(types[kind], len(offsets) - 1, parts))


def _arrays(each: list[Any], data: memoryview) -> Values:
    items, start = [], 0
    for described, shape in each:
        item = np.ndarray(shape, decode_dtype(described), data[start:])
        items.append(item)
        start += item.nbytes
    return Values(items)
