"""Clips to clips: mono, resample, pad.

Laws, exact and tested bit for bit:
    mono(mono(x)) = mono(x)
    resample(r, r)(x) = x
    pad(n)(pad(m)(x)) = pad(n)(x)  where m ≤ n, with the same value, and nothing is cut
    decode(rate=r, mono=True) = decode(mono=True).resample(own rate, r)
Not a law: resample(b, a)(resample(a, b)(x)) = x. The filters take away what is next to half the
lower rate, also where a < b. Nor does mono commute with resample to the last bit: both are linear,
but rounded elsewhere.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from silva.columns import Column
from silva.operators.arguments import flag, number, positive
from silva.operators.audio.rows import Shape, audio_operator, read_rows, write_rows
from silva.operators.native import soxr
from silva.operators.rows import Params
from silva.plan.expr import Expr


class WaveformMethods(Expr):
    """Methods that change clips."""

    __slots__ = ()

    def mono(self) -> Self:
        """Averages the channels: (samples,).

        >>> import silva as sv
        >>> sv.audio("clip").mono()
        clip.mono()
        """
        return self._call("audio.mono")

    def resample(self, from_rate: int, to_rate: int) -> Self:
        """Resamples to another rate with soxr's high quality: n samples become ceil(n · to / from).

        >>> import silva as sv
        >>> sv.audio("clip").resample(8000, 22050)
        clip.resample(from_rate=8000, to_rate=22050)
        """
        return self._call(
            "audio.resample",
            from_rate=positive("from_rate", from_rate),
            to_rate=positive("to_rate", to_rate),
        )

    def pad(self, length: int, value: float = 0.0, truncate: bool = False) -> Self:
        """Appends `value` until there are `length` samples, or frames.

        A longer clip is an error; with `truncate` it is cut.

        >>> import silva as sv
        >>> sv.audio("clip").pad(16000, truncate=True)
        clip.pad(length=16000, value=0.0, truncate=True)
        """
        flag("truncate", truncate)
        length, value = positive("length", length), number("value", value)
        return self._call("audio.pad", length=length, value=value, truncate=truncate)


@audio_operator("mono")
def mono(columns: list[Column], params: Params, draw: object) -> Column:
    def write(i: int, clip: np.ndarray, out: np.ndarray) -> None:
        if clip.ndim == 1:
            np.copyto(out, clip)
        else:
            clip.mean(axis=tuple(range(clip.ndim - 1)), out=out)

    def shape(i: int, clip: np.ndarray) -> Shape:
        if clip.size == 0 and clip.shape[-1]:
            raise ValueError(f"a clip of shape {clip.shape} has no channels to average")
        return clip.shape[-1:]

    return write_rows(read_rows(columns[0]), shape, write)


@audio_operator("resample")
def resample(columns: list[Column], params: Params, draw: object) -> Column:
    source, target = params["from_rate"], params["to_rate"]

    def shape(i: int, clip: np.ndarray) -> Shape:
        return (*clip.shape[:-1], resampled_length(clip.shape[-1], source, target))

    def write(i: int, clip: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, clip if source == target else resampled(clip, source, target))

    return write_rows(read_rows(columns[0]), shape, write)


def resampled_length(samples: int, source: int, target: int) -> int:
    return -(-samples * target // source)


def resampled(clip: np.ndarray, source: int, target: int) -> np.ndarray:
    """Resamples a clip. soxr may return one sample more or less than the rates imply; the length is
    corrected by cutting or with silence, as librosa does."""
    length = resampled_length(clip.shape[-1], source, target)
    if clip.size == 0:
        return np.zeros((*clip.shape[:-1], length), np.float32)
    channels = clip.reshape(-1, clip.shape[-1])
    made: np.ndarray
    try:
        made = soxr.resample(channels.T, source, target, "HQ").T
    except (RuntimeError, MemoryError) as error:
        raise ValueError(f"soxr cannot resample from {source} to {target}: {error}") from error
    if made.shape[1] != length:
        made = np.pad(made[:, :length], ((0, 0), (0, max(length - made.shape[1], 0))))
    return made.reshape(*clip.shape[:-1], length)


@audio_operator("pad")
def pad(columns: list[Column], params: Params, draw: object) -> Column:
    length, value, truncate = params["length"], params["value"], params["truncate"]

    def shape(i: int, row: np.ndarray) -> Shape:
        if row.shape[-1] > length and not truncate:
            raise ValueError(
                f"{row.shape[-1]} samples or frames are more than pad's length {length}; "
                "truncate=True cuts them"
            )
        return (*row.shape[:-1], length)

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        there = min(row.shape[-1], length)
        np.copyto(out[..., :there], row[..., :there])
        out[..., there:] = value

    return write_rows(read_rows(columns[0]), shape, write)
