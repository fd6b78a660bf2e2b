"""Checks that foreign bytes must pass before they become arrays.

An array is a view of bytes, so numpy would trust a wrong type or shape: the type `|O` would turn
bytes into addresses. Only types of plain numbers, times, flags and text are accepted; shapes must
fit the bytes exactly; and values that numpy or Python would trip over later are refused now.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[([1-9]\d{0,8})?[a-zA-Z]{1,2}\])?")
_FIELDS, _DEEPEST = 4096, 16
"""The most fields of a structured type, and how deeply they may be nested."""
_INDICES = frozenset(map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4")))
_LARGEST_CHARACTER = 0x10FFFF
_MOST_EMPTY = 1 << 20
"""The most elements that take no bytes: nothing else bounds their number."""
_LARGEST_EMPTY = 1 << 24
"""The largest element, in bytes, of an empty array."""
_Bytes = TypeVar("_Bytes")
_Found = TypeVar("_Found")


class CannotDecode(ValueError):
    """The bytes are not what was encoded, and the message says why. The caller adds where they came
    from."""


_UNSOUND = (
    TypeError, ValueError, LookupError, ArithmeticError, AttributeError, BufferError, ImportError,
    MemoryError, RecursionError, struct.error, msgspec.MsgspecError,
)  # fmt: skip
"""What numpy, Arrow, msgspec and Python raise for invalid bytes."""


def strictly(decode: Callable[[_Bytes], _Found]) -> Callable[[_Bytes], _Found]:
    """Decorates a decoder so that it raises CannotDecode for all invalid bytes."""

    @functools.wraps(decode)
    def checked(data: _Bytes) -> _Found:
        try:
            return decode(data)
        except CannotDecode:
            raise
        except _UNSOUND as error:
            raise CannotDecode(f"{type(error).__name__}: {error}") from error

    return checked


def check(sound: bool, problem: str, *about: object) -> None:
    """Raises CannotDecode unless `sound`; the message is formatted only then."""
    if not sound:
        raise CannotDecode(problem % tuple(f"{each!s:.80}" for each in about))


def decode_dtype(described: Any) -> np.dtype:
    """The dtype of an encoded description; refuses those that could hold objects, and invalid
    spellings."""
    if type(described) is str:
        return _plain_dtype(described)
    fields = _structure(described, _DEEPEST)
    dtype: np.dtype = np.lib.format.descr_to_dtype(fields)
    check(not dtype.hasobject, "the type %s holds objects", dtype)
    check(np.lib.format.dtype_to_descr(dtype) == fields, "%s is not a type", described)
    return dtype


@functools.lru_cache(maxsize=256)
def _plain_dtype(described: str) -> np.dtype:
    check(_DTYPE.fullmatch(described) is not None, "%s is not a type of plain values", described)
    try:
        dtype: np.dtype = np.dtype(described)
    except (TypeError, ValueError) as error:
        raise CannotDecode(f"{described!r} is not a type") from error
    check(dtype.str == described and not dtype.hasobject, "%s is not a type", described)
    return dtype


def _structure(described: Any, depth: int) -> list[Any]:
    """The fields of a structured dtype as numpy takes them: msgpack returns lists for tuples."""
    check(isinstance(described, list | tuple) and depth > 0, "%s is not a type", described)
    check(0 < len(described) <= _FIELDS, "a type has too many fields, or none")
    return [_field(field, depth) for field in described]


def _field(field: Any, depth: int) -> tuple[Any, ...]:
    match field:
        case [name, inner, *shape] if len(shape) < 2:
            kind = inner if isinstance(inner, str) else _structure(inner, depth - 1)
            if isinstance(inner, str):
                _plain_dtype(inner)
            return (_name(name), kind, *map(check_shape, shape))
    raise CannotDecode(f"{field!r:.80} is not a field of a type")


def _name(name: Any) -> Any:
    if isinstance(name, list | tuple):  # with a title
        title, name = name
        check(isinstance(title, str), "%s is not the title of a field", title)
        return title, _name(name)
    check(isinstance(name, str), "%s is not the name of a field", name)
    return name


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape as a tuple, if it is a list of sizes, none of them negative."""
    check(isinstance(shape, list | tuple), "%s is not a shape", shape)
    for size in shape:
        if type(size) is not int or size < 0:
            raise CannotDecode(f"{shape!r:.80} is not a shape")
    return tuple(shape)


def check_empty(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Refuses arrays that have no bytes but many elements."""
    before = shape[: shape.index(0)] if 0 in shape else shape
    bounded = math.prod(before) <= _MOST_EMPTY and dtype.itemsize <= _LARGEST_EMPTY
    check(bounded, "an array of shape %s of %s has no bytes", shape, dtype)


def view(
    dtype: np.dtype, shape: Any, data: Any, start: int = 0, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """Bytes from `start` on as an array, writable where they are. Numpy itself refuses invalid
    shapes, and those that need more bytes than there are."""
    if -1 in shape:  # to numpy, as many as there are: it divides by their size, which may be 0
        raise CannotDecode(f"{shape!r:.80} is not a shape")
    array: np.ndarray = np.ndarray(shape, dtype, data, start, None, order)
    if not array.nbytes:
        check_empty(dtype, array.shape)
    elif dtype.kind in "bUV":
        check_values(array)
    return array


def whole_view(described: Any, shape: Any, data: Any, order: Literal["C", "F"] = "C") -> np.ndarray:
    """All bytes as an array of an encoded dtype."""
    array = view(decode_dtype(described), shape, data, 0, order)
    if array.nbytes != len(data):
        raise CannotDecode(f"{len(data)} bytes are not an array of shape {shape} of {array.dtype}")
    return array


def check_values(array: np.ndarray) -> None:
    """Refuses flags that are neither 0 nor 1, and characters that do not exist."""
    dtype = array.dtype
    if dtype.names is not None:
        for name in dtype.names:
            check_values(array[name])
    elif dtype.kind == "b" and array.size:
        check(int(array.view(np.uint8).max()) <= 1, "a flag is neither 0 nor 1")
    elif dtype.kind == "U" and array.nbytes:
        codes = np.ascontiguousarray(array).reshape(-1).view(f"{dtype.byteorder}u4")
        check(int(codes.max()) <= _LARGEST_CHARACTER, "a text holds an invalid character")


def check_offsets(offsets: Any, total: int) -> None:
    """Checks the offsets of lists among `total` items: ascending, and within them."""
    check(_is_index(offsets) and len(offsets) > 0, "offsets are not an array of whole numbers")
    within = int(offsets[0]) >= 0 and int(offsets[-1]) <= total
    ascend = bool((offsets[1:] >= offsets[:-1]).all())
    check(within and ascend, "offsets do not ascend from 0 to %s", total)


def check_places(places: Any, total: int) -> None:
    """Checks indices of rows among `total`."""
    check(_is_index(places), "indices are not an array of whole numbers")
    if len(places):
        within = int(places.min()) >= 0 and int(places.max()) < total
        check(within, "an index is not below %s", total)


def check_mask(valid: np.ndarray | None, rows: int) -> None:
    if valid is not None:
        fits = valid.dtype == np.bool_ and valid.shape == (rows,)
        check(fits, "a mask of %s %s does not fit %s rows", valid.shape, valid.dtype, rows)


def _is_index(data: Any) -> bool:
    return isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype in _INDICES
