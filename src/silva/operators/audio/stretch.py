"""Slower or faster at the same pitch: the phase vocoder of `librosa.effects.time_stretch`.

Output frame t lies at t · rate between two input frames s and s + 1; its magnitude is interpolated
between theirs, and its phase is the last one's advanced by as much as from s to s + 1. librosa
keeps phases as angles (arctan, wrap, add up, cos, sin). Here a phase is a complex number of
magnitude 1, so that to advance is to multiply, which is much faster, and does not lose digits as a
float32 angle does that grows. Many rows of a clip (channels, or the bins of a spectrogram) are done
together.

Not a law: time_stretch(a) after time_stretch(b) is not time_stretch(a · b), nor is a rate of 1 the
identity to the last bit; a stretch commutes with nothing that looks at more than one sample.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from silva.columns import Column
from silva.errors import PlanError
from silva.operators.arguments import number
from silva.operators.audio.fourier import forward, frame_and_hop, framed, inverse, scratch, window
from silva.operators.audio.rows import Shape, audio_operator, flat, read_rows, write_rows
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr

_SEVERAL = 100_000
"""Samples of frames that are worked on at once, so that they stay in the cache."""
_TINY = np.float32(np.finfo(np.float32).tiny)


_SLOWEST, _FASTEST = 0.01, 100.0


class StretchMethods(Expr):
    """Methods that change the speed of clips."""

    __slots__ = ()

    def time_stretch(self, rate: float, n_fft: int = 2048, hop: int | None = None) -> Self:
        """Changes the speed (`rate` > 1 is faster) at the same pitch, by a phase vocoder: n samples
        become round(n / rate).

        As `librosa.effects.time_stretch`: along the last axis of whatever the rows are. Of a
        spectrogram, each bin is stretched as if it were a signal, and small negative powers can
        come out. `hop` is n_fft // 4 unless given.

        >>> import silva as sv
        >>> sv.audio("clip").time_stretch(0.8)
        clip.time_stretch(rate=0.8, n_fft=2048, hop=512)
        """
        n_fft, hop = _overlapping(n_fft, hop)
        return self._call("audio.time_stretch", rate=_speed("rate", rate), n_fft=n_fft, hop=hop)

    def random_time_stretch(
        self, low: float, high: float, n_fft: int = 2048, hop: int | None = None
    ) -> Self:
        """Stretches each clip by a rate that is drawn uniformly between `low` and `high`.

        >>> import silva as sv
        >>> sv.audio("clip").random_time_stretch(0.9, 1.1)
        clip.random_time_stretch(low=0.9, high=1.1, n_fft=2048, hop=512)
        """
        n_fft, hop = _overlapping(n_fft, hop)
        low, high = _speed("low", low), _speed("high", high)
        if low > high:
            raise PlanError(f"low is at most high, not {low} and {high}")
        return self._call("audio.random_time_stretch", low=low, high=high, n_fft=n_fft, hop=hop)


@audio_operator("time_stretch")
def time_stretch(columns: list[Column], params: Params, draw: object) -> Column:
    rows = read_rows(columns[0])
    return _stretches(rows, [params["rate"]] * len(rows), params)


@audio_operator("random_time_stretch", random=True)
def random_time_stretch(columns: list[Column], params: Params, draw: Draw) -> Column:
    low, high = params["low"], params["high"]
    rates = low + (high - low) * draw.uniform(1)[:, 0]
    return _stretches(read_rows(columns[0]), rates.tolist(), params)


def _stretches(rows: list[np.ndarray], rates: list[float], params: Params) -> Column:
    n_fft, hop = params["n_fft"], params["hop"]

    def shape(i: int, row: np.ndarray) -> Shape:
        return (*row.shape[:-1], round(row.shape[-1] / rates[i]))

    def write(i: int, row: np.ndarray, out: np.ndarray) -> None:
        if out.size == 0:
            return
        signals, into = flat(row, 1), flat(out, 1)
        frames = 1 + signals.shape[1] // hop
        several = max(_SEVERAL // (frames * n_fft), 1)
        for first in range(0, len(signals), several):
            some = slice(first, first + several)
            _stretch(signals[some], rates[i], n_fft, hop, into[some])

    return write_rows(rows, shape, write)


def _stretch(signals: np.ndarray, rate: float, n_fft: int, hop: int, out: np.ndarray) -> None:
    frames = _windowed(signals, n_fft, hop)
    sizes, phases = _polar(frames)
    steps = np.arange(0, len(frames), rate)
    before = steps.astype(np.int64)
    shares = (steps - before).astype(np.float32)
    phase = scratch.array("phase", phases.shape[1:], np.complex64)
    bins = scratch.array("bins", phases.shape[1:], np.complex64)
    size, other = (scratch.array(name, sizes.shape[1:]) for name in ("size", "other"))
    # the first output frame is the first input frame as it is
    parts = _Sum(out, n_fft, hop)
    parts.add(frames[0])
    np.copyto(phase, phases[0])
    for last, s, share in zip(before[:-1].tolist(), before[1:].tolist(), shares[1:], strict=True):
        np.conjugate(phases[last], out=bins)
        np.multiply(bins, phases[last + 1], out=bins)
        np.multiply(phase, bins, out=phase)
        np.multiply(sizes[s], 1 - share, out=size)
        np.multiply(sizes[s + 1], share, out=other)
        np.add(size, other, out=size)
        np.multiply(phase, size, out=bins)
        parts.add(inverse(bins, n_fft))
    parts.finish()


def _windowed(signals: np.ndarray, n_fft: int, hop: int) -> np.ndarray:
    """(frames, signals, n_fft): what happens to one frame of all signals lies together."""
    margin, length = n_fft // 2, signals.shape[1]
    padded = scratch.array("padded", (len(signals), length + 2 * margin))
    padded[:, :margin] = 0
    padded[:, margin : margin + length] = signals
    padded[:, margin + length :] = 0
    view = framed(padded, n_fft, hop)
    frames = scratch.array("frames", view.shape)
    np.multiply(view, window("hann", n_fft, n_fft), out=frames)
    return frames


def _polar(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Magnitudes and phases of the bins, (frames + 1, signals, bins): one frame of silence follows
    after the end. What is silent has the phase 0."""
    count, signals, n_fft = frames.shape
    shape = (count + 1, signals, n_fft // 2 + 1)
    sizes, phases = scratch.array("sizes", shape), scratch.array("phases", shape, np.complex64)
    bins = phases[:count]
    forward(frames.reshape(-1, n_fft), bins.reshape(-1, shape[2]))
    np.abs(bins, out=sizes[:count])
    sizes[count], phases[count] = 0, 1
    inverted = scratch.array("inverted", bins.shape)
    np.maximum(sizes[:count], _TINY, out=inverted)
    np.divide(1, inverted, out=inverted)
    np.multiply(bins, inverted, out=bins)
    if sizes[:count].min() < _TINY:
        bins[sizes[:count] < _TINY] = 1
    return sizes, phases


class _Sum:
    """Frames windowed again, added where they belong, and divided by what the windows add up to.

    `out` begins in the middle of the first frame. Frames are overwritten.
    """

    def __init__(self, out: np.ndarray, n_fft: int, hop: int) -> None:
        self.out, self.start, self.hop = out, -(n_fft // 2), hop
        self.window = window("hann", n_fft, n_fft)
        self.weights = np.zeros(out.shape[1], np.float32)
        out[...] = 0

    def add(self, frame: np.ndarray) -> None:
        start, length = self.start, self.out.shape[1]
        self.start += self.hop
        first, last = max(start, 0), min(start + len(self.window), length)
        if first >= last:
            return
        part = slice(first - start, last - start)
        shape = self.window[part]
        np.multiply(frame[:, part], shape, out=frame[:, part])
        np.add(self.out[:, first:last], frame[:, part], out=self.out[:, first:last])
        self.weights[first:last] += shape * shape

    def finish(self) -> None:
        np.divide(self.out, self.weights, out=self.out, where=self.weights > _TINY)


def _overlapping(n_fft: Any, hop: Any) -> tuple[int, int]:
    n_fft, hop = frame_and_hop(n_fft, hop)
    if hop > n_fft // 2:
        raise PlanError(f"hop is at most n_fft // 2 = {n_fft // 2}, so that frames overlap: {hop}")
    return n_fft, hop


def _speed(name: str, value: Any) -> float:
    speed = number(name, value)
    if not _SLOWEST <= speed <= _FASTEST:
        raise PlanError(f"{name} is a speed between {_SLOWEST} and {_FASTEST:.0f}, not {value!r}")
    return speed
