"""Draws the result of a search: the score of each configuration over its latency."""

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
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.add_subplot()
    others = [one for one in timed if one.why_not is not None]
    axis.scatter(*_points(others), s=14, color=_OTHER, label="others")
    front = [one for one in timed if one.why_not is None]
    if front:
        x, y = _points(front)
        axis.errorbar(
            x, y, xerr=_reach([one.latency for one in front], 1e3),
            yerr=_reach([one.score for one in front], 1.0),
            fmt="o", color=_FRONT, capsize=2, linewidth=1, label="front, with 95 % intervals",
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel("median latency of a request alone, ms")
    axis.set_ylabel(tuned.metric)
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def _points(found: list[Candidate]) -> tuple[list[float], list[float]]:
    return [1e3 * one.latency.value for one in found], [float(one.scores.mean()) for one in found]


def _reach(intervals: list[Interval], unit: float) -> np.ndarray:
    """How far intervals reach below and above their values."""
    both = [(one.value - one.low, min(one.high, 10 * one.value) - one.value) for one in intervals]
    return np.maximum(np.array(both).T * unit, 0.0)
