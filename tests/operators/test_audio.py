"""The audio operators against plain references: librosa, and loops over frames and bins."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from typing import Any

import librosa
import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Array, Column, Lists, Values
from silva.errors import PlanError
from silva.operators.audio import AudioExpr, audio
from silva.operators.audio.levels import random_runs
from silva.operators.audio.mel import filter_bank
from silva.plan.expr import Call, Expr, walk
from silva.plan.operator import operator
from silva.testing import assert_same_stream

X = audio("x")


class Draws:
    """Stands in for the row-keyed draws: row i owns line i of a table."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def uniform(self, k: int) -> np.ndarray:
        return self.table[:, :k]


def draws(rows: int, seed: int = 0) -> Draws:
    return Draws(np.random.default_rng(seed).random((rows, 8)))


def run(expr: Expr, column: Column, draw: Draws | None = None) -> Column:
    """The kernels of `expr`, one after the other."""
    for term in walk(expr.term):
        if isinstance(term, Call):
            column = operator(term.op).kernel([column], dict(term.params), draw)
    return column


def one(expr: Expr, value: Any, seed: int = 0) -> Any:
    """The result for a column of one row."""
    (result,) = run(expr, Values([value]), draws(1, seed)).rows()
    return result


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def speech(samples: int, rate: int = 8000) -> np.ndarray:
    """Something like a vowel: harmonics of a gliding tone under an envelope, and a little noise."""
    time = np.arange(samples) / rate
    glide = 2 * np.pi * (120 * time + 30 * np.sin(2 * np.pi * 1.5 * time))
    tones = sum(np.sin(k * glide) / k for k in range(1, 12))
    loud = np.sin(np.pi * np.arange(samples) / samples) ** 2
    return (0.2 * loud * tones + 1e-3 * noise(0, samples)).astype(np.float32)


def close(found: Any, wanted: Any, share: float) -> None:
    """Equal up to `share` of the largest value."""
    assert found.shape == wanted.shape
    assert found.dtype == np.float32
    if wanted.size:
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=share * max(np.abs(wanted).max(), 1e-30)
        )


def same(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert np.array_equal(a, b)


seeds = st.integers(0, 2**32 - 1)
clips = st.builds(noise, seeds, st.integers(1, 700))
spectrograms = st.builds(noise, seeds, st.integers(2, 40), st.integers(1, 60)).map(np.square)


# What holds for every operator: nulls, shapes, read-only inputs, block borders.

EVERY: dict[str, AudioExpr] = {
    "mono": X.mono(),
    "resample": X.resample(8000, 11025),
    "pad": X.pad(50),
    "spectrogram": X.spectrogram(16),
    "mel": X.mel(8000, 5),
    "log": X.log(),
    "decibels": X.decibels("max"),
    "time_stretch": X.time_stretch(0.8, 16),
    "random_time_stretch": X.random_time_stretch(0.5, 2, 16),
    "mask_time": X.mask_time(8),
    "mask_frequency": X.mask_frequency(5),
}


@pytest.mark.parametrize("name", EVERY)
def test_rows_of_one_shape_become_one_contiguous_array(name: str) -> None:
    table = np.tile(draws(1).table, (5, 1))
    out = run(EVERY[name], Array(noise(0, 5, 9, 40)), Draws(table))
    assert isinstance(out, Array)
    assert out.data.flags.c_contiguous
    assert len(out) == 5


@pytest.mark.parametrize("name", EVERY)
def test_columns_of_every_kind_give_the_same(name: str) -> None:
    data = noise(0, 5, 9, 40)
    dense = run(EVERY[name], Array(data), draws(5)).rows()
    others = (
        Values(list(data)),
        Values([x.tolist() for x in data]),
        Values([x.astype(np.float64) for x in data]),
        Array(np.repeat(data, 2, axis=2)[:, :, ::2]),
        Array(data.astype(">f4")),
    )
    for other in others:
        for a, b in zip(dense, run(EVERY[name], other, draws(5)).rows(), strict=True):
            same(a, b)


def test_a_ragged_column_holds_clips() -> None:
    lists = Lists(Array(noise(0, 90)), np.array([0, 30, 30, 90]), np.array([True, False, True]))
    out = run(X.resample(8000, 16000), lists).rows()
    assert [None if x is None else x.shape for x in out] == [(60,), None, (120,)]


@pytest.mark.parametrize("name", EVERY)
def test_nulls_stay_nulls_and_no_rows_give_no_rows(name: str) -> None:
    column = Array(noise(0, 3, 9, 40), np.array([True, False, True]))
    out = run(EVERY[name], column, draws(3))
    assert [x is None for x in out.rows()] == [False, True, False]
    assert run(EVERY[name], Values([None]), draws(1)).rows() == [None]
    assert len(run(EVERY[name], Values([]), draws(0))) == 0


@pytest.mark.parametrize("name", EVERY)
def test_inputs_are_never_written_and_results_never_shared(name: str) -> None:
    data = noise(0, 3, 9, 40)
    before = data.copy()
    data.flags.writeable = False
    outs = [run(EVERY[name], Array(data), draws(3)).rows() for _ in range(2)]
    same(data, before)
    for a, b in zip(*outs, strict=True):
        assert not np.shares_memory(a, b)
        assert not np.shares_memory(a, data)
        same(a, b)


@pytest.mark.parametrize("name", EVERY)
def test_a_rows_result_does_not_depend_on_its_neighbours(name: str) -> None:
    rows = Values([noise(i, 9, 30 + 7 * (i % 3)) for i in range(7)])
    table = draws(7).table
    whole = run(EVERY[name], rows, Draws(table)).rows()
    for i, result in enumerate(whole):
        alone = run(EVERY[name], rows.slice(i, i + 1), Draws(table[i : i + 1]))
        same(result, alone.rows()[0])


@pytest.mark.parametrize("name", EVERY)
def test_clips_of_several_channels_are_done_channel_by_channel(name: str) -> None:
    if name in ("mono", "decibels", "mask_frequency", "mel"):
        return  # these look across the second last axis, or at the whole
    stereo = noise(0, 2, 40)
    both = one(EVERY[name], stereo)
    for channel, result in zip(stereo, both, strict=True):
        close(result, one(EVERY[name], channel), 1e-6)


def test_traits() -> None:
    random = {name for name, expr in EVERY.items() if operator(_op(expr)).random}
    assert random == {"random_time_stretch", "mask_time", "mask_frequency"}
    assert all(operator(_op(expr)).releases_gil for expr in EVERY.values())


def _op(expr: Expr) -> str:
    assert isinstance(expr.term, Call)
    return expr.term.op


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"RIFF", r"decode\(\) comes first"),
        (0.5, "not float"),
        (np.zeros(4, np.int16), "32768"),
        (np.array(["a"]), "floats"),
        ([0.1, None], "floats"),
        ([[0.1, 0.2], [0.3]], "one length"),
    ],
)
def test_what_is_no_clip_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one(X.resample(8000, 16000), value)


def test_writing_an_expression_loads_no_native_library() -> None:
    code = (
        "import sys, silva.operators.audio as e; e.audio('x').decode().spectrogram();"
        "assert not {'cv2', 'soundfile', 'soxr', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("library", ["soundfile", "soxr"])
def test_a_missing_library_is_named_together_with_the_extra(library: str) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import silva as sv\n"
        "rows = sv.from_columns({'x': [b'']}).derive(y=sv.audio('x').decode()).select('y')\n"
        "try: rows.head(1)\n"
        "except sv.SilvaError as error: print(error)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert f'needs {library}: pip install "silva[audio]"' in child.stdout


# Clips.


@pytest.mark.operators("audio.resample")
@pytest.mark.rest
@given(clips, st.sampled_from([(8000, 22050), (22050, 8000), (16000, 8000), (44100, 48000)]))
def test_resample_is_librosas(clip: np.ndarray, rates: tuple[int, int]) -> None:
    source, target = rates
    found = one(X.resample(source, target), clip)
    assert len(found) == math.ceil(len(clip) * target / source)
    wanted = librosa.resample(clip, orig_sr=source, target_sr=target, res_type="soxr_hq")
    same(found, wanted[: len(found)])


def test_resample_to_the_same_rate_changes_nothing() -> None:
    clip = noise(0, 2, 100)
    same(one(X.resample(8000, 8000), clip), clip)


def test_silence_after_a_clip_does_not_change_how_it_is_resampled() -> None:
    clip = speech(3000)
    longer = np.concatenate([clip, np.zeros(500, np.float32)])
    found = one(X.resample(8000, 22050), clip)
    same(found, one(X.resample(8000, 22050), longer)[: len(found)])


def test_clips_without_samples() -> None:
    nothing = np.zeros(0, np.float32)
    for expr in (X.mono(), X.resample(8000, 16000), X.time_stretch(2), X.log(), X.mask_time(5)):
        assert one(expr, nothing).shape == (0,)
    assert one(X.resample(8000, 16000), np.zeros((2, 0), np.float32)).shape == (2, 0)
    same(one(X.pad(3), nothing), np.zeros(3, np.float32))
    assert one(X.decibels("max"), nothing).shape == (0,)
    with pytest.raises(ValueError, match="without samples"):
        one(X.spectrogram(16), nothing)


def test_nan_stays_where_numbers_reach() -> None:
    clip = speech(2000)
    clip[1000] = np.nan
    found = one(X.spectrogram(64, hop=16), clip)
    assert np.isnan(found).any(axis=0).sum() == 4
    assert np.isnan(one(X.log(), clip)).sum() == 1
    assert np.isnan(one(X.time_stretch(0.9, 64), clip)).any()


@pytest.mark.operators("audio.mono")
@given(st.builds(noise, seeds, st.integers(1, 5), st.integers(0, 50)))
def test_mono_is_the_mean(clip: np.ndarray) -> None:
    close(one(X.mono(), clip), clip.astype(np.float64).mean(axis=0), 1e-6)
    same(one(X.mono().mono(), clip), one(X.mono(), clip))


@pytest.mark.operators("audio.pad")
@given(st.builds(noise, seeds, st.integers(1, 3), st.integers(0, 30)), st.integers(1, 40))
def test_pad(row: np.ndarray, length: int) -> None:
    found = one(X.pad(length, value=-1, truncate=True), row)
    there = min(length, row.shape[1])
    same(found[:, :there], row[:, :there])
    assert (found[:, there:] == -1).all()
    assert found.shape == (len(row), length)
    if row.shape[1] > length:
        with pytest.raises(ValueError, match="truncate=True"):
            one(X.pad(length), row)
    else:
        same(one(X.pad(length).pad(length + 5), row), one(X.pad(length + 5), row))


# Spectrograms. Tolerance: 1e-5 of the largest value.


def slow_spectrogram(
    clip: np.ndarray, n_fft: int, hop: int, weights: np.ndarray, margin: int, mode: str
) -> np.ndarray:
    """(bins, frames) of |STFT|, by the sums that define it."""
    padded = np.pad(clip.astype(np.float64), margin, mode={"zeros": "constant"}.get(mode, mode))
    turns = np.exp(-2j * np.pi * np.outer(np.arange(n_fft // 2 + 1), np.arange(n_fft)) / n_fft)
    starts = range(0, len(padded) - n_fft + 1, hop)
    return np.stack([np.abs(turns @ (weights * padded[s : s + n_fft])) for s in starts], axis=1)


@given(
    clips,
    st.integers(2, 60),
    st.integers(1, 40),
    st.sampled_from(["hann", "hamming", "blackman", "ones"]),
    st.sampled_from([1.0, 2.0, 0.5]),
    st.booleans(),
    st.sampled_from(["zeros", "reflect"]),
    st.data(),
)
def test_spectrogram(
    clip: np.ndarray, n_fft: int, hop: int, window: Any, power: float, center: bool, mode: Any,
    data: st.DataObject,
) -> None:  # fmt: skip
    length = data.draw(st.integers(1, n_fft))
    expr = X.spectrogram(n_fft, hop, window, length, power, center, mode)
    margin = n_fft // 2 if center else 0
    if (center and mode == "reflect" and len(clip) <= margin) or len(clip) + 2 * margin < n_fft:
        with pytest.raises(ValueError, match=r"too short|shorter"):
            one(expr, clip)
        return
    shape = librosa.filters.get_window("boxcar" if window == "ones" else window, length)
    weights = np.zeros(n_fft)
    start = (n_fft - length) // 2
    weights[start : start + length] = shape
    wanted = slow_spectrogram(clip, n_fft, hop, weights, margin, mode)
    found = one(expr, clip)
    close(found ** np.float32(1 / power), wanted, 2e-3 if power < 1 else 1e-4)


@pytest.mark.operators("audio.spectrogram")
@pytest.mark.parametrize("n_fft", [400, 512, 1023, 2048])
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_spectrogram_is_librosas(n_fft: int, mode: Any) -> None:
    clip = speech(20000)
    wanted = librosa.stft(clip, n_fft=n_fft, pad_mode={"zeros": "constant"}.get(mode, mode))
    close(one(X.spectrogram(n_fft, pad_mode=mode), clip), np.abs(wanted) ** 2, 1e-5)
    close(one(X.spectrogram(n_fft, power=1, pad_mode=mode), clip), np.abs(wanted), 1e-5)


# Mel. Tolerance: 1e-6 of the largest value.


@pytest.mark.operators("audio.mel")
@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("norm", ["slaney", None])
@pytest.mark.parametrize(
    ("n_fft", "n_mels", "rate", "low", "high"),
    [(400, 256, 8000, 0, 4000), (512, 80, 16000, 20, 7600), (1023, 128, 22050, 0, 11025),
     (2, 1, 8000, 0, 4000), (64, 200, 8000, 3000, 3100)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Empty filters")
def test_mel_is_librosas(
    n_fft: int, n_mels: int, rate: int, low: float, high: float, norm: Any, scale: Any
) -> None:
    bank = librosa.filters.mel(
        sr=rate, n_fft=n_fft, n_mels=n_mels, fmin=low, fmax=high, htk=scale == "htk", norm=norm
    )
    ours = filter_bank(n_fft, n_mels, rate, low, high, scale, norm)
    close(ours, bank, 1e-6)
    powers = noise(0, n_fft // 2 + 1, 33) ** 2
    expr = X.mel(rate, n_mels, low, high, scale, norm, n_fft if n_fft % 2 else None)
    close(one(expr, powers), bank.astype(np.float64) @ powers, 1e-6)


@given(spectrograms, st.integers(1, 50))
def test_mel_is_the_product_with_the_filter_bank(powers: np.ndarray, n_mels: int) -> None:
    bank = filter_bank(2 * (len(powers) - 1), n_mels, 8000, 0, 4000, "slaney", "slaney")
    close(one(X.mel(8000, n_mels), powers), bank.astype(np.float64) @ powers, 1e-6)


def test_what_has_no_mel_bands_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 bins"):
        one(X.mel(8000), noise(0, 1, 5))
    with pytest.raises(ValueError, match="n_fft=64 gives 33"):
        one(X.mel(8000, n_fft=64), noise(0, 5, 5))
    with pytest.raises(ValueError, match=r"spectrogram\(\) comes first"):
        one(X.mel(8000), noise(0, 50))


def test_a_frames_mels_do_not_depend_on_the_other_frames() -> None:
    powers = noise(0, 201, 40) ** 2
    whole = one(X.mel(8000, 80), powers)
    for at in range(40):
        same(one(X.mel(8000, 80), powers[:, at : at + 1]), whole[:, at : at + 1])


# Logarithms.


@pytest.mark.operators("audio.log")
@given(spectrograms, st.sampled_from([1e-10, 1e-3, 0.5]))
def test_log(powers: np.ndarray, floor: float) -> None:
    close(one(X.log(floor), powers), np.log(np.maximum(powers.astype(np.float64), floor)), 1e-6)


@pytest.mark.operators("audio.decibels")
@given(spectrograms, st.sampled_from([1.0, 0.1, "max"]), st.sampled_from([None, 80.0, 3.0]))
def test_decibels_are_librosas(powers: np.ndarray, reference: Any, span: float | None) -> None:
    wanted = librosa.power_to_db(
        powers, ref=np.max if reference == "max" else reference, amin=1e-10, top_db=span
    )
    close(one(X.decibels(reference, range=span), powers), wanted, 1e-5)


# Stretching, against librosa in float64, since its float32 angles lose digits as they grow.
# Tolerance: 1e-4 of the largest value for noise, 3e-5 for speech, 1e-5 for power spectrograms.


@pytest.mark.operators("audio.time_stretch")
@pytest.mark.rest
@given(st.builds(noise, seeds, st.integers(1, 3), st.integers(1, 300)), st.floats(0.3, 3))
@pytest.mark.filterwarnings("ignore:n_fft=")
def test_time_stretch_is_librosas(signals: np.ndarray, rate: float) -> None:
    if round(signals.shape[1] / rate) == 0:
        return
    for n_fft in (32, 33):
        wanted = librosa.effects.time_stretch(
            signals.astype(np.float64), rate=rate, n_fft=n_fft, hop_length=n_fft // 4
        )
        close(one(X.time_stretch(rate, n_fft), signals), wanted, 1e-4)


@pytest.mark.parametrize("rate", [0.8, 1.0, 1.25])
def test_speech_is_stretched_as_by_librosa(rate: float) -> None:
    clip = speech(16000)
    wanted = librosa.effects.time_stretch(clip.astype(np.float64), rate=rate)
    close(one(X.time_stretch(rate), clip), wanted, 3e-5)
    if rate == 1:
        close(one(X.time_stretch(rate), clip), clip, 1e-5)


@pytest.mark.parametrize("frames", [1, 34, 99, 100, 176])
@pytest.mark.filterwarnings("ignore:n_fft=")
def test_the_bins_of_a_power_spectrogram_are_stretched_as_by_librosa(frames: int) -> None:
    powers = np.abs(librosa.stft(speech(100 * frames - 1), n_fft=400)) ** 2
    assert powers.shape == (201, frames)
    wanted = librosa.effects.time_stretch(powers.astype(np.float64), rate=0.8, n_fft=400)
    close(one(X.time_stretch(0.8, 400), powers), wanted, 1e-5)


def test_silence_is_stretched_to_silence() -> None:
    clip = speech(4000)
    clip[1000:3500] = 0
    wanted = librosa.effects.time_stretch(clip.astype(np.float64), rate=0.7, n_fft=256)
    close(one(X.time_stretch(0.7, 256), clip), wanted, 1e-4)
    assert not one(X.time_stretch(0.7, 256), np.zeros(1000, np.float32)).any()


@pytest.mark.operators("audio.random_time_stretch")
def test_the_rate_of_a_random_stretch_is_drawn_for_each_clip() -> None:
    rows = [speech(1000)] * 40
    found = run(X.random_time_stretch(0.5, 2, 64), Values(rows), draws(40)).rows()
    rates = 0.5 + 1.5 * draws(40).table[:, 0]
    assert [len(x) for x in found] == [round(1000 / r) for r in rates.tolist()]
    same(found[7], one(X.time_stretch(rates[7], 64), rows[7]))


# Masks: exact.


def slow_run(size: int, most: float, max_width: int, u: float, v: float) -> tuple[int, int]:
    width = min(int(u * max_width), int(most))
    start = int(v * (size - width + 1))
    return start, start + width


@pytest.mark.operators("audio.mask_time", "audio.mask_frequency")
@given(spectrograms, st.integers(1, 80), st.floats(0, 1), seeds)
def test_masks(powers: np.ndarray, max_width: int, share: float, seed: int) -> None:
    u, v = draws(1, seed).table[0, :2]
    start, stop = slow_run(powers.shape[1], powers.shape[1] * share, max_width, u, v)
    wanted = powers.copy()
    wanted[:, start:stop] = 7
    same(one(X.mask_time(max_width, share, 7), powers, seed), wanted)
    start, stop = slow_run(len(powers), len(powers), max_width, u, v)
    wanted = powers.copy()
    wanted[start:stop] = 7
    same(one(X.mask_frequency(max_width, 7), powers, seed), wanted)


def test_every_width_and_place_of_a_mask_occurs_and_none_outside() -> None:
    edge = np.nextafter(1.0, 0.0)
    table = np.concatenate([np.random.default_rng(0).random((3000, 2)), [[edge, edge], [0, edge]]])
    sizes = np.full(len(table), 6)
    runs = random_runs(sizes, sizes, 4, table)
    assert {(int(a), int(b - a)) for a, b in runs} == {
        (start, width) for width in range(4) for start in range(6 - width + 1)
    }
    counts = np.bincount(runs[:, 1] - runs[:, 0])
    assert counts.min() > 0.9 * counts.mean()


def test_masks_commute_with_each_other_and_a_time_mask_with_mel() -> None:
    powers = noise(0, 33, 40) ** 2
    drawn = draws(1)
    row = Values([powers])
    first = run(X.mask_time(20).mask_frequency(20), row, drawn).rows()[0]
    same(first, run(X.mask_frequency(20).mask_time(20), row, drawn).rows()[0])
    before = run(X.mask_time(20).mel(8000, 10), row, drawn).rows()[0]
    same(before, run(X.mel(8000, 10).mask_time(20), row, drawn).rows()[0])


# Whole pipelines.


def wav(samples: np.ndarray, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="WAV", subtype="PCM_16")
    return out.getvalue()


RECORDINGS = [wav(speech(1200 + 130 * i)) for i in range(12)]


@pytest.mark.filterwarnings("ignore:Empty filters", "ignore:n_fft=")
def test_cedars_speech_pipeline_is_that_of_librosa() -> None:
    clip = X.decode(rate=22050).resample(22050, 8000)
    found = run(clip.spectrogram(400).time_stretch(0.8, 400).mel(8000, 256), Values(RECORDINGS))
    for data, result in zip(RECORDINGS, found.rows(), strict=True):
        samples, rate = librosa.load(io.BytesIO(data))
        samples = librosa.resample(samples, orig_sr=rate, target_sr=8000)
        powers = np.abs(librosa.stft(samples, n_fft=400)) ** 2
        powers = librosa.effects.time_stretch(powers, rate=0.8, n_fft=400)
        wanted = librosa.feature.melspectrogram(S=powers, sr=8000, n_mels=256, n_fft=400)
        close(result, wanted, 1e-5)


def test_the_stream_is_the_same_however_it_is_run() -> None:
    clip = audio("bytes").decode(rate=11025, mono=True).random_time_stretch(0.8, 1.2, 256)
    mel = clip.spectrogram(256).mel(11025, 40).log().mask_time(20).mask_frequency(8)
    rows = sv.from_columns({"bytes": RECORDINGS}).shuffle(seed=1)
    pipeline = rows.derive(mel=mel.pad(120, truncate=True)).select("mel").batch(5)
    assert_same_stream(pipeline, workers=(2,), epochs=1)


def test_a_clips_bits_do_not_depend_on_the_threads_of_a_library() -> None:
    code = (
        "import hashlib, numpy as np\n"
        "from silva.columns import Values\n"
        "from silva.plan.operator import operator\n"
        "from silva.operators.audio import audio\n"
        "from silva.plan.expr import Call, walk\n"
        "clip = np.random.default_rng(0).standard_normal(60000).astype(np.float32)\n"
        "column = Values([clip])\n"
        "for term in walk(audio('x').time_stretch(0.9).spectrogram(2048).mel(22050).term):\n"
        "    if isinstance(term, Call):\n"
        "        column = operator(term.op).kernel([column], dict(term.params), None)\n"
        "print(hashlib.sha256(column.rows()[0].tobytes()).hexdigest())\n"
    )
    found = set()
    for threads in ("1", "4"):
        child = subprocess.run(
            [sys.executable, "-c", code],
            env={"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        found.add(child.stdout)
    assert len(found) == 1


# Arguments.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: audio(3), "name is a string"),
        (lambda: X.decode(rate=0), "rate is a whole number of at least 1"),
        (lambda: X.decode(rate=16e3), "rate is a whole number"),
        (lambda: X.decode(mono=1), "mono is True or False"),
        (lambda: X.decode(max_samples=-1), "max_samples"),
        (lambda: X.resample(8000, "x"), "to_rate"),
        (lambda: X.pad(0), "length"),
        (lambda: X.pad(1, truncate="yes"), "truncate is True or False"),
        (lambda: X.spectrogram(1), "n_fft is a whole number of at least 2"),
        (lambda: X.spectrogram(16, hop=0), "hop"),
        (lambda: X.spectrogram(window="kaiser"), "window is one of 'hann'"),
        (lambda: X.spectrogram(16, win_length=17), "at most n_fft"),
        (lambda: X.spectrogram(power=0), "power is a positive"),
        (lambda: X.spectrogram(center=None), "center is True or False"),
        (lambda: X.spectrogram(pad_mode="edge"), "pad_mode is one of"),
        (lambda: X.mel(8000, 0), "n_mels"),
        (lambda: X.mel(8000, high=4001), "high ≤ rate / 2"),
        (lambda: X.mel(8000, low=50, high=50), "low < high"),
        (lambda: X.mel(8000, scale="bark"), "scale is one of"),
        (lambda: X.mel(8000, norm=2), "norm is one of"),
        (lambda: X.log(0), "floor is a positive number"),
        (lambda: X.log(math.nan), "finite"),
        (lambda: X.decibels(-1), "reference"),
        (lambda: X.decibels(range=-1), "range"),
        (lambda: X.time_stretch(0), "between 0.01 and 100"),
        (lambda: X.time_stretch((0.8, 1.2)), "rate is a number"),
        (lambda: X.time_stretch(1, 16, 9), "frames overlap"),
        (lambda: X.random_time_stretch(1.2, 0.8), "low is at most high"),
        (lambda: X.mask_time(0), "max_width"),
        (lambda: X.mask_time(5, 1.1), "max_share is between 0 and 1"),
        (lambda: X.mask_frequency(5, value="x"), "value is a number"),
    ],
)
def test_arguments_are_checked_when_written(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_soxr_gives_the_quality_that_is_promised() -> None:
    clip = speech(2000)
    same(one(X.resample(8000, 16000), clip), soxr.resample(clip, 8000, 16000, "HQ"))
