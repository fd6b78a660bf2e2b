"""Encodes columns as the bytes that a cache keeps on disk. Nothing is pickled, nothing is trusted.

A table of contents in msgpack describes each column; numbers and text follow as raw buffers, so
decoding copies nothing. Decoded arrays are read-only views of the bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns.column import Array, Column, Strings
from silva.columns.dictionary import Dictionary
from silva.columns.lists import Lists
from silva.columns.serial.buffers import Buffers, FoundBuffers, flat, new_memory
from silva.columns.serial.checks import (
    CannotDecode,
    check,
    check_mask,
    check_offsets,
    check_places,
    decode_dtype,
    strictly,
    view,
)
from silva.columns.serial.python_values import (
    CannotEncode,
    check_layout,
    decode_items,
    encode_dtype,
    encode_items,
)
from silva.columns.union import Union
from silva.columns.values import Values
from silva.errors import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa

_DEEPEST = 64
"""How deeply columns may be nested."""


def encode_columns(
    columns: dict[str, Column], allocate: Callable[[int], memoryview] = new_memory
) -> memoryview:
    """The columns, of any lengths, as bytes in memory from `allocate`."""
    writer = _ColumnWriter()
    contents = []
    for name, column in columns.items():
        try:
            contents.append([name, writer.column(column)])
        except RecursionError:
            raise ColumnError(
                f"column {name!r} holds lists that are nested too deeply for cache(folder)"
            ) from None
        except CannotEncode as error:
            raise ColumnError(
                f"column {name!r} holds {error}, which cache(folder) cannot write: it keeps "
                "numbers, text, bytes, arrays, and lists, tuples and dicts of these. Put "
                "`.cache(…)` before the step that makes the column, drop the column, or keep rows "
                "in memory with `.cache()`"
            ) from None
    return writer.joined(contents, allocate)


@strictly
def decode_columns(data: bytes | memoryview) -> dict[str, Column]:
    """The columns that `encode_columns` wrote, equal in kind, type and bytes; CannotDecode for
    bytes that it cannot have written."""
    found = FoundBuffers(data)
    return {name: _column(each, found, _DEEPEST) for name, each in found.contents.items()}


class _ColumnWriter(Buffers):
    """Describes columns by the numbers of their buffers."""

    def column(self, column: Column, deeper: int = _DEEPEST) -> list[Any]:
        if not deeper:
            raise CannotEncode(f"columns of lists that are nested more than {_DEEPEST} deep")
        match column:
            case Array():
                return ["array", self.array(column.data), self._optional(column.valid)]
            case Strings():
                return self._strings(column)
            case Lists():
                first, last = int(column.offsets[0]), int(column.offsets[-1])
                inner = self.column(column.values.slice(first, last), deeper - 1)
                offsets = self.array(column.offsets - first)
                return ["lists", inner, offsets, self._optional(column.valid)]
            case Dictionary():
                inverse = self.array(column.inverse)
                unique = self.column(column.unique, deeper - 1)
                return ["grouped", unique, inverse, column.distinct]
            case Union():
                parts = [self.column(part, deeper - 1) for part in column.parts]
                return ["union", parts, self.array(column.which)]
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
        """Arrays of several shapes share one buffer; anything else is written value by value."""
        items = column.items
        plain = column.kinds == {np.ndarray} and not any(x.dtype.hasobject for x in items)
        if not plain or any(not x.flags.c_contiguous for x in items):
            return ["values", self.add(encode_items(items, column.kinds))]
        for item in items:
            check_layout(item)
        each = [[encode_dtype(x.dtype), list(x.shape)] for x in items]
        return ["arrays", each, self.add(*map(flat, items))]


def _column(described: Any, found: FoundBuffers, deeper: int) -> Column:
    check(deeper > 0, "columns are nested more than %s deep", _DEEPEST)
    match described:
        case ["array", data, valid]:
            array, mask = found.array(data), _optional(valid, found)
            check(array.ndim > 0, "an array has no rows")
            check_mask(mask, len(array))
            return Array(array, mask)
        case ["strings", str(kind), offsets, text, valid]:
            nulls = _optional(valid, found)
            return _strings(kind, found.array(offsets), found.take(text), nulls)
        case ["lists", inner, offsets, valid]:
            values, bounds = _column(inner, found, deeper - 1), found.array(offsets)
            check_offsets(bounds, len(values))
            mask = _optional(valid, found)
            check_mask(mask, len(bounds) - 1)
            return Lists(values, bounds, mask)
        case ["grouped", inner, inverse, bool(distinct)]:
            unique, places = _column(inner, found, deeper - 1), found.array(inverse)
            check_places(places, len(unique))
            return Dictionary(unique, places, distinct)
        case ["union", list(parts), which]:
            return _union([_column(part, found, deeper - 1) for part in parts], found.array(which))
        case ["values", items]:
            return Values(decode_items(found.take(items)))
        case ["arrays", list(each), data]:
            return _arrays(each, found.take(data))
    raise CannotDecode(f"{described!r:.80} is not a column")


def _optional(described: Any, found: FoundBuffers) -> np.ndarray | None:
    return None if described is None else found.array(described)


def _strings(kind: str, offsets: np.ndarray, text: memoryview, valid: np.ndarray | None) -> Strings:
    """Arrow trusts the buffers that it is given: their types and sizes are checked here, and their
    contents by Arrow."""
    import pyarrow as pa

    types = _text_types()
    wide = np.dtype("<i8" if kind.startswith("large_") else "<i4")
    check(kind in types, "%s is not a type of text", kind)
    fits = offsets.dtype == wide and offsets.ndim == 1 and len(offsets) > 0
    check(fits, "%s %s are not offsets of %s", offsets.dtype, offsets.shape, kind)
    rows = len(offsets) - 1
    if valid is not None:
        bits = (-(-rows // 8),)
        fits = valid.dtype == np.uint8 and valid.shape == bits
        check(fits, "a mask does not fit %s rows", rows)
    parts = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets)]
    parts.append(pa.py_buffer(text))
    array = pa.Array.from_buffers(types[kind], rows, parts)
    array.validate(full=True)
    return Strings(array)


@functools.cache
def _text_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {str(t): t for t in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())}


def _union(parts: list[Column], which: np.ndarray) -> Union:
    sizes = [len(part) for part in parts]
    check(which.dtype == np.int32 and which.ndim == 1, "a union's index is not an array of int32")
    check(len(parts) > 1 and 0 not in sizes, "a union has parts without rows")
    check(len(which) == sum(sizes), "the parts of a union do not fit its index")
    check_places(which, len(parts))
    counts = np.bincount(which, minlength=len(parts)).tolist()
    check(counts == sizes, "the parts of a union do not fit its index")
    return Union(tuple(parts), which)


def _arrays(each: list[Any], data: memoryview) -> Values:
    items, start = [], 0
    last, dtype = None, np.dtype(bool)
    for described, shape in each:
        if described != last:  # nearly always the same for all arrays
            last, dtype = described, decode_dtype(described)
        item = view(dtype, shape, data, start)
        items.append(item)
        start += item.nbytes
    check(start == len(data), "arrays are not as long as their bytes")
    return Values(items)
