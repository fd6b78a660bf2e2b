"""Python values as msgpack and back, exactly: a tuple stays a tuple, a float32 a float32.

What msgpack has no word for (tuples, arrays, numpy scalars, integers beyond 64 bits, …) becomes an
extension: a number that says what it is, and its parts as msgpack again. Types are matched exactly,
never by inheritance: what cannot come back as it was is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext

_TUPLE, _DICT, _INT, _TEXT, _COMPLEX, _ARRAY, _OBJECTS, _SCALAR, _NUMPY_TEXT = range(1, 10)

_AS_THEY_ARE = frozenset({type(None), bool, int, float, str, bytes})


class CannotEncode(TypeError):
    """A value of a type that cannot be written; the message is the type's name."""


def encode_items(items: list[Any], kinds: frozenset[type]) -> bytes:
    """A list of values; `kinds` are their types."""
    if kinds <= _AS_THEY_ARE:
        try:
            return msgspec.msgpack.encode(items)
        except (OverflowError, UnicodeEncodeError):  # one of them is huge, or half a surrogate pair
            pass
    return _encode(items)


def decode_items(data: Any) -> list[Any]:
    found: list[Any] = _DECODER.decode(data)
    return found


def encode_dtype(dtype: np.dtype) -> Any:
    """A dtype as numpy's own file format writes it; structured ones keep their fields."""
    if dtype.hasobject:
        raise CannotEncode(f"arrays of {dtype}")
    return np.lib.format.dtype_to_descr(dtype)


def decode_dtype(described: Any) -> np.dtype:
    return np.lib.format.descr_to_dtype(_tuples(described))


def _tuples(described: Any) -> Any:
    """msgpack gives lists where numpy wants the fields of a dtype as tuples."""
    if isinstance(described, str):
        return described
    fields = [tuple(map(_tuples_in_field, field)) for field in described]
    return fields


def _tuples_in_field(part: Any) -> Any:
    if not isinstance(part, list):
        return part
    if all(isinstance(x, int) for x in part):
        return tuple(part)  # a shape
    if all(isinstance(x, str) for x in part):
        return tuple(part)  # a title and a name
    return _tuples(part)


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
    return [_packed(x) for x in item]


def _pack_tuple(item: tuple[Any, ...]) -> Any:
    return Ext(_TUPLE, _encode(list(item)))


def _pack_dict(item: dict[Any, Any]) -> Any:
    return Ext(_DICT, _encode([list(item.keys()), list(item.values())]))


def _pack_complex(item: complex) -> Any:
    return Ext(_COMPLEX, struct.pack("<dd", item.real, item.imag))


def _pack_array(item: np.ndarray) -> Any:
    if item.dtype == object:
        return Ext(_OBJECTS, _encode([list(item.shape), item.ravel().tolist()]))
    by_columns = item.flags.f_contiguous and not item.flags.c_contiguous
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
            return tuple(decode_items(data))
        case 2:  # _DICT
            keys, values = decode_items(data)
            return dict(zip(keys, values, strict=True))
        case 3:  # _INT
            return int.from_bytes(data, "little", signed=True)
        case 4:  # _TEXT
            return bytes(data).decode("utf-8", "surrogatepass")
        case 5:  # _COMPLEX
            return complex(*struct.unpack("<dd", data))
        case 6:  # _ARRAY
            described, shape, by_columns, raw = decode_items(data)
            flat = np.frombuffer(raw, dtype=decode_dtype(described))
            return flat.reshape(shape, order="F" if by_columns else "C")
        case 7:  # _OBJECTS
            shape, items = decode_items(data)
            out = np.empty(len(items), dtype=object)
            for i, item in enumerate(items):  # a slice assignment would unpack sequences
                out[i] = item
            return out.reshape(shape)
        case 8:  # _SCALAR
            described, raw = decode_items(data)
            return np.frombuffer(raw, dtype=decode_dtype(described))[0]
        case 9:  # _NUMPY_TEXT
            text: Any = decode_items(data)
            return np.str_(text) if isinstance(text, str) else np.bytes_(text)
    raise ValueError(f"unknown extension {code}")


_DECODER = msgspec.msgpack.Decoder(ext_hook=_unpack)
