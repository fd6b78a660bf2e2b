"""The invariants of a plan, which are checked after every rewrite."""

from __future__ import annotations

from silva.errors import PlanError
from silva.plan.node import (
    Batch,
    Bucket,
    Cache,
    Concat,
    Derive,
    Explode,
    Filter,
    MapRows,
    Mix,
    Node,
    Pack,
    Rename,
    Sample,
    Select,
    Shuffle,
    Skip,
    Zip,
    walk,
)
from silva.plan.schema import MASK, columns
from silva.plan.show import show_node
from silva.plan.traits import step_reads

_ROWS_ONLY = (Explode, Shuffle, Sample, Skip, Batch, Pack, Bucket, Cache)


def verify(plan: Node) -> None:
    """Raises `PlanError` for the first node that reads a column that does not exist, or that is in
    a place where it is not allowed."""
    for node in walk(plan):
        if missing := _missing(node):
            names = [n for child in node.inputs for n in columns(child)]
            raise PlanError(
                f"`{show_node(node)}` reads {', '.join(map(repr, missing))}, but the columns here "
                f"are {', '.join(map(repr, names)) or '(none)'}"
            )
        if isinstance(node, _ROWS_ONLY) and any(is_batched(child) for child in node.inputs):
            raise PlanError(f"`{show_node(node)}` works on rows and must come before batch")
        if isinstance(node, Mix | Concat | Zip):
            _check_branches(node)


def verify_eval(plan: Node) -> None:
    """Raises `PlanError` if `loader(eval=True)` would overwrite a column."""
    for node in walk(plan):
        pads = isinstance(node, Batch) and node.size is not None and node.collate is None
        if pads and MASK in columns(node.inputs[0]):
            raise PlanError(
                f"loader(eval=True) adds a column {MASK!r} to batches, but the rows already have a "
                f"column of that name: rename({MASK}=…) before batch"
            )


def _missing(node: Node) -> list[str]:
    if not node.inputs:
        return []
    there = set(columns(node.inputs[0]))
    match node:
        case Derive() | Filter():
            wanted = step_reads(node.step)
        case MapRows():
            wanted = node.step.reads if node.step.reads != ("row",) else ()
        case Select():
            wanted = node.names
        case Rename():
            wanted = tuple(old for old, _ in node.names)
        case Explode():
            wanted = (node.column,)
        case Pack():
            wanted = node.columns
        case Bucket():
            wanted = (node.by,)
        case Batch():
            names = [name for group in node.grouped for name in group]
            wanted = (*names, node.by) if node.by else tuple(names)
        case _:
            wanted = ()
    return [n for n in wanted if n not in there]


def is_batched(node: Node) -> bool:
    """Whether a plan yields batches."""
    if isinstance(node, Batch | Bucket):
        return True
    return any(is_batched(child) for child in node.inputs)


def _check_branches(node: Mix | Concat | Zip) -> None:
    verb = node.verb
    if any(is_batched(child) for child in node.many):
        raise PlanError(f"{verb} takes pipelines of rows: batch after it, not before")
    names = [columns(child) for child in node.many]
    if isinstance(node, Zip):
        flat = [n for some in names for n in some]
        twice = sorted({n for n in flat if flat.count(n) > 1})
        if twice:
            raise PlanError(
                f"zip: more than one pipeline has {', '.join(map(repr, twice))}: rename or drop it "
                "in all but one"
            )
        return
    for i, some in enumerate(names[1:], start=1):
        if set(some) != set(names[0]):
            raise PlanError(
                f"{verb}: pipeline 0 has the columns {', '.join(names[0])}, but pipeline {i} has "
                f"{', '.join(some)}; select or derive the same ones in each"
            )
