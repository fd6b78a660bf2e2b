"""How many rows and steps a plan has, where that is known without running it."""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.errors import PlanError
from silva.order.forms import places_below
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Function
from silva.plan.show import show_node


def plan_rows(node: logical.Node, shards: int = 1) -> int | None:
    """Rows (or batches) of the whole job, or None where filters, explodes and the like decide. With
    several shards, None too where nobody knows how many rows each of them has."""
    match node:
        case logical.Source():
            return node.source.length() if _counts_shards(node.source, shards) else None
        case logical.Take():
            below = plan_rows(node.input, shards)
            return None if below is None else min(below, node.count)
        case logical.SkipRows():
            below = plan_rows(node.input, shards)
            return None if below is None else max(below - node.count, 0)
        case logical.Sample():
            return node.size if node.size is not None else plan_rows(node.input, shards)
        case logical.Filter() | logical.Explode() | logical.Pack() | logical.Bucket():
            return None
        case logical.Batch():
            return _batches(node, shards)
        case logical.Concat() | logical.Mix() | logical.Zip():
            lengths = [plan_rows(child, shards) for child in node.many]
            known = [length for length in lengths if length is not None]
            stops_early = isinstance(node, logical.Mix) and node.stop != "all"
            if stops_early or len(known) < len(lengths):
                return None
            return min(known) if isinstance(node, logical.Zip) else sum(known)
        case _:
            return plan_rows(node.inputs[0], shards)


def _counts_shards(source: Any, shards: int) -> bool:
    """Whether the rows of a shard follow from those of the source. Otherwise a shard is a run of
    units of any length, or every S-th row of each (`order.shards.unit_bounds`)."""
    if shards == 1 or source.access == "indexed":
        return True
    return source.unit_rows() is not None or source.units() == 1


def _shard_rows(node: logical.Node, shards: int) -> np.ndarray:
    """The rows of each shard, below batches, where `plan_rows` knows their sum."""
    places = places_below(node)
    if places is not None:
        return _shares(places, shards)
    if isinstance(node, logical.Source):
        return _shares(node.source.length() or 0, shards)
    each = np.array([_shard_rows(child, shards) for child in node.inputs])
    rows: np.ndarray = each.min(axis=0) if isinstance(node, logical.Zip) else each.sum(axis=0)
    if isinstance(node, logical.Take):
        rows = np.minimum(rows, _shares(node.count, shards))
    elif isinstance(node, logical.SkipRows):
        rows = np.maximum(rows - _shares(node.count, shards), 0)
    return rows


def _shares(count: int, shards: int) -> np.ndarray:
    return count // shards + (np.arange(shards) < count % shards)


def why_unknown(node: logical.Node, shards: int = 1) -> str:
    """Says what decides the number of rows where `plan_rows` does not know it: the step that is
    nearest to the source.

    >>> import silva as sv
    >>> why_unknown(sv.from_columns({"x": [[1], [2, 3]]}).explode("x").batch(2).plan)
    '`explode x` makes any number of rows of one'
    """
    for child in node.inputs:
        if plan_rows(child, shards) is None:
            return why_unknown(child, shards)
    shown = f"`{show_node(node)}`"
    match node:
        case logical.Source() if node.source.length() is not None:
            return (
                f"the source ({node.source.describe()}) does not know how many rows each of its "
                "units has (unit_rows)"
            )
        case logical.Source():
            return f"the source ({node.source.describe()}) does not know how many rows it has"
        case logical.Filter() if _is_split(node):
            return (
                "`split` deals rows out by a hash, so the size of a part is not exactly its share"
            )
        case logical.Filter():
            return f"{shown} decides which rows are kept"
        case logical.Explode():
            return f"{shown} makes any number of rows of one"
        case logical.Mix():
            return f"mix(stop={node.stop!r}) ends at a row that the run decides"
        case _:
            return f"{shown} fills its batches by the lengths of rows"


def _is_split(node: logical.Filter) -> bool:
    if isinstance(node.step, Function):
        return False
    calls = (part for part in expr.walk(node.step) if isinstance(part, expr.Call))
    return any(call.op == "hash_fraction" for call in calls)


def _batches(node: logical.Batch, shards: int) -> int | None:
    """The batches that all shards give together: each gives the same number of rows to a batch."""
    rows = plan_rows(node.input, shards)
    if rows is None or node.size is None:
        return None
    if node.size % shards:  # refused by the run
        return rows // node.size if node.drop_last else -(-rows // node.size)
    each, own = node.size // shards, _shard_rows(node.input, shards)
    return int((own // each).min() if node.drop_last else (-(-own // each)).max())


def equal_steps(plan: logical.Node, shards: int, world: int, agree: bool) -> int | None:
    """The number of steps of every rank. Raises where ranks might take different numbers; with
    `agree`, they ask each other at run time, and the number may be unknown (None)."""
    batch = next((n for n in logical.walk(plan) if isinstance(n, logical.Batch)), None)
    if batch is None or batch.size is None:
        if not agree:
            raise PlanError(
                f"with world={world}, ranks must take the same number of steps: use "
                "batch(n, drop_last=True), steps=…, group=…, or eval=True"
            )
        return None
    rows = plan_rows(batch.input, shards)
    if rows is None:
        if not agree:
            raise PlanError(
                f"with world={world}, the number of rows is not known beforehand, because "
                f"{why_unknown(batch.input, shards)}: give steps=…, or group='auto' to agree over "
                "torch.distributed"
            )
        return None
    if not batch.drop_last:
        if rows % batch.size:
            raise PlanError(
                f"with world={world}, {rows} rows do not fill batches of {batch.size}, and "
                "the last would be uneven: use batch(n, drop_last=True), or eval=True to pad it"
            )
        own = _shard_rows(batch.input, shards)
        if own.min() < own.max():
            raise PlanError(
                f"with world={world}, the shards have from {own.min()} to {own.max()} rows, "
                "because each pipeline of a concat or mix is divided into shards by itself: use "
                "batch(n, drop_last=True), or eval=True to pad it"
            )
    return plan_rows(plan, shards)
