"""The two kinds of WAV that nearly all are (16-bit and float32), read without a library.

A library that reads from memory calls back into Python for every piece, which costs ten times the
work and holds the GIL. It also does not tell when a WAV ends before its time; here that is found
for WAVs of every kind, and other kinds are left to the library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_UNKNOWN = 0x7FFFF000
"""Writers to a pipe, which cannot go back and fill in the size, say this much or more, or 0."""
_MOST_CHUNKS = 1000


@dataclass(frozen=True)
class Wav:
    rate: int
    channels: int
    frames: int
    start: int
    """Where the samples begin."""
    dtype: str
    """`<i2` or `<f4`."""

    def samples(self, data: bytes) -> np.ndarray:
        """(frames, channels) float32, as the library would give them."""
        count = self.frames * self.channels
        raw = np.frombuffer(data, self.dtype, count, self.start).reshape(-1, self.channels)
        samples = raw.astype(np.float32)
        if self.dtype == "<i2":
            samples *= np.float32(1 / 32768)
        return samples


def read_wav(data: bytes) -> Wav | None:
    """Where the samples are; None where this is not one of the two kinds."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return None
    form: tuple[int, int, int, int, int] | None = None
    at = 12
    for _ in range(_MOST_CHUNKS):
        if at + 8 > len(data):
            return None
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"data":
            return _samples_at(data, form, at, size)
        if name == b"fmt " and size >= 16 and at + size <= len(data):
            tag, channels, rate, _, step, bits = struct.unpack_from("<HHIIHH", data, at)
            if tag == _EXTENSIBLE and size >= 26:
                (tag,) = struct.unpack_from("<H", data, at + 24)
            form = tag, channels, rate, step, bits
        at += size + size % 2
    return None


def _samples_at(
    data: bytes, form: tuple[int, int, int, int, int] | None, at: int, size: int
) -> Wav | None:
    there = len(data) - at
    if size == 0 or size >= _UNKNOWN:
        size = there
    if size > there:
        raise ValueError(
            f"the WAV is truncated: {there} bytes of samples are there, {size} were announced"
        )
    if form is None:
        return None
    tag, channels, rate, step, bits = form
    dtype = {(_PCM, 16): "<i2", (_FLOAT, 32): "<f4"}.get((tag, bits))
    if dtype is None or channels == 0 or rate == 0 or step != channels * bits // 8:
        return None
    return Wav(rate, channels, size // step, at, dtype)
