"""Speech for a recogniser: the pipeline of cedar's evaluation, with the same maths in all.

Read a clip at 22,050 Hz, resample it to 8 kHz, take its power spectrogram, stretch each of its rows
in time as if it were a signal, mask a run of frames and of bins, and gather the bins into 256 mels.
Peers call librosa, as cedar does. The limit does the same by soxr and scipy's Fourier transform,
without the angles: what turns a phase is a product of unit phasors.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.by_hand import on_threads
from benchmarks.data import SPEECH_RATE, put_speech
from benchmarks.peers import mapping
from benchmarks.workload import BATCH, Contestant, Open, Target, Workload

READ_RATE = 22_050
N_FFT = 400
HOP = N_FFT // 4
STRETCH = 0.8
MASK = 80
N_MELS = 256


@contextmanager
def setting(quick: bool) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="silva-bench-") as folder:
        data = put_speech(Path(folder), 64 if quick else 1024)
        yield {"folder": folder, "data": data}


def paths_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.wav"))


def silva_auto(folder: str) -> Open:
    import soundfile  # noqa: F401  what others import before the clock starts, silva may too
    import soxr  # noqa: F401

    import silva as sv

    _ = sv.Loader  # the engine, imported before the clock starts, as torch is

    clip = sv.audio("bytes").decode(rate=READ_RATE).resample(READ_RATE, SPEECH_RATE)
    rows = clip.spectrogram(N_FFT).time_stretch(STRETCH, N_FFT)
    mel = rows.mask_time(MASK).mask_frequency(MASK).mel(SPEECH_RATE, N_MELS)
    clips = sv.read_files(f"{folder}/*.wav").derive(mel=mel).select("mel")
    return lambda: clips.batch(BATCH, pad=0).loader()


class ByHand:
    """soundfile, soxr, scipy's float32 Fourier transform and a filter bank that is made once."""

    def __init__(self, masked: bool = True) -> None:
        import librosa
        import scipy.fft
        import scipy.signal

        self._window = scipy.signal.get_window("hann", N_FFT).astype(np.float32)
        self._bank = librosa.filters.mel(sr=SPEECH_RATE, n_fft=N_FFT, n_mels=N_MELS)
        self._fft = scipy.fft
        self._masked = masked

    def __call__(self, data: bytes, rng: np.random.Generator) -> np.ndarray:
        import soundfile
        import soxr

        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
        samples = soxr.resample(samples, rate, READ_RATE, "HQ")
        samples = soxr.resample(samples, READ_RATE, SPEECH_RATE, "HQ")
        transformed = self._stft(samples)
        power = (transformed.real**2 + transformed.imag**2).T
        power = self._stretched(np.ascontiguousarray(power))
        if self._masked:
            mask(power, rng)
        mel: np.ndarray = self._bank @ power
        return mel

    def _stft(self, signals: np.ndarray) -> np.ndarray:
        """(…, frames, bins) of (…, samples); the ends are padded with zeros."""
        around = [(0, 0)] * (signals.ndim - 1) + [(N_FFT // 2, N_FFT // 2)]
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(signals, around), N_FFT, axis=-1)
        found: np.ndarray = self._fft.rfft(windows[..., ::HOP, :] * self._window, overwrite_x=True)
        return found

    def _stretched(self, signals: np.ndarray) -> np.ndarray:
        """A phase vocoder over all rows at once."""
        transformed = self._stft(signals)
        frames = transformed.shape[-2]
        steps = np.arange(0, frames, STRETCH)
        size = np.abs(transformed)
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = np.where(size > 0, transformed / size, np.complex64(1))
        out = np.empty((*signals.shape[:-1], len(steps), transformed.shape[-1]), np.complex64)
        phase = unit[..., 0, :].copy()
        for number, step in enumerate(steps):
            here, share = int(step), np.float32(step % 1)
            there = here + 1 if here + 1 < frames else None
            magnitude = (1 - share) * size[..., here, :]
            if there is not None:
                magnitude += share * size[..., there, :]
            np.multiply(phase, magnitude, out=out[..., number, :])
            following = 1 if there is None else unit[..., there, :]
            phase *= following * unit[..., here, :].conj()
        return self._istft(out, round(signals.shape[-1] / STRETCH))

    def _istft(self, transformed: np.ndarray, length: int) -> np.ndarray:
        frames = transformed.shape[-2]
        pieces = self._fft.irfft(transformed, N_FFT, overwrite_x=True)
        pieces *= self._window
        whole = np.zeros((*pieces.shape[:-2], N_FFT + HOP * (frames - 1)), np.float32)
        weight = np.zeros(whole.shape[-1], np.float32)
        for number in range(frames):
            place = slice(number * HOP, number * HOP + N_FFT)
            whole[..., place] += pieces[..., number, :]
            weight[place] += self._window**2
        np.divide(whole, weight, out=whole, where=weight > np.finfo(np.float32).tiny)
        return whole[..., N_FFT // 2 : N_FFT // 2 + length]


def mask(power: np.ndarray, rng: np.random.Generator) -> None:
    """A run of frames, then a run of bins, set to zero in place, by cedar's rules."""
    bins, frames = power.shape
    width = int(rng.uniform(0, MASK))
    start = int(rng.integers(0, max(0, frames - width) + 1))
    power[:, start : start + width] = 0
    width = int(rng.uniform(0, MASK))
    start = int(rng.integers(0, bins - width + 1))
    power[start : start + width] = 0


def padded(mels: Sequence[np.ndarray]) -> np.ndarray:
    """(clips, mels, frames of the longest)."""
    out = np.zeros((len(mels), N_MELS, max(x.shape[1] for x in mels)), np.float32)
    for place, mel in zip(out, mels, strict=True):
        place[:, : mel.shape[1]] = mel
    return out


def two_threads(folder: str) -> Open:
    by_hand, paths = ByHand(), paths_in(folder)

    def make(rows: range) -> np.ndarray:
        return padded(
            [by_hand(Path(paths[i]).read_bytes(), np.random.default_rng((0, i))) for i in rows]
        )

    return on_threads(len(paths), BATCH, make)


class Clip:
    """cedar's steps, by librosa."""

    def __init__(self, masked: bool = True) -> None:
        self._masked = masked

    def __call__(self, path: str) -> np.ndarray:
        import librosa

        samples, rate = librosa.load(path, sr=READ_RATE)
        samples = librosa.resample(y=samples, orig_sr=rate, target_sr=SPEECH_RATE)
        power = np.abs(librosa.stft(samples, n_fft=N_FFT)) ** 2
        power = librosa.effects.time_stretch(power, rate=STRETCH, n_fft=N_FFT)
        if self._masked:
            mask(power, np.random.default_rng())
        mel: np.ndarray = librosa.feature.melspectrogram(
            S=power, sr=SPEECH_RATE, n_mels=N_MELS, n_fft=N_FFT
        )
        return mel


def job(folder: str) -> mapping.Job:
    """librosa imports its parts when they are first used: here, before the clock starts."""
    found = mapping.Job(paths_in(folder), Clip(), BATCH, padded)
    found.make(found.items[0])
    return found


def dataloader(folder: str) -> Open:
    return mapping.dataloader(job(folder))


def torchdata_threads(folder: str) -> Open:
    return mapping.torchdata_threads(job(folder))


def torchdata_processes(folder: str) -> Open:
    return mapping.torchdata_processes(job(folder))


def grain_threads(folder: str) -> Open:
    return mapping.grain_threads(job(folder))


def grain_processes(folder: str) -> Open:
    return mapping.grain_processes(job(folder))


def spdl(folder: str) -> Open:
    return mapping.spdl_threads(job(folder))


def ray_data(folder: str) -> Open:
    return mapping.ray_data(job(folder))


def tensorflow_data(folder: str) -> Open:
    return mapping.tensorflow_dataset(job(folder), (N_MELS, None))


def not_silent(batch: Any) -> float:
    """Masks differ, so only the number of places that are not zero can agree."""
    return float(np.count_nonzero(np.asarray(batch)))


_TORCH, _HAND = "torch", "two threads by hand"
_PEERS = (
    Contestant("DataLoader, 2 workers", dataloader, environment=_TORCH),
    Contestant("torchdata.nodes, threads", torchdata_threads, environment=_TORCH, long=True),
    Contestant("torchdata.nodes, processes", torchdata_processes, environment=_TORCH, long=True),
    Contestant("Grain, threads", grain_threads, environment=_TORCH),
    Contestant("Grain, processes", grain_processes, environment=_TORCH, long=True),
    Contestant("SPDL, threads", spdl, environment="spdl", long=True),
    Contestant("Ray Data", ray_data, key="made", environment="ray", long=True),
    Contestant("tf.data, Python inside", tensorflow_data, environment="tensorflow", long=True),
)

WORKLOAD = Workload(
    name="audio",
    title="Speech: WAV, resample, spectrogram, stretch, masks, 256 mels, padded batches of 32",
    setting=setting,
    contestants=(
        Contestant(_HAND, two_threads, limit=True),
        Contestant("silva auto", silva_auto, key="mel"),
        *_PEERS,
    ),
    targets=(
        Target("silva auto", at_least=0.9, of=_HAND),
        Target("silva auto", at_least=2.5, of=tuple(peer.name for peer in _PEERS)),
        Target("silva auto", at_most=1.15, of=_HAND, metric="cpu_row"),
        Target("silva auto", at_most=1, of="DataLoader, 2 workers", metric="peak"),
    ),
    checksum=not_silent,
    tolerance=0.35,
    shape=(N_MELS, None),
    rounds=3,
    remarks="peers call librosa, as cedar does; masks are random, so sums agree only roughly",
)
