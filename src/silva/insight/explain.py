"""The plan as written, the rules that changed it, and the plan as run, as text."""

from __future__ import annotations

from typing import Any

from silva.insight.nodes import node_line
from silva.insight.stats import lane_reason
from silva.insight.steps import stage_steps
from silva.insight.words import WIDTH, percent, plural, seconds, size, tidy, wrapped
from silva.optimize.runner import Outcome
from silva.physical import plan as physical
from silva.plan.node import Node
from silva.plan.show import show_plan
from silva.run.executor import Executor
from silva.run.lane import Lane

_INDENT = "  "
_WIDTH = WIDTH - len(_INDENT)
_BAR = 10


def explain_loader(logical: Node, outcomes: list[Outcome], plan: Any, executor: Executor) -> str:
    """Three parts, at most 100 columns wide; counters where something was measured.

    >>> import silva as sv
    >>> print(sv.from_columns({"x": range(9)}).shuffle(seed=1).batch(4).explain())
    Plan as written
      batch 4
      shuffle seed=1, kind=auto, window=4096
      source columns of 9 rows
    <BLANKLINE>
    Rules
      none
    <BLANKLINE>
    Plan as run
      batch 4
      stage 1: where it runs is chosen once its first rows are measured
        · read x
      feed columns of 9 rows: global shuffle (seed 1)
    """
    parts = {
        "Plan as written": written_lines(logical),
        "Rules": rule_lines(outcomes),
        "Plan as run": run_lines(plan, executor),
    }
    return "\n\n".join(
        "\n".join([title, *(_INDENT + line for line in lines)]) for title, lines in parts.items()
    )


def written_lines(plan: Node, width: int = _WIDTH) -> list[str]:
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


def rule_lines(outcomes: list[Outcome], width: int = _WIDTH) -> list[str]:
    """What the rules did; and what they would do, if they were allowed to."""
    lines = []
    for outcome in outcomes:
        why = f" (not used: {outcome.why})" if outcome.why else ""
        lines += wrapped(f"{outcome.rule.name}: {outcome.rule.reason}{why}", width=width)
        for note in outcome.notes:
            lines += wrapped(tidy(note), "  · ", "    ", width)
    return lines or ["none"]


def run_lines(
    plan: Any, executor: Executor, width: int = _WIDTH, *, measured: bool = True
) -> list[str]:
    """The physical plan, a line a node; the steps of a stage below it, with counters if wanted."""
    if isinstance(plan, physical.Segment | physical.BatchSegment):
        lines = _segment_lines(plan, executor, width, measured)
    else:
        lines = wrapped(tidy(node_line(plan)), width=width)
    below = physical.inputs(plan)
    if len(below) == 1:
        return lines + run_lines(below[0], executor, width, measured=measured)
    for i, child in enumerate(below):
        last = i == len(below) - 1
        first, *rest = run_lines(child, executor, width - 3, measured=measured)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return lines


def _segment_lines(node: Any, executor: Executor, width: int, measured: bool) -> list[str]:
    lane = executor.lanes.get(node.name)
    lines = wrapped(f"{node.name}{_where(lane, executor)}", width=width)
    stats = lane.stats if lane is not None and lane.stats.blocks and measured else None
    if lane is not None and stats is not None:
        lines += wrapped(lane_counters(lane), _INDENT, _INDENT * 2, width)
    for step in stage_steps(node.stage, stats):
        mark = "·" if step.seconds is None else f"{_bar(step.share)} {percent(step.share):>5}"
        lines += wrapped(step.label, f"{_INDENT}{mark} ", " " * (len(mark) + 7), width)
    return lines


def _where(lane: Lane | None, executor: Executor) -> str:
    if lane is None or not lane.stats.blocks:
        if executor.backend is not None:
            return f" {_on(executor.backend, executor.workers)}: as asked for"
        if executor.workers == 0:
            return " inline: no workers were asked for"
        return ": where it runs is chosen once its first rows are measured"
    return f" {lane_place(lane)}"


def lane_place(lane: Lane) -> str:
    """Where a stage runs, and why."""
    return f"{_on(lane.backend, lane.workers)}: {lane_reason(lane)}"


def _on(backend: str, workers: int) -> str:
    return "inline" if backend == "inline" else f"on {workers} {backend}"


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
