"""Drops derivations whose columns nothing reads, also below `batch`.

Motive: pipelines are shared and extended; a column that this job does not use should cost nothing.

    select label                      select label
    batch 2                           batch 2
    derive image = decode(bytes)  →   select label
    derive label = f(path)            derive label = f(path)
    source                            source

Columns that nothing reads after `batch` are dropped before it, so they are not read, moved or put
into batches either. A column that is only renamed is not read.

Must not fire: when the step is impure (its side effect is the point); when a later step reads what
it writes (`derive thumb = resize(image)` keeps `image`); when a later step writes the same column
again (the order of the columns would change); or when it is a batched function of fixed chunks
(cursors count them). Before `batch`: for the columns that it counts or groups by; with a `collate`
function or `map_rows` after it, which see every column; or where no column at all would be left.

Law: a pure step whose columns no later node reads does not change any column that is read. Which
rows a batch has depends on their number, and on the columns that it counts by.
"""

from __future__ import annotations

from silva.plan.node import Batch, Bucket, Derive, Node, Rename, Select, walk
from silva.plan.schema import columns, needed_below, needed_by_batch, step_is_pure
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan without derivations whose columns nothing reads."""
    notes: list[str] = []
    without = _visit(plan, frozenset(columns(plan)), frozenset(), notes)
    left = {node.id for node in walk(without) if isinstance(node, Derive)}
    dropped = [n for n in walk(plan) if isinstance(n, Derive) and n.id not in left]
    notes = [*(", ".join(node.into) for node in dropped), *notes]
    return Rewrite(without if notes else plan, tuple(notes))


def _visit(node: Node, wanted: frozenset[str], later: frozenset[str], notes: list[str]) -> Node:
    """The plan from `node` down with only what the `wanted` columns need. Columns in `later` are
    written again by a later step, so they keep their place among the columns."""
    below = needed_below(node, wanted)
    match node:
        case Derive() if not (wanted | later) & set(node.into) and step_is_pure(node.step):
            return _visit(node.input, wanted, later, notes)
        case Derive():
            later = later | set(node.into)
        case Rename():
            return _renamed(node, wanted, later, notes)
        case Batch() | Bucket():
            return _batched(node, wanted | later, notes)
    if below is None:
        inputs = (_visit(c, frozenset(columns(c)), frozenset(), notes) for c in node.inputs)
        return node.with_inputs(tuple(inputs))
    return node.with_inputs((_visit(node.inputs[0], below, later, notes),))


def _renamed(node: Rename, wanted: frozenset[str], later: frozenset[str], notes: list[str]) -> Node:
    """The renaming of those columns only that something reads."""
    old = {new: name for name, new in node.names}
    needed, kept = (frozenset(old.get(n, n) for n in names) for names in (wanted, later))
    made = _visit(node.input, needed, kept, notes)
    pairs = tuple((name, new) for name, new in node.names if name in needed | kept)
    if len(pairs) == len(node.names):
        return node.with_inputs((made,))
    unread = {name for name, _ in node.names} - needed - kept
    rest = tuple(name for name in columns(made) if name not in unread)
    below = made if rest == columns(made) else Select(made, rest)
    return Rename(below, pairs) if pairs else below


def _batched(node: Batch | Bucket, seen: frozenset[str], notes: list[str]) -> Node:
    """The batches of rows that have only the columns in `seen`, and those that `node` reads."""
    names = columns(node.input)
    needed = needed_by_batch(node, seen)
    made = _visit(node.input, needed, frozenset(), notes)
    there = columns(made)
    kept = tuple(name for name in there if name in needed)
    if not kept or kept == there == names:
        return node.with_inputs((made,))
    notes.append(f"{', '.join(name for name in names if name not in needed)} (before {node.verb})")
    return node.with_inputs((Select(made, kept),))


RULE = Rule(
    "drop_unread",
    apply,
    "nothing reads the columns that these steps write",
    acts_on=Derive | Batch | Bucket,
)
