"""Vectors of length 1."""

from __future__ import annotations

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors as float32 of length 1; a vector of zeros stays.

    Each is first brought near 1 by a power of two: the square of a very large number, or of a very
    small one, has no place in a float. That is exact, so it changes no bit of any other vector.

    >>> made = unit(np.array([[3e-300, 4e-300], [3e300, -4e300], [0.0, 0.0]]))
    >>> np.round(made.astype(float), 3).tolist()
    [[0.6, 0.8], [0.6, -0.8], [0.0, 0.0]]
    """
    given = np.asarray(vectors)
    if given.dtype != np.float32:
        given = given.astype(np.float64)
    largest = np.abs(given).max(axis=-1, keepdims=True, initial=0)
    plain = np.ascontiguousarray(np.ldexp(given, -np.frexp(largest)[1]), dtype=np.float32)
    length = np.sqrt(np.vecdot(plain, plain))[..., None]
    made: np.ndarray = np.divide(plain, length, out=np.zeros_like(plain), where=length > 0)
    return made
