"""The properties of a node that rewrites rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from silva.plan import expr
from silva.plan.function import Function, Step
from silva.plan.node import (
    Batch,
    Bucket,
    Derive,
    Explode,
    Filter,
    MapRows,
    Node,
    Pack,
    Rename,
    Sample,
    Select,
    Shuffle,
    Source,
)
from silva.plan.operator import operator
from silva.plan.schema import columns

Rows = Literal["one", "at most one", "any number", "other rows"]
"""How many rows a row becomes; `other rows` where the order or the grouping changes."""

Gil = Literal["holds", "releases", "unknown"]


@dataclass(frozen=True)
class Traits:
    """The properties of a node that rewrites rely on."""

    reads: frozenset[str]
    writes: frozenset[str]
    rows: Rows
    random: bool
    pure: bool
    gil: Gil


def step_reads(step: Step) -> tuple[str, ...]:
    return step.reads if isinstance(step, Function) else expr.columns_read(step)


def step_is_random(step: Step) -> bool:
    if isinstance(step, Function):
        return step.takes_rng
    return any(isinstance(t, expr.Call) and operator(t.op).random for t in expr.walk(step))


def _step_gil(step: Step) -> Gil:
    if isinstance(step, Function):
        return "unknown"
    calls = [t for t in expr.walk(step) if isinstance(t, expr.Call)]
    return "releases" if all(operator(t.op).releases_gil for t in calls) else "holds"


def _step_is_pure(step: Step) -> bool:
    return not isinstance(step, Function) or not (
        step.marks.impure or step.marks.batch_size is not None
    )


def traits(node: Node) -> Traits:
    """The traits of one node, without those of its inputs."""
    everything = frozenset(columns(node.inputs[0])) if node.inputs else frozenset()
    match node:
        case Derive():
            return Traits(
                frozenset(step_reads(node.step)),
                frozenset(node.into),
                "one",
                step_is_random(node.step),
                _step_is_pure(node.step),
                _step_gil(node.step),
            )
        case Filter():
            return Traits(
                frozenset(step_reads(node.step)),
                frozenset(),
                "at most one",
                step_is_random(node.step),
                _step_is_pure(node.step),
                _step_gil(node.step),
            )
        case Select():
            return Traits(frozenset(), frozenset(), "one", False, True, "releases")
        case Rename():
            old, new = zip(*node.names, strict=True)
            return Traits(frozenset(old), frozenset(new), "one", False, True, "releases")
        case Explode():
            column = frozenset((node.column,))
            return Traits(column, column, "any number", False, True, "holds")
        case MapRows():
            return Traits(
                everything, frozenset(node.into), "one", node.step.takes_rng, False, "unknown"
            )
        case Source():
            return Traits(
                frozenset(), frozenset(columns(node)), "other rows", False, True, "unknown"
            )
        case Shuffle() | Sample():
            return Traits(frozenset(), frozenset(), "other rows", True, True, "releases")
        case Batch() | Pack() | Bucket():
            return Traits(
                everything, frozenset(columns(node)), "other rows", False, True, "unknown"
            )
        case _:
            return Traits(everything, frozenset(), "other rows", False, True, "releases")
