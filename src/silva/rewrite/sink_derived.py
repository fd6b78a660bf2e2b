"""Moves filters past a rename or a concat together with the derivations that they read.

This costs nothing and gains nothing by itself. But steps change places only within one run of
steps: a cheap derivation and its filter, written after a rename, could not come before a costly
step that stands below it. Joined to that run, their order is chosen by what they cost.
"""

from __future__ import annotations

from dataclasses import replace

from silva.plan.function import show_step
from silva.plan.node import Concat, Derive, Filter, Node, Rename, Select, transform
from silva.plan.schema import columns, step_is_pure, step_reads
from silva.rewrite.rule import Rewrite
from silva.rewrite.sink_filter import (
    is_cheap,
    is_stateful,
    names_before,
    sink_filters,
    with_names,
)

StepNode = Derive | Filter


def sink_all(plan: Node, past: type[Rename] | type[Concat]) -> Rewrite:
    """The plan with filters past nodes of a kind: alone, or with the derivations that they read."""
    alone = sink_filters(plan, past)
    notes = list(alone.notes)

    def change(node: Node) -> Node:
        if not isinstance(node, Filter):
            return node
        moved = _with_derivations(node, past)
        if moved is None:
            return node
        notes.append(show_step(node.step))
        return moved

    return Rewrite(transform(alone.plan, change), tuple(notes))


def _with_derivations(node: Filter, past: type[Node]) -> Node | None:
    """The plan from a filter down with the filter and the derivations that it reads below the next
    node of a kind; None if they cannot go there, or nothing could be gained."""
    steps: list[StepNode] = []
    below: Node = node
    while isinstance(below, Derive | Filter) and step_is_pure(below.step):
        steps.append(below)
        below = below.input
    if not isinstance(below, past) or not any(_has_costly_steps(child) for child in below.inputs):
        return None
    moving, staying = _parted(steps)
    if not any(isinstance(step, Derive) for step in moving):
        return None
    if any(isinstance(step, Filter) for step in staying):  # it may guard a derivation after it
        return None
    if isinstance(below, Concat) and any(is_stateful(step.step) for step in moving):
        return None
    if isinstance(below, Rename):
        known = {*columns(below), *columns(below.input)}
        if any(known & set(step.writes) for step in moving):
            return None
        moving = [_before_rename(step, below) for step in moving]
    inputs = tuple(_stacked(moving, child) for child in below.inputs)
    made = _stacked(staying, below.with_inputs(inputs))
    return made if columns(made) == columns(node) else Select(made, columns(node))


def _parted(steps: list[StepNode]) -> tuple[list[StepNode], list[StepNode]]:
    """The first step with those that must come before it, and the others; from the top down."""
    moving: list[StepNode] = steps[:1]
    staying: list[StepNode] = []
    for step in steps[1:]:
        needed = any(_must_precede(step, other) for other in moving)
        (moving if needed else staying).append(step)
    return moving, staying


def _must_precede(first: StepNode, second: StepNode) -> bool:
    """Whether two steps must stay in this order."""
    reads, writes = set(step_reads(first.step)), set(first.writes)
    then_reads, then_writes = set(step_reads(second.step)), set(second.writes)
    return bool(writes & then_reads or reads & then_writes or writes & then_writes)


def _before_rename(step: StepNode, rename: Rename) -> StepNode:
    """The step, reading its columns by the names that they have before a rename."""
    made = with_names(step.step, names_before(rename))
    return replace(step, step=made, written=step.written or show_step(step.step))


def _stacked(steps: list[StepNode], below: Node) -> Node:
    for step in reversed(steps):
        below = replace(step, input=below)
    return below


def _has_costly_steps(node: Node) -> bool:
    """Whether a pipeline ends with steps that another step could come before to spare calls."""
    while isinstance(node, Derive | Filter | Rename | Select):
        if isinstance(node, Derive) or (isinstance(node, Filter) and not is_cheap(node)):
            return True
        node = node.inputs[0]
    return False
