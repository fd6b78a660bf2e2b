"""Raw buffers behind a table of contents in msgpack: the container of columns and batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from silva.columns.allocation import fills_buffer
from silva.columns.serial.checks import CannotDecode, check, whole_view
from silva.columns.serial.python_values import check_layout, encode_dtype

ALIGN = 64
"""Buffers begin at multiples of this, which suits vector instructions; the bytes of a batch end at
one."""
_IN_PLACE = 1 << 20
"""Bytes of an array from which it is a piece of its own."""
_HEAD = msgspec.msgpack.Decoder(tuple[list[tuple[str, Any]], list[tuple[int, int]]])
"""The contents by name, and the start and size of each buffer."""


def new_memory(size: int) -> memoryview:
    """Uninitialised memory: all of it will be written."""
    return np.empty(size, np.uint8).data


class Buffers:
    """Collects buffers, which contents refer to by number."""

    def __init__(self) -> None:
        self._buffers: list[list[memoryview]] = []
        """Each buffer as parts that are joined later."""

    def add(self, *parts: Any) -> int:
        """Adds a buffer of these parts, end to end; returns its number."""
        self._buffers.append([memoryview(part).cast("B") for part in parts])
        return len(self._buffers) - 1

    def array(self, data: np.ndarray) -> list[Any]:
        """Adds an array without objects; see `FoundBuffers.array`."""
        check_layout(data)
        return [encode_dtype(data.dtype), list(data.shape), self.add(flat(data))]

    def joined(
        self, contents: Any, allocate: Callable[[int], memoryview] = new_memory
    ) -> memoryview:
        """The contents and all buffers, in memory from `allocate`; see `FoundBuffers`."""
        return _join(self._laid_out(contents), allocate)

    def pieces(
        self, contents: Any, allocate: Callable[[int], memoryview] = new_memory
    ) -> list[memoryview]:
        """The same bytes as `joined`, in pieces: large arrays in buffers of their own are not
        copied."""
        pieces: list[memoryview] = []
        for in_place, found in itertools.groupby(self._laid_out(contents), _stays):
            parts = list(found)
            pieces += parts if in_place else [_join(parts, allocate)]
        return pieces

    def _laid_out(self, contents: Any) -> list[memoryview]:
        """All parts in order, with the zeros between them."""
        spans, end = [], 0
        for parts in self._buffers:
            size = sum(part.nbytes for part in parts)
            spans.append((end, size))
            end += _aligned(size)
        head = msgspec.msgpack.encode([contents, spans])
        first = [memoryview(len(head).to_bytes(8, "little")), memoryview(head)]
        laid_out = []
        for parts in [first, *self._buffers]:
            size = sum(part.nbytes for part in parts)
            laid_out += [*parts, memoryview(bytes(_aligned(size) - size))]
        return [part for part in laid_out if part.nbytes]


def _join(parts: list[memoryview], allocate: Callable[[int], memoryview]) -> memoryview:
    out, end = allocate(sum(part.nbytes for part in parts)), 0
    for part in parts:
        _copy(part, out, end)
        end += part.nbytes
    return out.toreadonly()


def _stays(part: memoryview) -> bool:
    """Whether a part is sent from where it lies."""
    return part.nbytes >= _IN_PLACE and isinstance(part.obj, np.ndarray) and fills_buffer(part.obj)


def _copy(part: memoryview, out: memoryview, start: int) -> None:
    """Copies with numpy, which releases the GIL for large copies."""
    place = np.frombuffer(out, np.uint8, part.nbytes, start)
    place[:] = np.frombuffer(part, np.uint8)


class FoundBuffers:
    """The contents by name, and the buffers that they refer to by number, as views of `data`. Each
    buffer is handed out once, so that decoding cannot multiply the bytes."""

    def __init__(self, data: bytes | memoryview) -> None:
        whole = memoryview(data).cast("B")
        length = int.from_bytes(whole[:8], "little")
        check(length <= len(whole) - 8, "the table of contents is truncated")
        contents, spans = _HEAD.decode(whole[8 : 8 + length])
        self.contents = dict(contents)
        check(len(self.contents) == len(contents), "a name appears twice")
        base = end = _aligned(8 + length)
        self._buffers: list[memoryview[int] | None] = []
        for start, size in spans:
            if base + start != end or size < 0:
                raise CannotDecode("the buffers do not follow each other")
            self._buffers.append(whole[end : end + size])
            end += _aligned(size)
        check(end == len(whole), "there are %s bytes and not %s", len(whole), end)

    def take(self, number: Any) -> memoryview:
        """A buffer by its number."""
        found: memoryview[int] | None = self._buffers[number]
        if found is None or number < 0:
            raise CannotDecode(f"buffer {number} is used twice")
        self._buffers[number] = None
        return found

    def array(self, described: Any) -> np.ndarray:
        """A view of what `Buffers.array` wrote, writable where the bytes are."""
        dtype, shape, number = described
        return whole_view(dtype, shape, self.take(number))


def flat(data: np.ndarray) -> Any:
    """The bytes of an array in C order; flags are normalised to 0 and 1."""
    if data.dtype.kind == "b":
        data = data.view(np.uint8) != 0
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8) if data.nbytes else b""


def _aligned(size: int) -> int:
    return (size + ALIGN - 1) & -ALIGN
