"""How many rows and steps a plan has, where that is known without running it."""

from __future__ import annotations

from silva.errors import PlanError
from silva.plan import expr
from silva.plan import node as logical
from silva.plan.function import Function
from silva.plan.show import show_node


def plan_rows(node: logical.Node) -> int | None:
    """Rows (or batches) of the whole job, or None where filters, explodes and the like decide."""
    match node:
        case logical.Source():
            return node.source.length()
        case logical.Take():
            below = plan_rows(node.input)
            return None if below is None else min(below, node.count)
        case logical.SkipRows():
            below = plan_rows(node.input)
            return None if below is None else max(below - node.count, 0)
        case logical.Sample():
            return node.size if node.size is not None else plan_rows(node.input)
        case logical.Filter() | logical.Explode() | logical.Pack() | logical.Bucket():
            return None
        case logical.Batch():
            return _batches(node)
        case logical.Concat() | logical.Mix() | logical.Zip():
            lengths = [plan_rows(child) for child in node.many]
            known = [length for length in lengths if length is not None]
            stops_early = isinstance(node, logical.Mix) and node.stop != "all"
            if stops_early or len(known) < len(lengths):
                return None
            return min(known) if isinstance(node, logical.Zip) else sum(known)
        case _:
            return plan_rows(node.inputs[0])


def why_unknown(node: logical.Node) -> str:
    """Says what decides the number of rows where `plan_rows` does not know it: the step that is
    nearest to the source.

    >>> import silva as sv
    >>> why_unknown(sv.from_columns({"x": [[1], [2, 3]]}).explode("x").batch(2).plan)
    '`explode x` makes any number of rows of one'
    """
    for child in node.inputs:
        if plan_rows(child) is None:
            return why_unknown(child)
    shown = f"`{show_node(node)}`"
    match node:
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


def _batches(node: logical.Batch) -> int | None:
    rows = plan_rows(node.input)
    if rows is None or node.size is None:
        return None
    return rows // node.size if node.drop_last else -(-rows // node.size)


def check_equal_steps(plan: logical.Node, world: int, agree: bool) -> None:
    """Raises where ranks might take different numbers of steps. With `agree`, they ask each other
    at run time."""
    batch = next((n for n in logical.walk(plan) if isinstance(n, logical.Batch)), None)
    if batch is None or batch.size is None:
        if not agree:
            raise PlanError(
                f"with world={world}, ranks must take the same number of steps: use "
                "batch(n, drop_last=True), steps=…, group=…, or eval=True"
            )
        return
    rows = plan_rows(batch.input)
    if rows is None:
        if not agree:
            raise PlanError(
                f"with world={world}, the number of rows is not known beforehand, because "
                f"{why_unknown(batch.input)}: give steps=…, or group='auto' to agree over "
                "torch.distributed"
            )
    elif not batch.drop_last and rows % batch.size:
        raise PlanError(
            f"with world={world}, {rows} rows do not fill batches of {batch.size}, and "
            "the last would be uneven: use batch(n, drop_last=True), or eval=True to pad it"
        )
