"""Moves filters before the steps that they do not depend on.

Motive: a pipeline reads best with its filters where the thought occurs, often last. A row that is
dropped in the end should not be decoded first.

    filter label >= 0                        derive image = decode(bytes)
    derive image = decode(bytes)        →    filter label >= 0
    source                                   source

A conjunction is split (`a & b` keeps a row when both do), so that each part moves as far as it can.
A filter of plain arithmetic also overtakes other filters on its way.

Must not fire: past a step that writes a column that the filter reads; past an impure step, or a
batched function of fixed chunks (it must see the same chunks); past a shuffle, batch, cache, mix,
zip, take or source (`filter_before_rename`, `filter_into_concat` and `filter_before_explode` move
filters past these); for a filter that is itself impure; or where failures are counted (`Skip`,
`Substitute`): a row that is dropped early cannot fail, so other rows would be counted.

Law: a pure step that turns one row into one row commutes with a predicate of columns it does not
write. Random numbers belong to rows and steps, so they stay the same.
"""

from __future__ import annotations

from silva.plan.node import Filter
from silva.rewrite.rule import Rule
from silva.rewrite.sink_filter import sink_filters as apply

RULE = Rule(
    "filter_early", apply, "rows that are dropped should cost little", reorders=True, acts_on=Filter
)
