"""Gives each stage of a rewritten plan its form as written, from a second lowering."""

from __future__ import annotations

from dataclasses import replace

from silva.physical.plan import ChunkedFeed, PhysicalNode, Segment
from silva.physical.stage.steps import Project, Step


def with_written(plan: PhysicalNode, written: PhysicalNode) -> PhysicalNode:
    """`plan` in which every changed stage has the form of its twin in `written`."""
    return _paired(plan, written) if _alike(plan, written) else plan


def _alike(a: PhysicalNode, b: PhysicalNode) -> bool:
    """Whether two plans differ only in the steps of their stages."""
    if type(a) is not type(b):
        return False
    below = a.inputs, b.inputs
    if len(below[0]) != len(below[1]) or not all(map(_alike, *below)):
        return False
    if isinstance(a, ChunkedFeed) and isinstance(b, ChunkedFeed):
        return set(a.read.columns) == set(b.read.columns)
    if isinstance(a, Segment) and isinstance(b, Segment):
        return a.whole == b.whole and _gives(a.stage.steps) == _gives(b.stage.steps)
    return True


def _gives(steps: tuple[Step, ...]) -> frozenset[str] | None:
    """The columns of a stage's result, if its last step is a projection."""
    last = steps[-1] if steps else None
    return frozenset(new for _, new in last.names) if isinstance(last, Project) else None


def _paired(a: PhysicalNode, b: PhysicalNode) -> PhysicalNode:
    made = a.with_inputs(tuple(map(_paired, a.inputs, b.inputs)))
    if isinstance(made, Segment) and isinstance(b, Segment) and made.stage.steps != b.stage.steps:
        made = replace(made, stage=replace(made.stage, written=b.stage))
    return made


def segments(plan: PhysicalNode) -> list[Segment]:
    """The stages of rows of a plan, from the sources up."""
    found = [s for child in plan.inputs for s in segments(child)]
    return [*found, plan] if isinstance(plan, Segment) else found
