"""Plans as text: one line per node, the source at the bottom."""

from __future__ import annotations

from silva.errors import printable
from silva.plan import node as logical
from silva.plan.function import show_step
from silva.plan.node import Node


def show_plan(node: Node) -> str:
    """The plan as a tree.

    A node with one input is printed above it; the inputs of a node with several are indented below
    it.
    """
    return "\n".join(_lines(node))


def _lines(node: Node) -> list[str]:
    lines = [show_node(node)]
    if len(node.inputs) == 1:
        return lines + _lines(node.inputs[0])
    for i, child in enumerate(node.inputs):
        last = i == len(node.inputs) - 1
        first, *rest = _lines(child)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return lines


def show_node(node: Node) -> str:
    """One node without its inputs."""
    details = printable(_details(node))
    return f"{node.verb} {details}" if details else node.verb


def _details(node: Node) -> str:
    match node:
        case logical.Source():
            names = "" if node.columns is None else f" → {', '.join(node.columns) or '(nothing)'}"
            return f"{node.source.describe()}{names}"
        case logical.Derive():
            return f"{', '.join(node.into)} = {show_step(node.step)}"
        case logical.Filter() | logical.MapRows():
            return show_step(node.step)
        case logical.Select():
            return ", ".join(node.names)
        case logical.Rename():
            return ", ".join(f"{old} → {new}" for old, new in node.names)
        case logical.Explode():
            return node.column
        case logical.Shuffle():
            if node.by is not None:
                most = "" if node.most is None else f", max_per_group={node.most}"
                return f"seed={node.seed}, by={node.by}{most}"
            window = f", window={node.window}" if node.kind != "global" else ""
            return f"seed={node.seed}, kind={node.kind or 'auto'}{window}"
        case logical.Sample():
            return f"weights={node.balance or node.weights!r}, seed={node.seed}"
        case logical.Take() | logical.SkipRows():
            return str(node.count)
        case logical.Batch():
            return _batch_details(node)
        case logical.Pack():
            return f"{', '.join(node.columns)} into {node.length}, window={node.window}"
        case logical.Bucket():
            sizes = ", ".join(f"≤{n}→{rows}" for n, rows in node.sizes)
            return f"by {node.by}{_axis(node.axis)}: {sizes}"
        case logical.Cache():
            limit = "" if node.limit is None else f", limit={node.limit:,} bytes"
            return "in memory" if node.folder is None else f"on disk{limit}"
        case logical.Options():
            return ", ".join(f"{k}={v!r}" for k, v in node.values)
        case logical.Mix():
            plans = [f"from {at}: {list(w)}" if at else str(list(w)) for at, w in node.schedule]
            return f"weights={'; '.join(plans)}, seed={node.seed}, stop={node.stop}"
        case logical.Zip():
            return node.stop
        case _:
            return ""


def _axis(axis: int | None) -> str:
    return "" if axis is None else f", axis {axis}"


def _batch_details(node: logical.Batch) -> str:
    parts = [str(node.size)] if node.size is not None else []
    if node.per_rank is not None:
        parts.append(f"per_rank={node.per_rank}")
    if node.tokens is not None:
        parts.append(f"tokens={node.tokens} by {node.by}{_axis(node.axis)}")
    if node.drop_last:
        parts.append("drop_last")
    if node.pad is not None:
        parts.append(f"pad={node.pad!r}")
    if node.collate is not None:
        parts.append(f"collate={show_step(node.collate)}")
    parts += [f"grouped {' with '.join(names)}" for names in node.grouped]
    return ", ".join(parts)
