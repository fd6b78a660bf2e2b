"""Moves filters before a rename, by the names that their columns have there.

Motive: a library renames the columns of a table to the names that its users know, and they filter
last. A filter that stops at the rename does not reach the steps before it, or the file.

    filter tag >= 0
    rename label → tag
    derive image = decode(bytes)
    source
        →
    rename label → tag
    derive image = decode(bytes)
    filter label >= 0
    source

On its way the filter passes what `filter_early` lets it pass. A derivation that it reads goes with
it where there are steps of some cost below: then the order of all of them is chosen by what they
cost. Errors name both as they were written.

Must not fire: with a derivation that writes a column of a name that the rename takes or gives; or
where `filter_early` must not fire.

Law: a rename changes no value, so a step of the same columns gives the same result.
"""

from __future__ import annotations

from functools import partial

from silva.plan.node import Rename
from silva.rewrite.rule import Rule
from silva.rewrite.sink_derived import sink_all

apply = partial(sink_all, past=Rename)
RULE = Rule(
    "filter_before_rename",
    apply,
    "a filter need not wait for the names of its columns",
    reorders=True,
    acts_on=Rename,
)
