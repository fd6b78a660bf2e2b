"""Values into buckets: the same bucket in every process, on every machine, for ever.

A value is first a 64-bit word: a whole number itself, a float its bits, a text its bytes taken
eight at a time. The word is mixed by the finaliser of splitmix64 (each input bit changes each
output bit with a probability near one half), and its upper half is scaled to the number of buckets:
`(h >> 32) * buckets >> 32`, which costs a tenth of a remainder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from silva.columns import empty
from silva.operators.items.items import CHUNK, chunks, numbers

if TYPE_CHECKING:
    import pyarrow as pa

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MIX = tuple((np.uint64(shift), np.uint64(factor)) for shift, factor in _ROUNDS)
_HALF = np.uint64(32)
_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)


def hash_items(data: Any, buckets: int, seed: int) -> np.ndarray:
    """int64 from 0 to `buckets` - 1, one for each item of a numpy array or of Arrow text."""
    words = _number_words(data) if isinstance(data, np.ndarray) else _text_words(data)
    key = np.uint64((seed + 1) * _GOLDEN & _WORD)
    out = empty(words.shape, np.uint64)
    spare = np.empty(min(words.size, CHUNK), np.uint64)
    for word, z in chunks(words, out):
        np.add(word, key, out=z)
        _mix(z, spare[: len(z)])
        np.right_shift(z, _HALF, out=z)  # what splitmix64 does last concerns the lower half only
        np.multiply(z, np.uint64(buckets), out=z)
        np.right_shift(z, _HALF, out=z)
    return out.view(np.int64)


def _mix(z: np.ndarray, spare: np.ndarray) -> None:
    """The finaliser of splitmix64 but for its last `z ^= z >> 31`, in place."""
    for shift, factor in _MIX:
        np.right_shift(z, shift, out=spare)
        np.bitwise_xor(z, spare, out=z)
        np.multiply(z, factor, out=z)


def _number_words(data: np.ndarray) -> np.ndarray:
    if data.dtype.kind == "u":
        return data.astype(np.uint64, copy=False)
    if data.dtype.kind in "bi":
        return data.astype(np.int64, copy=False).view(np.uint64)
    if data.dtype.kind in "mM":
        return data.astype(data.dtype.newbyteorder("="), copy=False).view(np.uint64)
    return float_words(numbers(data))


def float_words(data: np.ndarray) -> np.ndarray:
    """The bits of float64, with one NaN and one zero."""
    floats = data.astype(np.float64)
    floats[np.isnan(floats)] = np.nan
    floats += 0.0  # -0.0 + 0.0 is 0.0
    return floats.view(np.uint64)


def _text_words(text: pa.Array) -> np.ndarray:
    """A word for each text: all texts advance together, eight bytes a round."""
    starts, lengths, letters = _letters(text)
    state = (lengths + 1).astype(np.uint64) * np.uint64(_GOLDEN)
    spare = np.empty_like(state)
    going = np.flatnonzero(lengths)
    done = 0
    while len(going):
        left = lengths[going] - done
        word = letters[starts[going] + done]
        word &= _LOW_BYTES[np.minimum(left, 8)]
        word ^= state[going]
        _mix(word, spare[: len(word)])
        state[going] = word
        going = going[left > 8]
        done += 8
    return state


def _letters(text: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each text begins, its length, and the eight bytes that begin at each place."""
    import pyarrow as pa

    wide = pa.types.is_large_string(text.type) or pa.types.is_large_binary(text.type)
    if not len(text):
        none = np.zeros(0, np.int64)
        return none, none, np.zeros(0, np.uint64)
    _, bounds, data = text.buffers()
    offsets = np.frombuffer(bounds, np.int64 if wide else np.int32)
    offsets = offsets[text.offset : text.offset + len(text) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, np.uint8)
    if last > first:
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
    letters = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))
    return offsets[:-1] - first, np.diff(offsets), letters
