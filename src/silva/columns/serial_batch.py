"""A batch, as a loader hands it out, as bytes and back. Nothing is pickled.

Arrays come back as views of the bytes, which can be written where the bytes can.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from silva.columns.grouped_batch import Grouped
from silva.columns.ragged import Ragged
from silva.columns.serial_buffers import Buffers, read_array, read_buffers
from silva.columns.serial_items import CannotEncode, decode_items, encode_items
from silva.errors import ColumnError


def encode_batch(batch: Mapping[str, Any]) -> memoryview:
    """The values of a batch by name, as one string of bytes.

    >>> batch = {"x": np.arange(3), "t": Ragged(np.array([5, 6]), np.array([0, 2, 2]))}
    >>> again = decode_batch(encode_batch(batch))
    >>> again["x"].tolist(), [row.tolist() for row in again["t"]]
    ([0, 1, 2], [[5, 6], []])
    """
    writer = _Writer()
    contents = []
    for name, value in batch.items():
        try:
            contents.append([name, writer.value(value)])
        except CannotEncode as error:
            raise ColumnError(
                f"column {name!r} of a batch holds {error}, which cannot be sent: a service sends "
                "numbers, text, bytes, arrays, tensors, and lists, tuples and dicts of these"
            ) from None
    return writer.joined(contents)


def decode_batch(data: bytes | memoryview) -> dict[str, Any]:
    """The batch that `encode_batch` wrote."""
    contents, buffers = read_buffers(data)
    batch = {name: _value(described, buffers) for name, described in contents}
    return _with_shared_indices(batch)


class _Writer(Buffers):
    """Values, described by the numbers of their buffers."""

    def value(self, value: Any) -> list[Any]:
        match value:
            case np.ndarray() if not value.dtype.hasobject:
                return ["array", self.array(value)]
            case Ragged():
                return ["ragged", self.value(value.values), self.value(value.offsets)]
            case Grouped():
                parts = (value.values, value.offsets, value.inverse)
                return ["grouped", *map(self.value, parts)]
        if _is_tensor(value):
            return self._tensor(value)
        return ["item", self.add(encode_items([value], frozenset({type(value)})))]

    def _tensor(self, value: Any) -> list[Any]:
        try:
            return ["tensor", self.array(value.detach().cpu().numpy())]
        except TypeError:  # a type that numpy does not have, such as bfloat16
            raise CannotEncode(f"a tensor of {value.dtype}") from None


def _value(described: list[Any], buffers: list[memoryview]) -> Any:
    match described:
        case ["array", array]:
            return read_array(array, buffers)
        case ["tensor", array]:
            import torch

            return torch.from_numpy(read_array(array, buffers))
        case ["ragged", values, offsets]:
            return Ragged(_value(values, buffers), _value(offsets, buffers))
        case ["grouped", values, offsets, inverse]:
            return Grouped(*(_value(part, buffers) for part in (values, offsets, inverse)))
        case ["item", number]:
            return decode_items(buffers[number])[0]
    raise ValueError(f"unknown kind of value {described[0]!r}")


def _with_shared_indices(batch: dict[str, Any]) -> dict[str, Any]:
    """Columns that were grouped together share one index, as they did before."""
    found: dict[bytes, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Grouped) and isinstance(value.inverse, np.ndarray):
            inverse = found.setdefault(value.inverse.tobytes(), value.inverse)
            batch[name] = Grouped(value.values, value.offsets, inverse)
    return batch


def _is_tensor(value: Any) -> bool:
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
