"""One sentence about a run: did the trainer wait, and for what."""

from __future__ import annotations

from collections.abc import Iterable

from silva.insight.steps import stage_steps
from silva.insight.watch import Watch
from silva.insight.words import percent
from silva.run.lane import Lane

KEEPS_UP = 0.05
"""A trainer that waits less than this has its batches in time."""


def verdict(watch: Watch, lanes: Iterable[Lane]) -> str:
    """
    >>> verdict(Watch(), [])
    'Nothing has been run yet.'
    """
    busy = [lane for lane in lanes if lane.stats.blocks]
    if not busy:
        return "Nothing has been run yet."
    slowest = _slowest(busy)
    if not watch.seconds:
        return f"Waiting was not measured (loader(progress=True) does); {slowest}."
    waited = f"The trainer waited {percent(watch.wait_share)} of the time"
    if watch.wait_share < KEEPS_UP:
        return f"{waited}: the pipeline keeps up; {slowest}."
    return f"{waited}: the pipeline holds it back; {slowest}."


def _slowest(lanes: list[Lane]) -> str:
    lane = max(lanes, key=lambda found: found.stats.busy)
    steps = [s for s in stage_steps(lane.stage, lane.stats) if s.seconds is not None]
    if not steps:
        return f"slowest: {lane.name}"
    step = max(steps, key=lambda found: found.share)
    name = step.label.partition("(")[0].partition("  [")[0].rstrip()
    return f"slowest: {lane.name}, of which `{name}` takes {percent(step.share)}"
