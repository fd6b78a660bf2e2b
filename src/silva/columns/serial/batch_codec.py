"""Encodes a batch, as a loader hands it out, as bytes. Nothing is pickled.

Decoded arrays are views of the bytes, writable where the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from silva.columns.ragged import Grouped, Ragged, is_tensor
from silva.columns.serial.buffers import Buffers, FoundBuffers, new_memory
from silva.columns.serial.checks import CannotDecode, check, check_offsets, check_places, strictly
from silva.columns.serial.python_values import CannotEncode, decode_items, encode_items
from silva.errors import ColumnError

_DEEPEST = 64
"""How deeply lists may be nested."""


def encode_batch(batch: Mapping[str, Any]) -> memoryview:
    """The values of a batch, by name, as bytes.

    >>> batch = {"x": np.arange(3), "t": Ragged(np.array([5, 6]), np.array([0, 2, 2]))}
    >>> again = decode_batch(encode_batch(batch))
    >>> again["x"].tolist(), [row.tolist() for row in again["t"]]
    ([0, 1, 2], [[5, 6], []])
    """
    writer, contents = _described(batch)
    return writer.joined(contents)


def encode_pieces(
    batch: Mapping[str, Any], allocate: Callable[[int], memoryview] = new_memory
) -> list[memoryview]:
    """The bytes of `encode_batch` in pieces, of which large arrays are not copied."""
    writer, contents = _described(batch)
    return writer.pieces(contents, allocate)


def _described(batch: Mapping[str, Any]) -> tuple[_BatchWriter, list[Any]]:
    writer = _BatchWriter()
    contents = []
    for name, value in batch.items():
        try:
            contents.append([name, writer.value(value)])
        except CannotEncode as error:
            raise ColumnError(
                f"column {name!r} of a batch holds {error}, which cannot be sent: a service sends "
                "numbers, text, bytes, arrays, tensors, and lists, tuples and dicts of these"
            ) from None
    return writer, contents


@strictly
def decode_batch(data: bytes | memoryview) -> dict[str, Any]:
    """The batch that `encode_batch` wrote; CannotDecode for bytes that it cannot have written."""
    found = FoundBuffers(data)
    batch = {name: _value(each, found, _DEEPEST) for name, each in found.contents.items()}
    return _with_shared_indices(batch)


class _BatchWriter(Buffers):
    """Describes values by the numbers of their buffers."""

    def value(self, value: Any) -> list[Any]:
        match value:
            case np.ma.MaskedArray() if not value.dtype.hasobject:
                mask = np.ma.getmaskarray(value)
                return ["masked", self.array(value.data), self.array(mask)]
            case np.ndarray() if not value.dtype.hasobject:
                return ["array", self.array(value)]
            case Ragged():
                return ["ragged", self.value(value.values), self.value(value.offsets)]
            case Grouped():
                parts = (value.values, value.offsets, value.inverse)
                return ["grouped", *map(self.value, parts)]
        if is_tensor(value):
            return self._tensor(value)
        return ["item", self.add(encode_items([value], frozenset({type(value)})))]

    def _tensor(self, value: Any) -> list[Any]:
        try:
            return ["tensor", self.array(value.detach().cpu().numpy())]
        except TypeError:  # a type that numpy does not have, such as bfloat16
            raise CannotEncode(f"a tensor of {value.dtype}") from None


def _value(described: Any, found: FoundBuffers, deeper: int) -> Any:
    check(deeper > 0, "lists are nested more than %s deep", _DEEPEST)
    match described:
        case ["array", array]:
            return found.array(array)
        case ["masked", array, mask]:
            data, hidden = found.array(array), found.array(mask)
            fits = hidden.dtype == np.ma.make_mask_descr(data.dtype)
            check(fits and hidden.shape == data.shape, "a mask does not fit its array")
            return np.ma.MaskedArray(data, mask=hidden)
        case ["tensor", array]:
            import torch

            return torch.from_numpy(found.array(array))
        case ["ragged", values, offsets]:
            values = _value(values, found, deeper - 1)
            return _ragged(values, _value(offsets, found, deeper - 1))
        case ["grouped", *parts] if len(parts) == 3:
            values, offsets, inverse = (_value(part, found, deeper - 1) for part in parts)
            unique = values if offsets is None else _ragged(values, offsets)
            check_places(_numbers(inverse), len(unique))
            return Grouped(values, offsets, inverse)
        case ["item", number]:
            (item,) = decode_items(found.take(number))
            return item
    raise CannotDecode(f"{described!r:.80} is not a value")


def _ragged(values: Any, offsets: Any) -> Ragged:
    check_offsets(_numbers(offsets), len(values))
    return Ragged(values, offsets)


def _numbers(value: Any) -> Any:
    """The array, also of a tensor."""
    return value.numpy() if is_tensor(value) else value


def _with_shared_indices(batch: dict[str, Any]) -> dict[str, Any]:
    """Lets columns that were grouped together share one index again."""
    found: dict[bytes, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Grouped) and isinstance(value.inverse, np.ndarray):
            inverse = found.setdefault(value.inverse.tobytes(), value.inverse)
            batch[name] = Grouped(value.values, value.offsets, inverse)
    return batch
