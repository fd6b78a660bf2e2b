"""Moves filters before the steps that they do not depend on.

Motive: a pipeline reads best with its filters where the thought occurs, often last. A row that is
dropped in the end should not be decoded first.

    filter label >= 0                        derive image = decode(bytes)
    derive image = decode(bytes)        →    filter label >= 0
    source                                   source

A conjunction is split (`a & b` keeps a row when both do), so that each part moves as far as it can.
A filter of plain arithmetic also overtakes other filters on its way. Past a `rename` it reads the
columns by the names that they had; past a `concat` it goes into each of the pipelines.

Must not fire: past a step that writes a column that the filter reads; past an impure step, or a
batched function of fixed chunks (it must see the same chunks); past a shuffle, batch, cache, mix,
zip, explode (see `filter_before_explode`), take or source; for a filter that is itself impure; into
a concat for a `@stateful` class, which would be built for each of the pipelines, or below an
explode, whose cursors name the row before the one that is taken apart; or where failures are
counted (`Skip`, `Substitute`): a row that is dropped early cannot fail, so other rows would be
counted.

Law: a pure step that turns one row into one row commutes with a predicate of columns it does not
write; a concatenation keeps of each pipeline what that pipeline keeps by itself. Random numbers
belong to rows and steps, so they stay the same.
"""

from __future__ import annotations

from functools import partial

from silva.plan.node import Filter
from silva.rewrite.rule import Rule
from silva.rewrite.sink_filter import sink_filters

apply = partial(sink_filters, explodes=False)
RULE = Rule(
    "filter_early", apply, "rows that are dropped should cost little", reorders=True, acts_on=Filter
)
