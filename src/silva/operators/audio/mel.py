"""Bins to mel bands.

A band is a weighted sum over a short run of bins. Step j adds the j-th bin of every band that has
so many, for all frames at once; with the bands sorted by width, these are the first so many bands.
Nothing is multiplied by zero, as most of a matrix product with the filter bank would be, and every
sum is made in the same order: a frame's bits depend neither on how many frames there are nor on the
number of threads of a BLAS (measured: theirs do).

Laws: mel(mask_time(x)) = mask_time(mel(x)) with the same draw and value 0, exact: a frame of zeros
gives zeros. Not a law: mel after mask_frequency, since bands overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import integer, number, one_of, positive
from silva.operators.audio.fourier import scratch
from silva.operators.audio.rows import Shape, audio_operator, flat, read_rows, write_rows
from silva.operators.rows import Params
from silva.plan.expr import Expr

_LINEAR = 200 / 3
"""Hz for a mel below 1000 Hz, on Slaney's scale."""
_KNEE = 1000.0
_KNEE_MELS = _KNEE / _LINEAR
_LOG_STEP = np.log(6.4) / 27


MelScale = Literal["slaney", "htk"]


class MelMethods(Expr):
    """Methods that gather bins into mel bands."""

    __slots__ = ()

    def mel(
        self,
        rate: int,
        n_mels: int = 128,
        low: float = 0.0,
        high: float | None = None,
        scale: MelScale = "slaney",
        norm: Literal["slaney"] | None = "slaney",
        n_fft: int | None = None,
    ) -> Self:
        """Sums the bins of a spectrogram by `n_mels` triangles between `low` and `high` Hz.

        As `librosa.feature.melspectrogram` by default; torchaudio's default is `scale="htk"` and
        `norm=None`. `rate` is the clip's sample rate, `high` is half of it by default. `n_fft`
        needs to be given only if it was odd. Triangles narrower than a bin may be empty.

        >>> import silva as sv
        >>> sv.audio("clip").spectrogram(400).mel(8000, n_mels=64) # doctest: +ELLIPSIS
        clip.spectrogram(...).mel(rate=8000, n_mels=64, low=0.0, high=4000.0, ...)
        """
        rate, n_mels = positive("rate", rate), positive("n_mels", n_mels)
        low = number("low", low)
        high = rate / 2 if high is None else number("high", high)
        if not 0 <= low < high <= rate / 2:
            raise PlanError(
                f"low and high are frequencies, 0 ≤ low < high ≤ rate / 2 = {rate / 2}, not {low} "
                f"and {high}"
            )
        one_of("scale", scale, ("slaney", "htk"))
        one_of("norm", norm, ("slaney", None))
        return self._call(
            "audio.mel",
            rate=rate,
            n_mels=n_mels,
            low=low,
            high=high,
            scale=scale,
            norm=norm,
            n_fft=None if n_fft is None else integer("n_fft", n_fft, 2),
        )


@audio_operator("mel")
def mel(columns: list[Column], params: Params, draw: object) -> Column:
    n_mels, stated = params["n_mels"], params["n_fft"]
    rest = tuple(params[name] for name in ("rate", "low", "high", "scale", "norm"))

    def shape(i: int, spectrogram: np.ndarray) -> Shape:
        bins, frames = spectrogram.shape[-2:]
        if bins < 2 or (stated is not None and bins != stated // 2 + 1):
            wanted = "at least 2" if stated is None else f"n_fft={stated} gives {stated // 2 + 1}"
            raise ValueError(f"a spectrogram of {bins} bins has no mel bands ({wanted})")
        return (*spectrogram.shape[:-2], n_mels, frames)

    def write(i: int, spectrogram: np.ndarray, out: np.ndarray) -> None:
        n_fft = stated or 2 * (spectrogram.shape[-2] - 1)
        plan = _plan(n_fft, n_mels, *rest)
        for channel, into in zip(flat(spectrogram, 2), flat(out, 2), strict=True):
            _gather(channel, plan, into)

    return write_rows(read_rows(columns[0], axes=2), shape, write)


@dataclass(frozen=True)
class _Plan:
    widest_first: np.ndarray
    """The bands that have a bin at all."""
    steps: tuple[tuple[np.ndarray, np.ndarray], ...]
    """For j = 0, 1, …: the j-th bin of each band that has one, and its weight as a column."""


def _gather(channel: np.ndarray, plan: _Plan, out: np.ndarray) -> None:
    frames = channel.shape[1]
    sums = scratch.array("mel.sums", (len(plan.widest_first), frames))
    for j, (bins, weights) in enumerate(plan.steps):
        part = sums if j == 0 else scratch.array("mel.part", (len(bins), frames))
        np.take(channel, bins, axis=0, out=part, mode="clip")  # other modes make a copy
        np.multiply(part, weights, out=part)
        if j:
            np.add(sums[: len(bins)], part, out=sums[: len(bins)])
    out[...] = 0
    out[plan.widest_first] = sums


@lru_cache(maxsize=32)
def _plan(
    n_fft: int, n_mels: int, rate: int, low: float, high: float, scale: str, norm: str | None
) -> _Plan:
    bank = filter_bank(n_fft, n_mels, rate, low, high, scale, norm)
    widths = (bank > 0).sum(axis=1)
    order = np.argsort(-widths, kind="stable")[: np.count_nonzero(widths)]
    firsts = (bank > 0).argmax(axis=1)
    steps = []
    for j in range(widths.max(initial=0)):
        bands = order[: np.count_nonzero(widths > j)]
        bins = firsts[bands] + j
        steps.append((bins, bank[bands, bins][:, None]))
    return _Plan(order, tuple(steps))


def filter_bank(
    n_fft: int, n_mels: int, rate: int, low: float, high: float, scale: str, norm: str | None
) -> np.ndarray:
    """(n_mels, bins) float32: triangles whose corners are equally far apart in mels."""
    to_mels, to_hertz = (
        (_slaney_mels, _slaney_hertz) if scale == "slaney" else (_htk_mels, _htk_hertz)
    )
    corners = to_hertz(np.linspace(to_mels(low), to_mels(high), n_mels + 2))
    bins = np.arange(n_fft // 2 + 1) * (rate / n_fft)
    rising = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    falling = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    bank = np.maximum(0, np.minimum(rising, falling))
    if norm == "slaney":  # every triangle has the same area
        bank *= (2 / (corners[2:] - corners[:-2]))[:, None]
    narrow: np.ndarray = bank.astype(np.float32)
    return narrow


def _slaney_mels(hertz: float) -> float:
    if hertz < _KNEE:
        return hertz / _LINEAR
    return float(_KNEE_MELS + np.log(hertz / _KNEE) / _LOG_STEP)


def _slaney_hertz(mels: np.ndarray) -> np.ndarray:
    above = _KNEE * np.exp(_LOG_STEP * (mels - _KNEE_MELS))
    return np.where(mels < _KNEE_MELS, mels * _LINEAR, above)


def _htk_mels(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _htk_hertz(mels: np.ndarray) -> np.ndarray:
    hertz: np.ndarray = 700 * (10 ** (mels / 2595) - 1)
    return hertz
