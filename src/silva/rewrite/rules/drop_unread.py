"""Drops derivations whose columns nothing reads.

Motive: pipelines are shared and extended; a column that this job does not use should cost nothing.

    select label                      select label
    derive image = decode(bytes)  →   derive label = f(path)
    derive label = f(path)            source
    source

Must not fire: when the step is impure (its side effect is the point); when a later step reads what
it writes (`derive thumb = resize(image)` keeps `image`); when a later step writes the same column
again (the order of the columns would change); or when it is a batched function of fixed chunks
(cursors count them).

Law: a pure step whose columns no later node reads does not change any column that is read.
"""

from __future__ import annotations

from silva.plan.node import Derive, Node, Rename, walk
from silva.plan.schema import columns, needed_below, step_is_pure
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan without derivations whose columns nothing reads."""
    without = _visit(plan, frozenset(columns(plan)))
    left = {node.id for node in walk(without) if isinstance(node, Derive)}
    dropped = [n for n in walk(plan) if isinstance(n, Derive) and n.id not in left]
    return Rewrite(without, tuple(", ".join(node.into) for node in dropped))


def _visit(node: Node, wanted: frozenset[str], later: frozenset[str] = frozenset()) -> Node:
    """The plan from `node` down with only what the `wanted` columns need. Columns in `later` are
    written again by a later step, so they keep their place among the columns."""
    below = needed_below(node, wanted)
    match node:
        case Derive() if not (wanted | later) & set(node.into) and step_is_pure(node.step):
            return _visit(node.input, wanted, later)
        case Derive():
            later = later | set(node.into)
        case Rename():
            later = frozenset(columns(node.input))  # names change: keep every column's place
    if below is None:
        return node.with_inputs(tuple(_visit(c, frozenset(columns(c))) for c in node.inputs))
    return node.with_inputs((_visit(node.inputs[0], below, later),))


RULE = Rule(
    "drop_unread", apply, "nothing reads the columns that these steps write", acts_on=Derive
)
