"""The columns that a node needs of its inputs, when only some of its own are wanted."""

from __future__ import annotations

from silva.plan.node import (
    Batch,
    Derive,
    Explode,
    Filter,
    MapRows,
    Node,
    Options,
    Pack,
    Rename,
    Select,
    Shuffle,
    Skip,
    Take,
)
from silva.plan.schema import columns
from silva.plan.traits import step_reads


def needed_below(node: Node, wanted: frozenset[str]) -> frozenset[str] | None:
    """The columns that a node needs of its one input; None for a node that needs all columns."""
    match node:
        case Derive():
            return (wanted - set(node.into)) | set(step_reads(node.step))
        case Filter():
            return wanted | set(step_reads(node.step))
        case Select():
            return frozenset(node.names)
        case Rename():
            old = {new: o for o, new in node.names}
            return frozenset(old.get(n, n) for n in wanted)
        case Shuffle() | Take() | Skip() | Options():
            return wanted
        case Explode():
            return wanted | {node.column}
        case Pack():
            return frozenset(node.columns)
        case MapRows() | Batch():
            return frozenset(columns(node.inputs[0]))
    return None
