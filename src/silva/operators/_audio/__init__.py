"""The kernels behind `silva.operators.audio`.

`rows` runs a kernel over a column; `wav` and `decode` make samples of bytes; `waveform` changes
clips; `fourier` is the transform that `spectrum` (spectrograms) and `stretch` (the phase vocoder)
share; `mel`, `levels` and `masks` change spectrograms.
"""
