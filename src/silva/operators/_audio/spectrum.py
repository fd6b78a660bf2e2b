"""Clips to spectrograms."""

from __future__ import annotations

import numpy as np

from silva.columns import Column
from silva.operators._audio.fourier import energy, framed, window
from silva.operators._audio.rows import Shape, flat, read_rows, write_rows
from silva.operators._audio.scratch import scratch
from silva.operators.rows import Params

_SEVERAL = 32_000
"""Samples of frames that are worked on at once, so that they stay in the cache."""


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
