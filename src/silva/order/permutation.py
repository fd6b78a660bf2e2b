"""A keyed permutation of 0..n-1, computed on the fly: no list of n numbers, O(1) to start.

A Feistel network over the smallest power of two that holds n; a result beyond n is fed through
again until it falls inside (at most two times on average).
"""

from __future__ import annotations

import numpy as np

from silva.order.draws import stream_key

_ROUNDS = 6
_MULTIPLY = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(29)


def permute(positions: np.ndarray, n: int, *key: int | str) -> np.ndarray:
    """Where each position goes; int64 in, int64 out.

    >>> sorted(permute(np.arange(10), 10, "seed", 7).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if n <= 1:
        return positions.copy()
    bits = max((n - 1).bit_length(), 2)
    keys = [np.uint64(word) for i in range(_ROUNDS // 2) for word in stream_key(*key, i)]
    out = _feistel(positions.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(out >= n)
    while len(outside):
        out[outside] = _feistel(out[outside], bits, keys)
        outside = outside[out[outside] >= n]
    return out.astype(np.int64)


def _feistel(x: np.ndarray, bits: int, keys: list[np.uint64]) -> np.ndarray:
    low_bits = bits // 2
    high_bits = bits - low_bits
    for key in keys:  # halves of different size swap, so the number of rounds is even
        low_mask = np.uint64((1 << low_bits) - 1)
        low, high = x & low_mask, x >> np.uint64(low_bits)
        mixed = (low + key) * _MULTIPLY
        mixed = (mixed ^ (mixed >> _SHIFT)) * _MULTIPLY
        high = high ^ ((mixed >> np.uint64(32)) & np.uint64((1 << high_bits) - 1))
        x = (low << np.uint64(high_bits)) | high
        low_bits, high_bits = high_bits, low_bits
    return x
