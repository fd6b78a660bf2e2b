"""Draws the result of a search: the scores of each configuration over its latency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from silva.errors import PlanError

if TYPE_CHECKING:
    from silva.serve.search.intervals import Interval
    from silva.serve.search.tuning.tuned import Candidate, Tuned

_FRONT, _OTHER = "#2f7d4f", "#9aa5b1"


def draw(tuned: Tuned, path: Path) -> Path:
    """Writes the picture and returns its path."""
    if path.suffix not in (".png", ".svg"):
        raise PlanError(f"plot writes a .png or an .svg, not {path.name!r}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PlanError("plot needs matplotlib: pip install matplotlib") from None
    timed = [one for one in tuned.candidates if len(one.spending.known_latency)]
    if not timed:
        raise PlanError("plot shows scores over latencies, and no configuration was timed")
    figure = Figure(figsize=(7, 1 + 3.5 * len(tuned.metrics)), layout="constrained")
    axes = figure.subplots(len(tuned.metrics), sharex=True, squeeze=False)[:, 0]
    others = [one for one in timed if one.why_not is not None]
    front = [one for one in timed if one.why_not is None]
    for place, (axis, metric) in enumerate(zip(axes, tuned.metrics, strict=True)):
        axis.scatter(*_points(others, place), s=14, color=_OTHER, label="others")
        if front:
            axis.errorbar(
                *_points(front, place), xerr=_reach([one.latency for one in front], 1e3),
                yerr=_reach([one.by_metric[place] for one in front], 1.0),
                fmt="o", color=_FRONT, capsize=2, linewidth=1, label="front, with 95 % intervals",
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_ylabel(metric)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    axes[-1].set_xlabel("median latency of a request alone, ms")
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def _points(found: list[Candidate], metric: int) -> tuple[list[float], list[float]]:
    means = [float(one.scores[:, metric].mean()) for one in found]
    return [1e3 * one.latency.value for one in found], means


def _reach(intervals: list[Interval], unit: float) -> np.ndarray:
    """How far intervals reach below and above their values."""
    both = [(one.value - one.low, min(one.high, 10 * one.value) - one.value) for one in intervals]
    return np.maximum(np.array(both).T * unit, 0.0)
