"""Audio operators: method, declaration and kernel of each stand in one file.

A clip is a float32 array (samples,) or (channels, samples); a spectrogram is (bins, frames), after
a channel axis where there is one. Kernels never write into their inputs, keep nulls, and process
each clip with native calls that release the GIL. A clip is always processed alone, so that its
result cannot depend, not even in the last bit, on the clips beside it.

The sample rate does not travel with the samples: a column of plain arrays can be stored, batched
and passed to any library. `decode(rate=…)` brings every clip to one rate, so that it is known from
there on, and the operators that depend on it (`resample`, `mel`) take it as an argument.
"""

from __future__ import annotations

from silva.operators.arguments import column_name
from silva.operators.audio.decode import DecodeMethods
from silva.operators.audio.levels import LevelMethods, MaskMethods
from silva.operators.audio.mel import MelMethods
from silva.operators.audio.spectrum import SpectrumMethods
from silva.operators.audio.stretch import StretchMethods
from silva.operators.audio.waveform import WaveformMethods
from silva.plan.expr import Col
from silva.plan.open import chooses


class AudioExpr(
    DecodeMethods,
    WaveformMethods,
    SpectrumMethods,
    MelMethods,
    LevelMethods,
    StretchMethods,
    MaskMethods,
):
    """A column of encoded sound, of clips (samples,) or (channels, samples), or of spectrograms.

    Samples are float32. A spectrogram is (bins, frames), after a channel axis where the clip had
    one. Time is always the last axis.

    >>> audio("bytes").decode(rate=16000, mono=True).spectrogram(400, hop=160).mel(16000, 80).log()
    ... # doctest: +ELLIPSIS
    bytes.decode(rate=16000, mono=True, ...).mel(rate=16000, n_mels=80, ...).log(floor=1e-10)
    """

    __slots__ = ()


@chooses
def audio(name: str) -> AudioExpr:
    """A column of sound, by name.

    >>> audio("bytes").decode(rate=8000).pad(8000)
    ... # doctest: +ELLIPSIS
    bytes.decode(rate=8000, ...).pad(length=8000, value=0.0, truncate=False)
    """
    return AudioExpr(Col(column_name(name)))


__all__ = ["AudioExpr", "audio"]
