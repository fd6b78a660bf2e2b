"""The columns that a node yields: their names, and their types where these are known."""

from __future__ import annotations

import numpy as np

from silva.plan import expr
from silva.plan.node import (
    Concat,
    Derive,
    Explode,
    MapRows,
    Mix,
    Node,
    Pack,
    Rename,
    Select,
    Source,
    Zip,
)
from silva.plan.right_side import columns_taken, right_side

SEGMENTS = "segment_ids"
POSITIONS = "positions"
"""The columns that `pack` adds."""
MOST_POSITIONS = 1 << 31
"""The largest number of items of a packed row: positions are int32."""
MASK = "mask"
"""The column that `loader(eval=True)` adds to batches: False for padding."""

_COMPARISONS = {
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "and", "or", "xor", "not", "is_null", "is_in",
}  # fmt: skip


def columns(node: Node) -> tuple[str, ...]:
    """The names of the columns that `node` yields, in order."""
    match node:
        case Source():
            return node.columns if node.columns is not None else tuple(node.source.columns())
        case Derive():
            before = columns(node.input)
            return (*before, *(n for n in node.into if n not in before))
        case MapRows():
            return node.into
        case Select():
            return node.names
        case Rename():
            new = dict(node.names)
            return tuple(new.get(n, n) for n in columns(node.input))
        case Pack():
            return (*node.columns, SEGMENTS, POSITIONS)
        case Zip():
            return tuple(name for child in node.many for name in columns(child))
        case Concat() | Mix():
            return columns(node.many[0])
        case _:
            return columns(node.inputs[0])


def types(node: Node) -> dict[str, str | None]:
    """A short type for each column; None where only running the step would show it."""
    match node:
        case Source():
            known = node.source.types()
            return {name: known.get(name) for name in columns(node)}
        case Derive():
            found = types(node.input)
            made: dict[str, str | None] = dict.fromkeys(node.into)
            if isinstance(node.step, expr.Call) and node.step.op == "join.take":
                made = _joined_types(node.step, node.into)
            elif isinstance(node.step, expr.Col | expr.Literal | expr.Call | expr.RowId):
                made[node.into[0]] = _term_type(node.step, found)
            return {**found, **made}
        case MapRows():
            return dict.fromkeys(node.into)
        case Select():
            found = types(node.input)
            return {name: found[name] for name in node.names}
        case Rename():
            new = dict(node.names)
            return {new.get(n, n): t for n, t in types(node.input).items()}
        case Explode():
            found = types(node.input)
            kind = found[node.column]
            inner = kind[5:-1] if kind and kind.startswith("list<") else None
            return {**found, node.column: inner}
        case Pack():
            found = types(node.input)
            return {n: found.get(n) for n in node.columns} | {SEGMENTS: "int32", POSITIONS: "int32"}
        case Zip():
            return {n: t for child in node.many for n, t in types(child).items()}
        case _:
            return types(node.inputs[0])


def _joined_types(call: expr.Call, into: tuple[str, ...]) -> dict[str, str | None]:
    side = right_side(call)
    assert side is not None
    known = types(side.plan)
    return {new: known.get(name) for new, name in zip(into, columns_taken(call), strict=True)}


def _term_type(term: expr.Term, known: dict[str, str | None]) -> str | None:
    match term:
        case expr.Col():
            return known.get(term.name)
        case expr.Literal():
            return type(term.value).__name__
        case expr.RowId():
            return "uint64"
        case expr.Call() if term.op in _COMPARISONS:
            return "bool"
        case expr.Call() if term.op == "cast":
            return str(np.dtype(dict(term.params)["dtype"]).name)
        case _:
            return None
