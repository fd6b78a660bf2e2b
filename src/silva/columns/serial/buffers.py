"""Raw buffers behind a table of contents in msgpack: the container of columns and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from silva.columns.serial.checks import CannotDecode, check, whole_view
from silva.columns.serial.python_values import check_layout, encode_dtype

ALIGN = 64
"""Buffers begin at multiples of this, which suits vector instructions; the bytes of a batch end at
one."""
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
        spans, end = [], 0
        for parts in self._buffers:
            size = sum(part.nbytes for part in parts)
            spans.append((end, size))
            end += _aligned(size)
        head = msgspec.msgpack.encode([contents, spans])
        out = allocate(_aligned(8 + len(head)) + end)
        end = 0
        for parts in [
            [memoryview(len(head).to_bytes(8, "little")), memoryview(head)],
            *self._buffers,
        ]:
            for part in parts:
                _copy(part, out, end)
                end += part.nbytes
            out[end : _aligned(end)] = bytes(_aligned(end) - end)
            end = _aligned(end)
        return out.toreadonly()


def _copy(part: memoryview, out: memoryview, start: int) -> None:
    """Copies with numpy, which releases the GIL for large copies."""
    if part.nbytes:
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
