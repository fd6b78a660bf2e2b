"""Clips to spectrograms."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import flag, number, one_of, positive
from silva.operators.audio.fourier import energy, frame_and_hop, framed, scratch, window
from silva.operators.audio.rows import Shape, audio_operator, flat, read_rows, write_rows
from silva.operators.rows import Params
from silva.plan.expr import Expr

_SEVERAL = 32_000
"""Samples that are processed at once, so that they stay in the CPU cache."""


Window = Literal["hann", "hamming", "blackman", "ones"]
Padding = Literal["zeros", "reflect"]
_WINDOWS = ("hann", "hamming", "blackman", "ones")


class SpectrumMethods(Expr):
    """Methods that make spectrograms."""

    __slots__ = ()

    def spectrogram(
        self,
        n_fft: int = 512,
        hop: int | None = None,
        window: Window = "hann",
        win_length: int | None = None,
        power: float = 2.0,
        center: bool = True,
        pad_mode: Padding = "zeros",
    ) -> Self:
        """Computes |STFT| ** `power`: (n_fft // 2 + 1 bins, frames), as `librosa.stft` does.

        A frame every `hop` samples (default: n_fft // 4). With `center`, frame t is around sample
        t · hop and the ends are padded by n_fft // 2, with zeros or by reflection; without it,
        frame t begins there, and a clip shorter than `n_fft` is an error. A window of `win_length`
        stands in the middle of zeros. A clip without samples is an error.

        >>> import silva as sv
        >>> sv.audio("clip").spectrogram(400, hop=160, pad_mode="reflect")
        ... # doctest: +ELLIPSIS
        clip.spectrogram(n_fft=400, hop=160, window='hann', win_length=400, power=2.0, ...)
        """
        n_fft, hop = frame_and_hop(n_fft, hop)
        one_of("window", window, _WINDOWS)
        one_of("pad_mode", pad_mode, ("zeros", "reflect"))
        flag("center", center)
        win_length = n_fft if win_length is None else positive("win_length", win_length)
        if win_length > n_fft:
            raise PlanError(f"win_length is at most n_fft ({n_fft}), not {win_length}")
        power = number("power", power)
        if power <= 0:
            raise PlanError(f"power is a positive number, not {power}")
        return self._call(
            "audio.spectrogram",
            n_fft=n_fft,
            hop=hop,
            window=window,
            win_length=win_length,
            power=power,
            center=center,
            pad_mode=pad_mode,
        )


@audio_operator("spectrogram")
def spectrogram(columns: list[Column], params: Params, draw: object) -> Column:
    n_fft, hop, power = params["n_fft"], params["hop"], params["power"]
    margin = n_fft // 2 if params["center"] else 0
    reflect = margin > 0 and params["pad_mode"] == "reflect"
    weights = window(params["window"], params["win_length"], n_fft)

    def shape(i: int, clip: np.ndarray) -> Shape:
        _check_length(clip, n_fft, margin, reflect)
        frames = 1 + (clip.shape[-1] + 2 * margin - n_fft) // hop
        return (*clip.shape[:-1], n_fft // 2 + 1, frames)

    def write(i: int, clip: np.ndarray, out: np.ndarray) -> None:
        for channel, into in zip(flat(clip, 1), flat(out, 2), strict=True):
            frames = framed(_padded(channel, margin, reflect)[None], n_fft, hop)[:, 0]
            _write_powers(frames, weights, power, into)

    return write_rows(read_rows(columns[0]), shape, write)


def _write_powers(frames: np.ndarray, weights: np.ndarray, power: float, out: np.ndarray) -> None:
    n_fft = frames.shape[1]
    several = max(_SEVERAL // n_fft, 1)
    for first in range(0, len(frames), several):
        some = frames[first : first + several]
        windowed = scratch.array("windowed", some.shape)
        np.multiply(some, weights, out=windowed)
        powers = scratch.array("powers", (len(some), n_fft // 2 + 1))
        energy(windowed, powers)
        if power == 1:
            np.sqrt(powers, out=powers)
        elif power != 2:
            np.power(powers, np.float32(power / 2), out=powers)
        np.copyto(out[:, first : first + several], powers.T)


def _check_length(clip: np.ndarray, n_fft: int, margin: int, reflect: bool) -> None:
    samples = clip.shape[-1]
    if clip.size == 0:
        raise ValueError(f"a clip without samples (of shape {clip.shape}) has no spectrogram")
    if reflect and samples <= margin:
        raise ValueError(
            f"a clip of {samples} samples is too short to be reflected over {margin}: pad() it, or "
            "use pad_mode='zeros'"
        )
    if samples + 2 * margin < n_fft:
        raise ValueError(
            f"a clip of {samples} samples is shorter than n_fft={n_fft}: pad() it, or use "
            "center=True"
        )


def _padded(channel: np.ndarray, margin: int, reflect: bool) -> np.ndarray:
    if margin == 0:
        return channel
    end = margin + len(channel)
    out = scratch.array("padded", (end + margin,))
    out[margin:end] = channel
    out[:margin] = channel[margin:0:-1] if reflect else 0
    out[end:] = channel[-2 : -margin - 2 : -1] if reflect else 0
    return out
