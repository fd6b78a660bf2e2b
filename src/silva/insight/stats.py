"""The counters of one stage as a plain dict."""

from __future__ import annotations

from typing import Any

from silva.insight.steps import stage_steps
from silva.run.lane import Lane


def lane_stats(lane: Lane) -> dict[str, Any]:
    """Counters since the loader began; times are in seconds, summed over workers.

    >>> import silva as sv
    >>> loader = sv.from_columns({"x": range(8)}).derive(y=lambda x: x).batch(4).loader(workers=0)
    >>> _ = list(loader)
    >>> stats = loader.stats()["stage 1"]
    >>> stats["backend"], stats["rows_in"], stats["rows_out"]
    ('inline', 8, 8)
    """
    stats = lane.stats
    steps: dict[str, float] = {}
    for step in stage_steps(lane.stage, stats):
        if step.seconds is not None:
            steps[step.label] = steps.get(step.label, 0.0) + step.seconds
    return {
        "backend": lane_backend(lane),
        "workers": 0 if lane.backend == "inline" else lane.workers,
        "width": 0 if lane.backend == "inline" else lane.width.now,
        "reason": lane_reason(lane),
        "blocks": stats.blocks,
        "rows_in": stats.rows_in,
        "rows_out": stats.rows_out,
        "bytes_out": stats.bytes_out,
        "busy": stats.busy,
        "cpu": stats.cpu,
        "starved": stats.starved,
        "blocked": stats.blocked,
        "queue_fill": stats.queue_fill,
        "rows_per_second_busy": stats.rows_in / stats.busy if stats.busy else 0.0,
        "steps": steps,
    }


def lane_backend(lane: Lane) -> str:
    """Where the stage runs; of one that is cut in two, where its parts do."""
    return " → ".join(lane.backends)


def lane_reason(lane: Lane) -> str:
    """Why the stage runs where it runs."""
    if lane.cutting.chosen is not None:
        return lane.cutting.reason
    if lane.forced is None and lane.workers == 0:
        return "no workers were asked for"
    if not lane.decided:
        return "too little was seen to choose"
    return lane.reason if lane.offload is None else f"{lane.reason}; {lane.offload.told}"
