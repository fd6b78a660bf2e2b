"""Two lowered forms of one pipeline, side by side: each stage learns what it was before steps were
moved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from silva.physical import plan as physical
from silva.physical.steps import Project, Step


def with_written(plan: Any, written: Any) -> Any:
    """`plan`, with every stage that was changed holding its form in `written`."""
    return _paired(plan, written) if _alike(plan, written) else plan


def _alike(a: Any, b: Any) -> bool:
    """Whether two plans differ in nothing but the steps of their stages."""
    if type(a) is not type(b):
        return False
    below = physical.inputs(a), physical.inputs(b)
    if len(below[0]) != len(below[1]) or not all(map(_alike, *below)):
        return False
    match a:
        case physical.ChunkedFeed():
            return set(a.read.columns) == set(b.read.columns)
        case physical.Segment():
            return a.whole == b.whole and _gives(a.stage.steps) == _gives(b.stage.steps)
    return True


def _gives(steps: tuple[Step, ...]) -> frozenset[str] | None:
    """The columns that come out, where the last step says so."""
    last = steps[-1] if steps else None
    return frozenset(new for _, new in last.names) if isinstance(last, Project) else None


def _paired(a: Any, b: Any) -> Any:
    match a:
        case physical.IndexedFeed() | physical.ChunkedFeed():
            return a
        case physical.Concat() | physical.Zip() | physical.Mix():
            return replace(a, many=tuple(map(_paired, a.many, b.many)))
        case physical.Segment() if a.stage.steps != b.stage.steps:
            stage = replace(a.stage, written=b.stage)
            return replace(a, input=_paired(a.input, b.input), stage=stage)
    return replace(a, input=_paired(a.input, b.input))


def segments(plan: Any) -> list[physical.Segment]:
    """The stages of rows of a plan, from the sources up."""
    found = [s for child in physical.inputs(plan) for s in segments(child)]
    return [*found, plan] if isinstance(plan, physical.Segment) else found
