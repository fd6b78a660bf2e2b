"""Decoding sound: against soundfile, and on data that is not what it should be."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st

import silva as sv
from silva.columns import Array, Column, Strings, Values
from silva.operators.audio import audio
from silva.plan.expr import Call, Expr
from silva.plan.operator import operator

X = audio("x")
KINDS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_24"),
    ("WAV", "PCM_32"),
    ("WAV", "PCM_U8"),
    ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"),
    ("WAV", "ULAW"),
    ("WAVEX", "PCM_16"),
    ("WAVEX", "FLOAT"),
    ("RF64", "PCM_16"),
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
    ("AIFF", "PCM_16"),
]


def chirp(samples: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """(samples,) or (samples, channels), rising tones."""
    time = np.arange(samples, dtype=np.float64)[:, None] / 8000
    start = 200 + 50 * np.arange(channels) + 10 * seed
    tones = 0.5 * np.sin(2 * np.pi * (start + 400 * time) * time)
    return tones[:, 0] if channels == 1 else tones


def sound(samples: np.ndarray, rate: int = 8000, form: str = "WAV", kind: str = "PCM_16") -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=form, subtype=kind)
    return out.getvalue()


def run(expr: Expr, column: Column) -> Column:
    assert isinstance(expr.term, Call)
    result: Column = operator(expr.term.op).kernel([column], dict(expr.term.params), None)
    return result


def one(expr: Expr, data: Any) -> Any:
    (result,) = run(expr, Values([data])).rows()
    return result


def expected(data: bytes) -> tuple[np.ndarray, int]:
    """soundfile's own samples, channels first.

    Not by `soundfile.read`: it seeks first, after which an MP3 has other last bits.
    """
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        return np.ascontiguousarray(file.read(dtype="float32").T), file.samplerate


@pytest.mark.operators("audio.decode", "audio.duration", "audio.rate")
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize(("form", "kind"), KINDS)
def test_samples_are_those_of_soundfile(form: str, kind: str, channels: int) -> None:
    if form == "MP3" and channels == 3:
        pytest.skip("MP3 has at most two channels")
    data = sound(chirp(4001, channels), 16000, form, kind)
    clip = one(X.decode(), data)
    samples, rate = expected(data)
    assert clip.dtype == np.float32
    assert clip.flags.c_contiguous
    assert clip.shape == samples.shape
    assert np.array_equal(clip, samples)
    assert run(X.rate(), Values([data])).rows() == [rate]
    assert run(X.duration(), Values([data])).rows() == [samples.shape[-1] / rate]


def test_a_clip_is_resampled_to_the_rate_asked_for_after_channels_are_averaged() -> None:
    data = sound(chirp(4000, 2), 8000, "WAV", "FLOAT")
    samples, _ = expected(data)
    clip = one(X.decode(rate=22050), data)
    assert clip.shape == (2, 11025)
    # two channels may be rounded otherwise than one alone
    for channel, source in zip(clip, samples, strict=True):
        np.testing.assert_allclose(channel, soxr.resample(source, 8000, 22050), atol=1e-6)
    single = one(X.decode(rate=22050, mono=True), data)
    assert np.array_equal(single, soxr.resample(samples.mean(axis=0), 8000, 22050))
    assert np.array_equal(one(X.decode(rate=8000), data), samples)


def test_columns_of_every_kind_and_nulls() -> None:
    import pyarrow as pa

    clips = [sound(chirp(100 + i)) for i in range(3)]
    rows = [clips[0], None, clips[1]]
    for column in (Values(rows), Strings(pa.array(rows, pa.binary()))):
        found = run(X.decode(), column).rows()
        assert [None if x is None else len(x) for x in found] == [100, None, 101]
        lengths = run(X.duration(), column)
        assert isinstance(lengths, Array)
        assert lengths.rows() == [100 / 8000, None, 101 / 8000]
    assert len(run(X.decode(), Values([]))) == 0
    assert len(run(X.duration(), Values([]))) == 0
    views = [bytearray(clips[0]), memoryview(clips[0])]
    assert all(np.array_equal(one(X.decode(), v), one(X.decode(), clips[0])) for v in views)


def test_a_clip_of_no_samples_is_an_empty_array() -> None:
    for form, kind in (("WAV", "PCM_16"), ("WAV", "PCM_24")):
        data = sound(np.zeros(0), 8000, form, kind)
        assert one(X.decode(rate=16000), data).shape == (0,)
        assert run(X.duration(), Values([data])).rows() == [0.0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x00" * 100, "cannot be decoded"),
        (b"<html>not found</html>", "cannot be decoded.*<html>no"),
        (b"RIFF\x00\x00\x00\x00WAVE", "cannot be decoded"),
        ("a path", "reads bytes, not str"),
        (7, "reads bytes, not int"),
    ],
)
def test_what_is_no_sound_is_refused(data: Any, message: str) -> None:
    for expr in (X.decode(), X.duration()):
        with pytest.raises(ValueError, match=message):
            one(expr, data)


@pytest.mark.parametrize(
    ("form", "kind"), [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAVEX", "FLOAT"), ("FLAC", "PCM_16")]
)
def test_a_truncated_file_that_says_its_length_is_an_error(form: str, kind: str) -> None:
    data = sound(chirp(20000), 8000, form, kind)
    for share in (0.3, 0.7, 0.95):
        with pytest.raises(ValueError, match=r"truncated|cannot be decoded"):
            one(X.decode(), data[: int(len(data) * share)])


@pytest.mark.parametrize(("form", "kind"), [("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III")])
def test_a_stream_may_end_anywhere(form: str, kind: str) -> None:
    data = sound(chirp(40000), 8000, form, kind)
    for share in (0.5, 0.9):
        try:
            clip = one(X.decode(), data[: int(len(data) * share)])
        except ValueError:
            continue
        assert len(clip) < 41000


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0xFFFFFFFF])
def test_a_wav_that_was_written_to_a_pipe_is_read_to_its_end(size: int) -> None:
    data = sound(chirp(500))
    at = data.index(b"data") + 4
    piped = data[:at] + struct.pack("<I", size) + data[at + 4 :]
    assert np.array_equal(one(X.decode(), piped), one(X.decode(), data))


def test_chunks_around_the_samples_are_stepped_over() -> None:
    data = sound(chirp(500))
    extra = b"LIST" + struct.pack("<I", 3) + b"abc\x00"
    assert np.array_equal(
        one(X.decode(), data[:12] + extra + data[12:] + extra), one(X.decode(), data)
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_samples_that_are_no_sound_are_an_error(bad: float) -> None:
    samples = chirp(100)
    samples[50] = bad
    for kind in ("FLOAT", "DOUBLE"):
        with pytest.raises(ValueError, match="not finite"):
            one(X.decode(), sound(samples, 8000, "WAV", kind))


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    silence = sound(np.zeros(200_000), 8000, "FLAC")
    assert len(silence) < 5000
    with pytest.raises(ValueError, match=r"200000 samples, more than max_samples=100000"):
        one(X.decode(max_samples=100_000), silence)
    stereo = sound(np.zeros((60_000, 2)), 8000)
    with pytest.raises(ValueError, match="120000 samples"):
        one(X.decode(max_samples=100_000), stereo)
    slow = sound(
        np.zeros(1000), 1
    )  # a second a sample: resampling would make it 16000 times longer
    with pytest.raises(ValueError, match="16000000 samples"):
        one(X.decode(rate=16000, max_samples=10**6), slow)
    claimed = bytearray(silence)
    claimed[21:26] = b"\xff" * 5  # FLAC's own count of samples: 2**36 - 1
    with pytest.raises(ValueError, match="more than max_samples"):
        one(X.decode(), bytes(claimed))


BASES = [
    sound(chirp(600, channels), 8000, form, kind) for form, kind in KINDS for channels in (1, 2)
]
edits = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=8)
damaged = st.tuples(st.sampled_from(BASES), edits, st.floats(0, 1), st.booleans())


@given(damaged, st.sampled_from([None, 8000, 11025]))
def test_damaged_files_give_samples_or_an_error_never_a_crash(
    how: tuple[bytes, list[tuple[int, int]], float, bool], rate: int | None
) -> None:
    base, edits, share, cut = how
    data = bytearray(base)
    for place, value in edits:
        # most of what can go wrong is in the header
        data[place % (len(data) if place % 2 else min(len(data), 64))] = value
    if cut:
        data = data[: int(len(data) * share)]
    try:
        clip = one(X.decode(rate=rate, max_samples=10**6), bytes(data))
    except ValueError:
        return
    assert clip.dtype == np.float32
    assert clip.ndim in (1, 2)
    assert clip.size <= 10**6
    assert np.isfinite(clip).all()


def test_a_bad_clip_is_an_error_that_names_its_row() -> None:
    rows = [sound(chirp(100)), b"nonsense", sound(chirp(100))]
    clips = sv.from_columns({"bytes": rows}).derive(clip=audio("bytes").decode()).select("clip")
    with pytest.raises(sv.RowError, match="cannot be decoded") as caught:
        list(clips.batch(3).loader(backend="inline"))
    assert "1" in str(caught.value)
    kept = list(clips.batch(3).loader(backend="inline", on_error=sv.Skip(1)))
    assert [batch["clip"].shape for batch in kept] == [(2, 100)]
