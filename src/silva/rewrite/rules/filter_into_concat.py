"""Moves filters into the pipelines of a concat, with the derivations that they read.

Motive: several sets of files are read, decoded and concatenated, and then filtered. Within each
pipeline the filter can go further: before what it does not read, and into the file.

    filter label >= 0                            concat
    concat                                       ├─ derive image = decode(bytes)
    ├─ derive image = decode(bytes)              │  filter label >= 0
    │  source                               →    │  source
    └─ derive image = decode(bytes)              └─ derive image = decode(bytes)
       source                                       filter label >= 0
                                                    source

A derivation that the filter reads goes with it where the pipelines have steps of some cost: then
the order of all of them is chosen by what they cost.

Must not fire: for a `@stateful` class, which would be built for each of the pipelines; below an
explode, whose cursors name the row before the one that is taken apart, so that a state would show
where the filter stands; or where `filter_early` must not fire.

Law: a concatenation has of each pipeline the rows that this pipeline has by itself, so a step of
one row commutes with it. Random numbers belong to rows and steps, so they stay the same.
"""

from __future__ import annotations

from silva.plan.node import Concat, Explode, Node, walk
from silva.rewrite.rule import Rewrite, Rule
from silva.rewrite.sink_derived import sink_all


def apply(plan: Node) -> Rewrite:
    """The plan with filters in the pipelines of its concats."""
    if any(isinstance(node, Explode) and _has_concat(node) for node in walk(plan)):
        return Rewrite(plan)
    return sink_all(plan, Concat)


def _has_concat(node: Node) -> bool:
    return any(isinstance(below, Concat) for below in walk(node))


RULE = Rule(
    "filter_into_concat",
    apply,
    "a filter can go further within each of the pipelines",
    reorders=True,
    acts_on=Concat,
)
