"""How people write audio steps: `sv.audio("bytes").decode(rate=16000).spectrogram(400).mel(16000)`.

Every method checks its arguments at once and appends a `Call`. No audio library is imported here,
so that `import silva` stays light; the kernels are in `silva.operators.audio`.

The sample rate does not travel with the samples: a column of plain arrays can be stored, batched
and handed to any library. `decode(rate=…)` brings every clip to one rate, so that it is known from
there on, and the steps that depend on it (`resample`, `mel`) are told.
"""

from __future__ import annotations

from typing import Any, Literal

from silva.errors import PlanError
from silva.operators.arguments import integer, number, one_of, positive
from silva.plan.expr import Col, Expr

Window = Literal["hann", "hamming", "blackman", "ones"]
Padding = Literal["zeros", "reflect"]
MelScale = Literal["slaney", "htk"]

_WINDOWS = ("hann", "hamming", "blackman", "ones")
_SLOWEST, _FASTEST = 0.01, 100.0


class AudioExpr(Expr):
    """A column of encoded sound, of clips (samples,) or (channels, samples), or of spectrograms.

    Samples are float32. A spectrogram is (bins, frames), after a channel axis where the clip had
    one. Time is always the last axis.

    >>> audio("bytes").decode(rate=16000, mono=True).spectrogram(400, hop=160).mel(16000, 80).log()
    ... # doctest: +ELLIPSIS
    bytes.decode(rate=16000, mono=True, ...).mel(rate=16000, n_mels=80, ...).log(floor=1e-10)
    """

    __slots__ = ()

    def decode(
        self, rate: int | None = None, mono: bool = False, max_samples: int = 134_217_728
    ) -> AudioExpr:
        """The samples of a WAV, FLAC, OGG or MP3: float32 in [-1, 1].

        One channel gives (samples,), several give (channels, samples); with `mono` they are
        averaged. With `rate` the clip is then resampled to it, else it keeps its own. Clips of more
        than `max_samples` (over all channels, before or after resampling) are errors, and so are
        samples that are not finite, and files that are shorter than they say. An OGG or MP3 that
        does not say may end anywhere: what is there is decoded.

        >>> audio("bytes").decode(rate=16000)
        bytes.decode(rate=16000, mono=False, max_samples=134217728)
        """
        if not isinstance(mono, bool):
            raise PlanError(f"mono is True or False, not {mono!r}")
        return self._call(
            "audio.decode",
            rate=None if rate is None else positive("rate", rate),
            mono=mono,
            max_samples=positive("max_samples", max_samples),
        )

    def duration(self) -> Expr:
        """Seconds of an encoded clip, from its header: nothing is decoded (but of an MP3).

        >>> audio("bytes").duration() < 20
        bytes.duration() < 20
        """
        return self._any("audio.duration")

    def rate(self) -> Expr:
        """Samples per second of an encoded clip, from its header.

        >>> audio("bytes").rate()
        bytes.rate()
        """
        return self._any("audio.rate")

    def mono(self) -> AudioExpr:
        """(samples,): the mean of the channels.

        >>> audio("clip").mono()
        clip.mono()
        """
        return self._call("audio.mono")

    def resample(self, from_rate: int, to_rate: int) -> AudioExpr:
        """The same sound at another rate, by soxr's high quality: n samples become
        ceil(n · to / from).

        >>> audio("clip").resample(8000, 22050)
        clip.resample(from_rate=8000, to_rate=22050)
        """
        return self._call(
            "audio.resample",
            from_rate=positive("from_rate", from_rate),
            to_rate=positive("to_rate", to_rate),
        )

    def pad(self, length: int, value: float = 0.0, truncate: bool = False) -> AudioExpr:
        """`value` after the end until there are `length` samples, or frames.

        What is longer is an error, or cut with `truncate`.

        >>> audio("clip").pad(16000, truncate=True)
        clip.pad(length=16000, value=0.0, truncate=True)
        """
        if not isinstance(truncate, bool):
            raise PlanError(f"truncate is True or False, not {truncate!r}")
        length, value = positive("length", length), number("value", value)
        return self._call("audio.pad", length=length, value=value, truncate=truncate)

    def spectrogram(
        self,
        n_fft: int = 512,
        hop: int | None = None,
        window: Window = "hann",
        win_length: int | None = None,
        power: float = 2.0,
        center: bool = True,
        pad_mode: Padding = "zeros",
    ) -> AudioExpr:
        """|STFT| ** `power`: (n_fft // 2 + 1 bins, frames), as `librosa.stft` has it.

        A frame every `hop` samples (default: n_fft // 4). With `center`, frame t is around sample
        t · hop and the ends are padded by n_fft // 2, with zeros or by reflection; without it,
        frame t begins there, and a clip shorter than `n_fft` is an error. A window of `win_length`
        stands in the middle of zeros. A clip without samples is an error.

        >>> audio("clip").spectrogram(400, hop=160, pad_mode="reflect")
        ... # doctest: +ELLIPSIS
        clip.spectrogram(n_fft=400, hop=160, window='hann', win_length=400, power=2.0, ...)
        """
        n_fft, hop = _transform(n_fft, hop)
        one_of("window", window, _WINDOWS)
        one_of("pad_mode", pad_mode, ("zeros", "reflect"))
        if not isinstance(center, bool):
            raise PlanError(f"center is True or False, not {center!r}")
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

    def mel(
        self,
        rate: int,
        n_mels: int = 128,
        low: float = 0.0,
        high: float | None = None,
        scale: MelScale = "slaney",
        norm: Literal["slaney"] | None = "slaney",
        n_fft: int | None = None,
    ) -> AudioExpr:
        """A spectrogram's bins gathered into `n_mels` triangles between `low` and `high` Hz.

        As `librosa.feature.melspectrogram` by default; torchaudio's default is `scale="htk"` and
        `norm=None`. `rate` is the clip's sample rate, `high` is half of it by default. `n_fft`
        needs to be given only if it was odd. Triangles narrower than a bin may be empty.

        >>> audio("clip").spectrogram(400).mel(8000, n_mels=64) # doctest: +ELLIPSIS
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

    def log(self, floor: float = 1e-10) -> AudioExpr:
        """The natural logarithm; what is below `floor` counts as `floor`.

        >>> audio("mel").log(1e-6)
        mel.log(floor=1e-06)
        """
        return self._call("audio.log", floor=_floor(floor))

    def decibels(
        self,
        reference: float | Literal["max"] = 1.0,
        floor: float = 1e-10,
        range: float | None = 80.0,
    ) -> AudioExpr:
        """10 · log10(power / reference), as `librosa.power_to_db`.

        `"max"` is the loudest value of the clip. What is more than `range` below the loudest is
        raised to that.

        >>> audio("mel").decibels("max")
        mel.decibels(reference='max', floor=1e-10, range=80.0)
        """
        if reference != "max":
            reference = number("reference", reference)
            if reference <= 0:
                raise PlanError(f"reference is a positive number or 'max', not {reference}")
        if range is not None:
            range = number("range", range)
            if range < 0:
                raise PlanError(f"range is a number of decibels, at least 0, not {range}")
        return self._call("audio.decibels", reference=reference, floor=_floor(floor), range=range)

    def time_stretch(self, rate: float, n_fft: int = 2048, hop: int | None = None) -> AudioExpr:
        """Faster (`rate` > 1) or slower at the same pitch, by a phase vocoder: n samples become
        round(n / rate).

        As `librosa.effects.time_stretch`: along the last axis of whatever the rows are. Of a
        spectrogram, each bin is stretched as if it were a signal, and small negative powers can
        come out. `hop` is n_fft // 4 unless given.

        >>> audio("clip").time_stretch(0.8)
        clip.time_stretch(rate=0.8, n_fft=2048, hop=512)
        """
        n_fft, hop = _stretch(n_fft, hop)
        return self._call("audio.time_stretch", rate=_speed("rate", rate), n_fft=n_fft, hop=hop)

    def random_time_stretch(
        self, low: float, high: float, n_fft: int = 2048, hop: int | None = None
    ) -> AudioExpr:
        """`time_stretch` by a rate that is drawn for each clip, uniformly between `low` and `high`.

        >>> audio("clip").random_time_stretch(0.9, 1.1)
        clip.random_time_stretch(low=0.9, high=1.1, n_fft=2048, hop=512)
        """
        n_fft, hop = _stretch(n_fft, hop)
        low, high = _speed("low", low), _speed("high", high)
        if low > high:
            raise PlanError(f"low is at most high, not {low} and {high}")
        return self._call("audio.random_time_stretch", low=low, high=high, n_fft=n_fft, hop=hop)

    def mask_time(self, max_width: int, max_share: float = 1.0, value: float = 0.0) -> AudioExpr:
        """A random run of frames set to `value`: SpecAugment.

        The width is one of 0, …, max_width - 1, each as likely, and so is each place. At most
        `max_share` of the frames are hidden; by default a wide mask may hide a short clip whole.

        >>> audio("mel").mask_time(80, max_share=0.5)
        mel.mask_time(max_width=80, max_share=0.5, value=0.0)
        """
        max_share = number("max_share", max_share)
        if not 0 <= max_share <= 1:
            raise PlanError(f"max_share is between 0 and 1, not {max_share}")
        return self._call(
            "audio.mask_time",
            max_width=positive("max_width", max_width),
            max_share=max_share,
            value=number("value", value),
        )

    def mask_frequency(self, max_width: int, value: float = 0.0) -> AudioExpr:
        """A random run of bins set to `value`, in all frames: SpecAugment.

        >>> audio("mel").mask_frequency(27).mask_frequency(27)
        mel.mask_frequency(max_width=27, value=0.0).mask_frequency(max_width=27, value=0.0)
        """
        width, value = positive("max_width", max_width), number("value", value)
        return self._call("audio.mask_frequency", max_width=width, value=value)


def audio(name: str) -> AudioExpr:
    """A column of sound, by name.

    >>> audio("bytes").decode(rate=8000).pad(8000)
    ... # doctest: +ELLIPSIS
    bytes.decode(rate=8000, ...).pad(length=8000, value=0.0, truncate=False)
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return AudioExpr(Col(name))


def _transform(n_fft: Any, hop: Any) -> tuple[int, int]:
    n_fft = integer("n_fft", n_fft, 2)
    return n_fft, max(n_fft // 4, 1) if hop is None else positive("hop", hop)


def _stretch(n_fft: Any, hop: Any) -> tuple[int, int]:
    n_fft, hop = _transform(n_fft, hop)
    if hop > n_fft // 2:
        raise PlanError(f"hop is at most n_fft // 2 = {n_fft // 2}, so that frames overlap: {hop}")
    return n_fft, hop


def _speed(name: str, value: Any) -> float:
    speed = number(name, value)
    if not _SLOWEST <= speed <= _FASTEST:
        raise PlanError(f"{name} is a speed between {_SLOWEST} and {_FASTEST:.0f}, not {value!r}")
    return speed


def _floor(value: Any) -> float:
    floor = number("floor", value)
    if floor < 1e-37:  # the least normal float32 is 1.2e-38
        raise PlanError(f"floor is a positive number, at least 1e-37, not {value!r}")
    return floor
