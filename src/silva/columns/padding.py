"""Bytes that no value fills: those behind a long double of 80 bits, and between aligned fields.

They hold whatever was in memory, so equal arrays may differ in them. Who compares, hashes or writes
the bytes of an array asks for it `without_padding`.
"""

from __future__ import annotations

import numpy as np

_X87_MANTISSA = 63
"""Bits of the mantissa of a long double of 80 bits, as `numpy.finfo` counts them."""
_X87_BYTES = 10


def without_padding(array: np.ndarray) -> np.ndarray:
    """The array with zeros in its padding; the array itself where its dtype has none.

    >>> a, b = np.zeros(1, np.longdouble), np.zeros(1, np.longdouble)
    >>> b.view(np.uint8)[-1] = 255 if b.itemsize > 10 and np.finfo(b.dtype).nmant == 63 else 0
    >>> without_padding(a).tobytes() == without_padding(b).tobytes()
    True
    """
    dtype = array.dtype
    if dtype.names is not None and not dtype.hasobject:
        out = np.zeros(array.shape, dtype)
        for name in dtype.names:
            out[name] = without_padding(array[name])
        return out
    if dtype.char not in "gG" or np.finfo(dtype).nmant != _X87_MANTISSA:
        return array
    flat = np.array(array, order="C").reshape(-1).view(np.uint8)
    flat.reshape(-1, np.dtype(np.longdouble).itemsize)[:, _X87_BYTES:] = 0
    return flat.view(dtype).reshape(array.shape)


def bytes_of(item: np.ndarray | np.generic) -> bytes:
    """The bytes of an array or scalar, equal where values are.

    >>> bytes_of(np.int16(3))
    b'\\x03\\x00'
    """
    padded = item.dtype.char in "gGV"
    return without_padding(np.asarray(item)).tobytes() if padded else item.tobytes()
