"""Plans in words: a line per physical node, a label per step, and trees as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from silva.facts.formatting import plural, size, tidy
from silva.io.paths import scheme_of
from silva.io.source import RowSource, may_hold
from silva.order.positions import DrawRows, Map, Permute, PermuteGroups, PermuteWindows, Range
from silva.physical import plan as physical
from silva.physical.stage.batch_steps import BatchStage, CollateStage
from silva.physical.stage.stage import Runs, Stage
from silva.physical.stage.steps import Project, RowStep
from silva.plan import node as logical
from silva.plan.show import show_node

Tree = dict[str, Any]
"""A plan as plain data, for JSON."""
Segment = physical.Segment | physical.BatchSegment


def node_line(node: physical.PhysicalNode) -> str:
    """Describes a node other than a segment.

    >>> node_line(physical.Take(None, 3))
    'take 3'
    """
    match node:
        case physical.IndexedFeed():
            return _indexed(node)
        case physical.ChunkedFeed():
            return _chunked(node)
        case physical.Windows():
            return _windows(node)
        case physical.Take():
            return f"take {node.count}"
        case physical.SkipRows():
            return f"skip {node.count}"
        case physical.CacheRows():
            return _cache(node.spec)
        case physical.Batch() | physical.Bucket() | physical.Pack() | physical.Mix():
            return show_node(node.spec)
        case physical.Zip():
            return f"zip {node.stop}"
        case _:
            return type(node).__name__.lower()


def _cache(spec: logical.Cache) -> str:
    limit = "" if spec.limit is None else f", at most {size(spec.limit)} for all pipelines"
    if spec.folder is None:
        return "cache in memory"
    where = f"in {spec.folder}" if scheme_of(spec.folder) else "on disk"
    return f"cache {where}{limit}"


def _indexed(feed: physical.IndexedFeed) -> str:
    order = ", ".join(_map(step) for step in feed.read.maps) or "in order"
    skipped = ""
    if feed.read.conditions:
        skipped = f", {feed.read.passed_over(feed.read.conditions)}"
    return f"feed {_counted(feed.read.source)}{order}{skipped}"


def _counted(source: RowSource) -> str:
    """The source and its number of rows, where its own description does not contain that."""
    known, length = source.describe(), source.length()
    rows = "number of rows unknown" if length is None else plural(length, "row")
    return f"{known}: " if rows in known or f"{length} rows" in known else f"{known}: {rows}, "


def _map(step: Map) -> str:
    match step:
        case Permute():
            return f"global shuffle (seed {step.seed})"
        case PermuteWindows():
            return f"shuffle within windows of {step.width:,} rows (seed {step.seed})"
        case PermuteGroups():
            return _groups(step)
        case DrawRows():
            return f"{plural(step.count, 'weighted draw')} (seed {step.seed})"
        case Range(start=0):
            return f"the first {plural(step.stop or 0, 'row')}"
        case Range():
            return f"without the first {plural(step.start, 'row')}"


def _groups(step: PermuteGroups) -> str:
    count = len(step.groups().starts) - 1
    mean = int(step.groups().starts[-1]) / max(count, 1)
    return (
        f"{plural(count, 'group')} of {mean:.1f} rows permuted (seed {step.seed}); rows of a group "
        f"stay together, so n consecutive rows come from about n / {mean:.1f} groups"
    )


def _chunked(feed: physical.ChunkedFeed) -> str:
    order = "in order" if feed.seed is None else f"units in permuted order (seed {feed.seed})"
    skipped = ""
    if feed.conditions:
        source = feed.read.source
        units = source.units()
        count = sum(not may_hold(source, unit, feed.conditions) for unit in range(units))
        skipped = f", {count} of {plural(units, 'unit')} skipped by their statistics"
    return f"feed {_counted(feed.read.source)}read in units, {order}{skipped}"


def _windows(node: physical.Windows) -> str:
    if node.seed is None:
        return f"groups of {plural(node.width, 'row')}"
    below = node.input
    two_level = isinstance(below, physical.ChunkedFeed) and below.seed is not None
    kind = "two-level shuffle" if two_level else "window shuffle"
    return f"{kind}: rows within windows of {node.width:,} (seed {node.seed})"


def segments(plan: physical.PhysicalNode) -> Iterator[Segment]:
    """The stages of a plan, from the sources up."""
    for child in plan.inputs:
        yield from segments(child)
    if isinstance(plan, Segment):
        yield plan


def steps_of(stage: Runs) -> tuple[RowStep | logical.Node, ...]:
    """The steps of a stage of rows, or the nodes of a stage of batches."""
    if isinstance(stage, Stage):
        return stage.steps
    return stage.nodes if isinstance(stage, BatchStage) else ()


def step_labels(stage: Runs) -> list[str]:
    """A label for what the stage reads, and one for each step; empty where nothing is shown:
    selecting columns takes no time."""
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


def shown_labels(stage: Runs) -> list[str]:
    return [label for label in step_labels(stage) if label]


def _reading(stage: Stage) -> str:
    """What a stage reads; columns that it reads only for rows that pass its filters come last."""
    if stage.read is None or not stage.late:
        return "" if stage.read is None else stage.read.label
    at_once = [name for name in stage.read.columns if name not in stage.late]
    later = late_label(stage.late)
    return f"read {', '.join(at_once)}; {later}" if at_once else later


def late_label(columns: Iterable[str]) -> str:
    """The label of reading that waits until the filters have dropped rows."""
    return f"read {', '.join(columns)} after the filters"


def written_tree(node: logical.Node) -> Tree:
    """The plan as written: verb, text and inputs of each node.

    >>> import silva as sv
    >>> written_tree(sv.from_columns({"x": range(3)}).take(2).plan)["text"]
    'take 2'
    """
    return {
        "verb": node.verb,
        "text": tidy(show_node(node)),
        "inputs": [written_tree(child) for child in node.inputs],
    }


def run_tree(node: physical.PhysicalNode) -> Tree:
    """The plan as run; a stage has a name and steps."""
    below = [run_tree(child) for child in node.inputs]
    if isinstance(node, Segment):
        steps = shown_labels(node.stage)
        return {"text": node.name, "stage": node.name, "steps": steps, "inputs": below}
    return {"text": tidy(node_line(node)), "stage": None, "steps": [], "inputs": below}
