"""Bytes to samples.

The two kinds of WAV that nearly all are (16-bit and float32) are read in place. A library that
reads from memory calls back into Python for every piece, which costs ten times the work and holds
the GIL. Everything else goes to libsndfile by way of soundfile. Data that ends too early is an
error where the file says how long it should be: soundfile would give what is left, also of a WAV.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from silva.columns import Array, Column, Values
from silva.operators.arguments import flag, positive
from silva.operators.audio.rows import audio_operator
from silva.operators.audio.waveform import resampled, resampled_length
from silva.operators.native import soundfile
from silva.operators.rows import Params
from silva.plan.expr import Expr

_LOUDEST = 1e15
"""Louder samples would overflow float32 when filtered or squared: the data is damaged."""


class DecodeMethods(Expr):
    """Methods that read encoded sound."""

    __slots__ = ()

    def decode(
        self, rate: int | None = None, mono: bool = False, max_samples: int = 134_217_728
    ) -> Self:
        """Decodes a WAV, FLAC, OGG or MP3 to float32 samples in [-1, 1].

        One channel gives (samples,), several give (channels, samples); with `mono` they are
        averaged. With `rate` the clip is then resampled to it, else it keeps its own. Clips of more
        than `max_samples` (over all channels, before or after resampling) are errors, and so are
        samples that are not finite, and files that are shorter than they say. An OGG or MP3 that
        does not say may end anywhere: what is there is decoded.

        >>> import silva as sv
        >>> sv.audio("bytes").decode(rate=16000)
        bytes.decode(rate=16000, mono=False, max_samples=134217728)
        """
        flag("mono", mono)
        return self._call(
            "audio.decode",
            rate=None if rate is None else positive("rate", rate),
            mono=mono,
            max_samples=positive("max_samples", max_samples),
        )

    def duration(self) -> Expr:
        """Reads the length of an encoded clip in seconds from its header; only an MP3 is decoded.

        >>> import silva as sv
        >>> sv.audio("bytes").duration() < 20
        bytes.duration() < 20
        """
        return self._any("audio.duration")

    def rate(self) -> Expr:
        """Reads the sample rate of an encoded clip (samples per second) from its header.

        >>> import silva as sv
        >>> sv.audio("bytes").rate()
        bytes.rate()
        """
        return self._any("audio.rate")


@audio_operator("decode")
def decode(columns: list[Column], params: Params, draw: object) -> Column:
    rate, mono, limit = params["rate"], params["mono"], params["max_samples"]
    rows = columns[0].rows()
    return Values([None if x is None else _decode(x, rate, mono, limit) for x in rows])


@audio_operator("duration")
def duration(columns: list[Column], params: Params, draw: object) -> Column:
    return _of_headers(columns[0], np.float64, lambda frames, rate: frames / rate)


@audio_operator("rate")
def rate(columns: list[Column], params: Params, draw: object) -> Column:
    return _of_headers(columns[0], np.int64, lambda frames, rate: rate)


def _decode(row: Any, rate: int | None, mono: bool, limit: int) -> np.ndarray:
    samples, own = _read(_as_bytes(row), limit)
    clip = samples[:, 0] if samples.shape[1] == 1 else samples.T
    if mono and clip.ndim == 2:
        clip = clip.mean(axis=0)
    if rate is not None and rate != own:
        channels = clip.size // max(clip.shape[-1], 1)
        _check_size(resampled_length(clip.shape[-1], own, rate), channels, limit)
        clip = resampled(clip, own, rate)
    return np.ascontiguousarray(clip)


def _read(data: bytes, limit: int) -> tuple[np.ndarray, int]:
    """Returns the samples, (frames, channels), and the frames per second."""
    wav = read_wav(data)
    if wav is not None:
        _check_size(wav.frames, wav.channels, limit)
        samples, own = wav.samples(data), wav.rate
    else:
        with _opened(data) as file:
            _check_size(file.frames, file.channels, limit)
            announced, own = file.frames, file.samplerate
            samples = file.read(dtype="float32", always_2d=True)
        if len(samples) < announced:
            raise ValueError(
                f"the {file.format} is truncated or damaged: {len(samples)} of {announced} samples "
                "could be decoded"
            )
    if not np.abs(samples).max(initial=0) < _LOUDEST:  # NaN is not below anything
        raise ValueError("the clip holds samples that are not finite, or far beyond [-1, 1]")
    return samples, own


def _as_bytes(row: Any) -> bytes:
    if isinstance(row, bytearray | memoryview):
        row = bytes(row)
    if not isinstance(row, bytes):
        raise ValueError(f"decode() reads bytes, not {type(row).__name__}")
    if not row:
        raise ValueError("the value is empty (0 bytes): there is no sound to decode")
    return row


class _Memory(io.BytesIO):
    """Bytes that libsndfile reads by callbacks, from which no exception can come back.

    In damaged files it may want to go to a place before the start; it then stays where it is.
    """

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    try:
        with soundfile.SoundFile(_Memory(data)) as file:
            if file.samplerate <= 0 or file.frames < 0:
                raise ValueError(f"the {file.format} has no usable sample rate or length")
            yield file
    except soundfile.SoundFileError as error:
        raise ValueError(
            f"the sound cannot be decoded: {len(data)} bytes that begin with {data[:8]!r} "
            f"({str(error).rpartition(': ')[2]})"
        ) from error


def _check_size(frames: int, channels: int, limit: int) -> None:
    if frames * channels > limit:
        raise ValueError(
            f"the clip has {frames * channels} samples, more than max_samples={limit}: if it is "
            "not an attack, allow it with decode(max_samples=…)"
        )


def _of_headers(column: Column, dtype: Any, value: Callable[[int, int], float]) -> Column:
    rows = column.rows()
    valid = np.array([row is not None for row in rows], dtype=bool)
    found = np.zeros(len(rows), dtype)
    for i, row in enumerate(rows):
        if row is not None:
            found[i] = value(*_header(_as_bytes(row)))
    return Array(found, None if valid.all() else valid)


def _header(data: bytes) -> tuple[int, int]:
    """Returns the number of frames, and the frames per second."""
    wav = read_wav(data)
    if wav is not None:
        return wav.frames, wav.rate
    with _opened(data) as file:
        return file.frames, file.samplerate


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
