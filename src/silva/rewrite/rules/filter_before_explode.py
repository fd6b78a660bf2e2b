"""Moves filters before an explode that does not make the columns that they read.

Motive: a document is cut into chunks, and then the chunks of documents in another language are
dropped. Of a document that is dropped, no chunk need be made.

    filter label >= 0                            explode path
    explode path                                 derive path = split(bytes)
    derive path = split(bytes)              →    filter label >= 0
    source                                       source

On its way the filter passes what `filter_early` lets it pass.

Must not fire: for a filter that reads the exploded column, the identity of rows, or random numbers:
parts of one row have different ones. A function that turns out to draw from a global generator runs
after the explode again (`physical.stage.stage`), and so does one that fails on a row without parts.
Nor where rows may be cached between epochs, bad rows are substituted, or `filter_early` must not
fire.

Law: all parts of a row have the same values in the other columns, so a predicate of these keeps all
or none of them; and a row without parts yields none either way.
"""

from __future__ import annotations

from functools import partial

from silva.plan.node import Explode
from silva.rewrite.rule import Rule
from silva.rewrite.sink_filter import sink_filters

apply = partial(sink_filters, past=Explode)
RULE = Rule(
    "filter_before_explode",
    apply,
    "a row that is dropped need not be taken apart",
    merges=True,
    reorders=True,
    acts_on=Explode,
)
