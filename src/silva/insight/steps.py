"""The steps of a stage and the time that each took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from silva.insight.words import tidy
from silva.physical.batches import BatchStage, CollateStage
from silva.physical.stage import Stage
from silva.physical.steps import Project
from silva.plan.show import show_node
from silva.run.lane_stats import LaneStats


@dataclass(frozen=True)
class StepTime:
    label: str
    """The step as the plan shows it, with the function's file and line."""
    seconds: float | None
    """Worker seconds so far; None where the step is not measured by itself."""
    share: float
    """Of the time of all steps shown; 0 where it is not measured."""


def stage_steps(stage: Any, stats: LaneStats | None) -> list[StepTime]:
    """The steps in the order they run, with measured times where there are any.

    Choosing columns takes no time worth a line, and is left out.
    """
    labels = step_labels(stage)
    times = [] if stats is None else [cost.seconds for cost in stats.steps]
    if len(times) != len(labels):
        lonely = stats is not None and stats.blocks and len([x for x in labels if x]) == 1
        alone = stats.busy if lonely and stats is not None else None
        return [StepTime(label, alone, 1.0 if lonely else 0.0) for label in labels if label]
    shown = [(label, t) for label, t in zip(labels, times, strict=True) if label]
    total = sum(t for _, t in shown) or 1.0
    return [StepTime(label, spent, spent / total) for label, spent in shown]


def step_labels(stage: Any) -> list[str]:
    """One for each number in `LaneStats.steps`; empty where there is nothing to show."""
    match stage:
        case Stage():
            labels = [_reading(stage), *(step.label for step in stage.steps)]
            if not any(labels) and isinstance(stage.steps[-1], Project):
                labels[-1] = f"select {', '.join(new for _, new in stage.steps[-1].names)}"
        case BatchStage():
            labels = ["", *(show_node(node) for node in stage.nodes)]
        case CollateStage():
            labels = [stage.label]
        case _:
            labels = []
    return [tidy(label) for label in labels]


def _reading(stage: Stage) -> str:
    """What a stage reads, and what of it only for rows that its filters keep."""
    if stage.read is None or not stage.late:
        return "" if stage.read is None else stage.read.label
    at_once = [name for name in stage.read.columns if name not in stage.late]
    later = f"{', '.join(stage.late)} of rows that are kept"
    return f"read {', '.join(at_once)}; {later}" if at_once else f"read {later}"
