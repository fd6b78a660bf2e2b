"""How many rows a plan gives, where that can be known without running it."""

from __future__ import annotations

from silva.plan import node as logical


def plan_rows(node: logical.Node) -> int | None:
    """Rows (or batches) of the whole job, or None where filters, explodes and the like decide."""
    match node:
        case logical.Source():
            length: int | None = node.source.length()
            return length
        case logical.Take():
            below = plan_rows(node.input)
            return None if below is None else min(below, node.count)
        case logical.Skip():
            below = plan_rows(node.input)
            return None if below is None else max(below - node.count, 0)
        case logical.Sample():
            return node.size if node.size is not None else plan_rows(node.input)
        case logical.Filter() | logical.Explode() | logical.Pack() | logical.Bucket():
            return None
        case logical.Batch():
            return _batches(node)
        case logical.Concat():
            lengths = [plan_rows(child) for child in node.many]
            return None if None in lengths else sum(n for n in lengths if n is not None)
        case logical.Mix():
            lengths = [plan_rows(child) for child in node.many]
            if node.stop != "all" or None in lengths:
                return None
            return sum(n for n in lengths if n is not None)
        case logical.Zip():
            lengths = [plan_rows(child) for child in node.many]
            return None if None in lengths else min(n for n in lengths if n is not None)
        case _:
            return plan_rows(node.inputs[0])


def _batches(node: logical.Batch) -> int | None:
    rows = plan_rows(node.input)
    if rows is None or node.size is None:
        return None
    return rows // node.size if node.drop_last else -(-rows // node.size)
