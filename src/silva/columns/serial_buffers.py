"""Raw buffers behind a table of contents in msgpack: how columns and batches lie in bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from silva.columns.serial_items import decode_dtype, encode_dtype

_ALIGN = 64
"""Buffers begin at multiples of this, where vector instructions like them."""


def new_memory(size: int) -> memoryview:
    """Not filled with zeros: all of it is written."""
    return np.empty(size, np.uint8).data


class Buffers:
    """Gathers buffers; what lies in them is described by their numbers."""

    def __init__(self) -> None:
        self._buffers: list[list[memoryview]] = []
        """Each in the parts that are to be joined."""

    def add(self, *parts: Any) -> int:
        """A buffer of these parts, end to end; its number."""
        self._buffers.append([memoryview(part).cast("B") for part in parts])
        return len(self._buffers) - 1

    def array(self, data: np.ndarray) -> list[Any]:
        """An array of anything but objects; see `read_array`."""
        return [encode_dtype(data.dtype), list(data.shape), self.add(flat(data))]

    def joined(
        self, contents: Any, allocate: Callable[[int], memoryview] = new_memory
    ) -> memoryview:
        """The contents and all buffers, in memory from `allocate`; see `read_buffers`."""
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
    """By numpy, which lets others have Python's lock while it copies what is large."""
    if part.nbytes:
        place = np.frombuffer(out, np.uint8, part.nbytes, start)
        place[:] = np.frombuffer(part, np.uint8)


def read_buffers(data: bytes | memoryview) -> tuple[Any, list[memoryview]]:
    """The contents, and the buffers that they speak of by number: views of `data`."""
    whole = memoryview(data)
    length = int.from_bytes(whole[:8], "little")
    contents, spans = msgspec.msgpack.decode(whole[8 : 8 + length])
    base = _aligned(8 + length)
    return contents, [whole[base + start : base + start + size] for start, size in spans]


def read_array(described: list[Any], buffers: list[memoryview]) -> np.ndarray:
    """A view of what `Buffers.array` wrote; it can be written where the bytes can."""
    dtype, shape, buffer = described
    return np.ndarray(shape, decode_dtype(dtype), buffers[buffer])


def flat(data: np.ndarray) -> Any:
    """The bytes of an array, in C order."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8) if data.nbytes else b""


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
