"""Moves a shuffle down to its source, past steps that turn one row into one or none.

Motive: over files, arrays and tables a shuffle costs nothing: it is an order in which rows are
read. Once it stands at the source, the steps around it are neighbours: filters can move, and steps
be merged, cached and reordered, as if the shuffle had been written first.

    derive image = decode(bytes)             derive image = decode(bytes)
    shuffle seed=0, kind=global         →    filter label >= 0
    filter label >= 0                        shuffle seed=0, kind=global
    source                                   source

Must not fire: past an impure step, a batched function of fixed chunks (it must see the same
chunks), an explode, take, skip or cache, or past another shuffle; nor where no source comes below.

Law: windows and permutations are defined on the rows of the source, not on what filters leave, so a
shuffle commutes with pure steps of one row to one or none. Random numbers belong to rows and steps.
"""

from __future__ import annotations

from dataclasses import replace

from silva.plan.node import (
    Derive,
    Filter,
    Node,
    Options,
    Rename,
    Select,
    Shuffle,
    Source,
    transform,
)
from silva.plan.schema import step_is_pure
from silva.plan.show import show_node
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan with shuffles at their sources."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Shuffle):
            return node
        moved = _sunk(node, node.input)
        if moved is None:
            return node
        notes.append(show_node(node))
        return moved

    return Rewrite(transform(plan, change), tuple(notes))


def _sunk(shuffle: Shuffle, below: Node) -> Node | None:
    """`below` with the shuffle at its source; None where it is there already, or cannot move."""
    match below:
        case Derive() | Filter() if step_is_pure(below.step):
            pass
        case Select() | Rename() | Options():
            pass
        case _:
            return None
    if isinstance(_through(below.input), Source):
        return replace(below, input=replace(shuffle, input=below.input))
    deeper = _sunk(shuffle, below.input)
    return None if deeper is None else replace(below, input=deeper)


def _through(node: Node) -> Node:
    """The node below options."""
    return _through(node.input) if isinstance(node, Options) else node


RULE = Rule(
    "shuffle_early",
    apply,
    "a shuffle costs nothing at the source, and steps around it can be planned together",
    acts_on=Shuffle,
)
