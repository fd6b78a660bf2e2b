"""Draws `mel.png`: what audio operators do to a clip. Run it with `python docs/images/mel.py`."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import soundfile

import silva as sv

RATE = 16_000


def voice(seconds: float = 1.6) -> bytes:
    """A WAV of something like speech: a gliding pitch under two moving resonances, and a hiss."""
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 130 + 35 * np.sin(2 * np.pi * 0.8 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    first = 500 + 250 * np.sin(2 * np.pi * 1.3 * time)
    second = 1700 + 700 * np.cos(2 * np.pi * 0.9 * time)
    samples = np.zeros_like(time)
    for k in range(1, 45):
        loud = sum(np.exp(-(((k * pitch - f) / 220) ** 2)) for f in (first, second)) + 0.02
        samples += loud * np.sin(k * phase)
    samples *= np.clip(np.sin(2 * np.pi * 1.9 * time) + 0.5, 0.02, 1)
    samples += 0.02 * np.random.default_rng(0).standard_normal(len(time))
    out = io.BytesIO()
    soundfile.write(out, 0.3 * samples / np.abs(samples).max(), RATE, format="WAV")
    return out.getvalue()


def main() -> None:
    clip = sv.audio("bytes").decode(rate=RATE)
    plain = clip.spectrogram(512, hop=128).mel(RATE, 80)
    slow = clip.time_stretch(0.8, 1024).spectrogram(512, hop=128).mel(RATE, 80)
    views = {
        "mel": plain.decibels("max"),
        "time_stretch(0.8)": slow.decibels("max"),
        "mask_time(60), mask_frequency(25)": plain.decibels("max")
        .mask_time(60, value=-80)
        .mask_frequency(25, value=-80),
    }
    rows = sv.from_columns({"bytes": [voice()]})
    figure, axes = plt.subplots(
        1, 3, figsize=(10, 2.6), width_ratios=[4, 5, 4], layout="constrained"
    )
    for ax, (title, view) in zip(axes, views.items(), strict=True):
        (made,) = rows.derive(mel=view).select("mel").options(seed=3).head(1)
        ax.imshow(made["mel"], origin="lower", aspect="auto", cmap="magma", vmin=-80, vmax=0)
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("frame", fontsize=8)
        ax.tick_params(labelsize=7)
    axes[0].set_ylabel("mel band", fontsize=8)
    figure.savefig(Path(__file__).with_name("mel.png"), dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main()
