"""The audio operators: importing this module registers them.

A clip is a float32 array (samples,) or (channels, samples); a spectrogram is (bins, frames), after
a channel axis where there is one. Kernels never write into their inputs, keep nulls, and do each
clip with native calls that release the GIL. A clip is always worked on alone, so that its result
cannot depend, not even in the last bit, on which clips stand beside it. What the operators mean is
said where they are written, in `audio_expr`.
"""

from __future__ import annotations

import cv2

from silva.errors import SilvaError
from silva.operators.audio_expr import AudioExpr, audio
from silva.plan.operator import Operator, register_operator

try:
    from silva.operators._audio import decode, levels, masks, mel, spectrum, stretch, waveform
except ModuleNotFoundError as error:
    raise SilvaError(f'sv.audio needs {error.name}: pip install "silva[audio]"') from error

cv2.setNumThreads(1)  # silva runs its own workers; OpenCV's threads would fight with them

for _operator in (
    Operator("audio.decode", decode.decode),
    Operator("audio.duration", decode.duration),
    Operator("audio.rate", decode.rate),
    Operator("audio.mono", waveform.mono),
    Operator("audio.resample", waveform.resample),
    Operator("audio.pad", waveform.pad),
    Operator("audio.spectrogram", spectrum.spectrogram),
    Operator("audio.mel", mel.mel),
    Operator("audio.log", levels.log),
    Operator("audio.decibels", levels.decibels),
    Operator("audio.time_stretch", stretch.time_stretch),
    Operator("audio.random_time_stretch", stretch.random_time_stretch, random=True),
    Operator("audio.mask_time", masks.mask_time, random=True),
    Operator("audio.mask_frequency", masks.mask_frequency, random=True),
):
    register_operator(_operator)

__all__ = ["AudioExpr", "audio"]
