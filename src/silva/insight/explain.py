"""The plan as written, why it was changed, and the plan as run, as text."""

from __future__ import annotations

from typing import Any, Literal

from silva.insight.measured_lines import operator_lines, stage_lines, step_note
from silva.insight.nodes import node_line
from silva.insight.stages import stage_facts
from silva.insight.stats import lane_backend, lane_reason
from silva.insight.steps import stage_steps
from silva.insight.words import WIDTH, percent, plural, seconds, size, tidy, wrapped
from silva.physical import plan as physical
from silva.plan.node import Node
from silva.plan.show import show_plan
from silva.run.executor import Executor
from silva.run.lane import Lane

INDENT = "  "
INNER = WIDTH - len(INDENT)
"""Characters that fit below a title."""
_BAR = 10

Detail = Literal["none", "counters", "all"]
"""How much of what was measured is shown."""


def explained(parts: dict[str, list[str]]) -> str:
    """Titles with indented lines below them, as an explanation is printed."""
    return "\n\n".join(
        "\n".join([title, *(INDENT + line for line in lines)]) for title, lines in parts.items()
    )


def written_lines(plan: Node, width: int = INNER) -> list[str]:
    """The plan as the user wrote it, a line a node."""
    lines = []
    for line in tidy(show_plan(plan)).split("\n"):
        branch = _branch(line)
        rest = branch.replace("├─ ", "│  ").replace("└─ ", "   ") + "    "
        lines += wrapped(line[len(branch) :], branch, rest, width)
    return lines


def _branch(line: str) -> str:
    """The drawn part of a line of a tree."""
    return line[: len(line) - len(line.lstrip("│├└─ "))]


def run_lines(
    plan: Any, executor: Executor, width: int = INNER, *, detail: Detail = "counters"
) -> list[str]:
    """The physical plan, a line a node; the steps of a stage below it, with what was measured."""
    if isinstance(plan, physical.Segment | physical.BatchSegment):
        lines = _segment_lines(plan, executor, width, detail)
    else:
        lines = wrapped(tidy(node_line(plan)), width=width)
    below = physical.inputs(plan)
    if len(below) == 1:
        return lines + run_lines(below[0], executor, width, detail=detail)
    for i, child in enumerate(below):
        last = i == len(below) - 1
        first, *rest = run_lines(child, executor, width - 3, detail=detail)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return lines


def _segment_lines(node: Any, executor: Executor, width: int, detail: Detail) -> list[str]:
    lane = executor.lanes.get(node.name)
    lines = wrapped(f"{node.name}{_where(lane, executor)}", width=width)
    stats = None if lane is None or not lane.stats.blocks or detail == "none" else lane.stats
    if lane is None or stats is None:
        for step in stage_steps(node.stage, None):
            lines += wrapped(step.label, f"{INDENT}· ", " " * 8, width)
        return lines
    lines += wrapped(lane_counters(lane), INDENT, INDENT * 2, width)
    if detail == "counters":
        for step in stage_steps(node.stage, stats):
            lines += _step_lines(step.label, step.seconds is not None, step.share, width)
        return lines
    facts = stage_facts(lane)
    for line in stage_lines(facts):
        lines += wrapped(line, INDENT, INDENT * 2, width)
    for found in facts.steps:
        lines += _step_lines(found.label, True, found.share, width)
        lines += wrapped(step_note(found), " " * 21, " " * 23, width)
        lines += operator_lines(found, " " * 21)
    return lines


def _step_lines(label: str, known: bool, share: float, width: int) -> list[str]:
    mark = f"{_bar(share)} {percent(share):>5}" if known else "·"
    return wrapped(label, f"{INDENT}{mark} ", " " * (len(mark) + 7), width)


def _where(lane: Lane | None, executor: Executor) -> str:
    if lane is None or not lane.stats.blocks:
        if executor.backend == "ray":
            return " on the cluster: as asked for"
        if executor.backend is not None:
            return f" {on(executor.backend, executor.workers)}: as asked for"
        if executor.workers == 0:
            return " inline: no workers were asked for"
        return ": where it runs is chosen once its first rows are measured"
    return f" {lane_place(lane)}"


def lane_place(lane: Lane) -> str:
    """Where a stage runs, and why."""
    return f"{on(lane_backend(lane), lane.workers, lane.width.now)}: {lane_reason(lane)}"


def on(backend: str, workers: int, width: int | None = None) -> str:
    """A place in words; of its workers, those that are needed at the moment.

    >>> on("threads", 4), on("threads", 4, width=3), on("inline", 4)
    ('on 4 threads', 'on 3 of 4 threads', 'inline')
    >>> on("ray", 8)
    'on 8 actors'
    >>> on("processes → threads", 4)
    'on 4 processes and then on 4 threads'
    """
    first, then, second = backend.partition(" → ")
    if then:
        return f"{on(first, workers, width)} and then {on(second, workers, width)}"
    if backend == "inline":
        return "inline"
    of = f"{workers} {'actors' if backend == 'ray' else backend}"
    return f"on {of}" if width in (None, workers) else f"on {width} of {of}"


def lane_counters(lane: Lane) -> str:
    """What a stage did so far."""
    stats = lane.stats
    rows = plural(stats.rows_in, "row")
    if stats.rows_out != stats.rows_in:
        rows += f" in, {stats.rows_out:,} out"
    parts = [rows, size(stats.bytes_out), f"{seconds(stats.busy)} of work"]
    if stats.busy:
        parts.append(f"{stats.rows_in / stats.busy:,.0f} rows/s a worker")
    if stats.starved >= 1e-3:
        parts.append(f"waited for {seconds(stats.starved)}")
    if stats.blocked:
        parts.append(f"held back by memory {plural(stats.blocked, 'time')}")
    return ", ".join(parts)


def _bar(share: float) -> str:
    full = round(share * _BAR)
    return "█" * full + "░" * (_BAR - full)
