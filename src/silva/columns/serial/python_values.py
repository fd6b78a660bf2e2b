"""Python values as msgpack and back, exactly: a tuple stays a tuple, a float32 a float32.

Types that msgpack does not have (tuples, arrays, numpy scalars, integers beyond 64 bits, …) become
extensions: a code for the type, and the parts as msgpack again. Types are matched exactly, never by
inheritance: values that could not come back unchanged are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from silva.columns.column import is_masked_array
from silva.columns.serial.checks import (
    CannotDecode,
    check,
    check_empty,
    check_shape,
    strictly,
    whole_view,
)

_TUPLE, _DICT, _INT, _TEXT, _COMPLEX, _ARRAY, _OBJECTS, _SCALAR, _NUMPY_TEXT = range(1, 10)

_AS_THEY_ARE = frozenset({type(None), bool, int, float, str, bytes})


class CannotEncode(TypeError):
    """A value of a type that cannot be written; the message is the type's name."""


def encode_items(items: list[Any], kinds: frozenset[type]) -> bytes:
    """Encodes a list of values; `kinds` are their types."""
    if kinds <= _AS_THEY_ARE:
        try:
            return msgspec.msgpack.encode(items)
        except (OverflowError, UnicodeEncodeError):  # one of them is huge, or half a surrogate pair
            pass
    return msgspec.msgpack.encode([_packed(item) for item in items])


@strictly
def decode_items(data: Any) -> list[Any]:
    """The values that `encode_items` wrote; CannotDecode for bytes that it cannot have written."""
    found: list[Any] = _DECODER.decode(data)
    check(type(found) is list, "%s is not a list", type(found))
    return found


def encode_dtype(dtype: np.dtype) -> Any:
    """A dtype as numpy's own file format writes it; structured ones keep their fields."""
    if dtype.hasobject:
        raise CannotEncode(f"arrays of {dtype}")
    described = np.lib.format.dtype_to_descr(dtype)
    if not described or (isinstance(described, str) and np.dtype(described) != dtype):
        raise CannotEncode(f"arrays of {dtype}")  # bfloat16 and others that numpy does not know
    return described


def check_layout(data: np.ndarray) -> None:
    """Refuses an array that decoders would refuse: it has elements but no bytes."""
    if data.nbytes:
        return
    try:
        check_empty(data.dtype, data.shape)
    except CannotDecode as error:
        raise CannotEncode(str(error)) from None


def _encode(item: Any) -> bytes:
    return msgspec.msgpack.encode(_packed(item))


def _packed(item: Any) -> Any:
    kind = type(item)
    if kind in (type(None), bool, float, bytes):
        return item
    pack = _PACKERS.get(kind)
    if pack is not None:
        return pack(item)
    if isinstance(item, np.generic):
        return _pack_scalar(item)
    if is_masked_array(item):  # functions see its type, so it cannot come back as a plain array
        raise CannotEncode("masked arrays (`.filled(…)` makes plain ones)")
    raise CannotEncode(f"{kind.__module__}.{kind.__qualname__}")


def _pack_int(item: int) -> Any:
    if -(1 << 63) <= item < 1 << 64:
        return item
    return Ext(_INT, item.to_bytes(item.bit_length() // 8 + 1, "little", signed=True))


def _pack_text(item: str) -> Any:
    try:
        item.encode()
    except UnicodeEncodeError:
        return Ext(_TEXT, item.encode("utf-8", "surrogatepass"))
    return item


def _pack_list(item: list[Any]) -> Any:
    return msgspec.Raw(encode_items(item, frozenset(map(type, item))))


def _pack_tuple(item: tuple[Any, ...]) -> Any:
    return Ext(_TUPLE, _encode(list(item)))


def _pack_dict(item: dict[Any, Any]) -> Any:
    return Ext(_DICT, _encode([list(item.keys()), list(item.values())]))


def _pack_complex(item: complex) -> Any:
    return Ext(_COMPLEX, struct.pack("<dd", item.real, item.imag))


def _pack_array(item: np.ndarray) -> Any:
    check_layout(item)
    if item.dtype == object:
        return Ext(_OBJECTS, _encode([list(item.shape), item.ravel().tolist()]))
    by_columns = item.flags.f_contiguous and not item.flags.c_contiguous
    if item.dtype.kind == "b":
        item = item.view(np.uint8) != 0
    data = item.tobytes("F" if by_columns else "C")
    return Ext(_ARRAY, _encode([encode_dtype(item.dtype), list(item.shape), by_columns, data]))


def _pack_scalar(item: np.generic) -> Any:
    if isinstance(item, np.str_):
        return Ext(_NUMPY_TEXT, _encode(str(item)))
    if isinstance(item, np.bytes_):
        return Ext(_NUMPY_TEXT, _encode(bytes(item)))
    return Ext(_SCALAR, _encode([encode_dtype(item.dtype), item.tobytes()]))


_PACKERS: dict[type, Callable[[Any], Any]] = {
    int: _pack_int,
    str: _pack_text,
    list: _pack_list,
    tuple: _pack_tuple,
    dict: _pack_dict,
    complex: _pack_complex,
    np.ndarray: _pack_array,
    np.memmap: _pack_array,
}


def _unpack(code: int, data: memoryview) -> Any:
    match code:
        case 1:  # _TUPLE
            return tuple(_DECODER.decode(data))
        case 2:  # _DICT
            keys, values = _DECODER.decode(data)
            made = dict(zip(keys, values, strict=True))
            if len(made) != len(keys):
                raise CannotDecode("a key of a dict appears twice")
            return made
        case 3:  # _INT
            return int.from_bytes(data, "little", signed=True)
        case 4:  # _TEXT
            return bytes(data).decode("utf-8", "surrogatepass")
        case 5:  # _COMPLEX
            return complex(*struct.unpack("<dd", data))
        case 6:  # _ARRAY
            described, shape, by_columns, raw = _DECODER.decode(data)
            check(type(raw) is bytes, "the data of an array is not bytes")
            return whole_view(described, shape, raw, "F" if by_columns else "C")
        case 7:  # _OBJECTS
            shape, items = _DECODER.decode(data)
            return _objects(shape, items)
        case 8:  # _SCALAR
            described, raw = _DECODER.decode(data)
            check(type(raw) is bytes, "the data of a number is not bytes")
            return whole_view(described, [1], raw)[0]
        case 9:  # _NUMPY_TEXT
            text = _DECODER.decode(data)
            check(type(text) in (str, bytes), "%s is not text", type(text))
            return np.str_(text) if isinstance(text, str) else np.bytes_(text)
    raise CannotDecode(f"unknown extension {code}")


def _objects(shape: list[int], items: list[Any]) -> np.ndarray:
    check(isinstance(items, list), "the objects of an array are not a list")
    out = np.fromiter(items, object, len(items))  # `np.array` would unpack sequences
    axes = check_shape(shape)
    if not items:
        check_empty(out.dtype, axes)
    return out.reshape(axes)


_DECODER = msgspec.msgpack.Decoder(ext_hook=_unpack)
