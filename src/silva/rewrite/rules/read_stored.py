"""Reads derived columns that a table has stored, instead of computing them.

Motive: a table's derived columns are definitions. Where the values of one are stored, for all rows
or for some, they should be read. The plan as written does not mention it: states and caches are the
same whether a column is stored or not.

    derive clicked = click(dwell)    →    source
    source

The source on the right is the same table, asked for `clicked` as well.

Must not fire: for a column whose fingerprint (the function, and the columns it reads) differs from
the stored one; for one that replaces a column which an earlier step still reads; anywhere but
directly above the table.

A table yields either all columns of a step that writes several, or none: the stored ones are read,
and the others are computed there, if anything reads them.

Law: a stored column has the fingerprint of the step, so it holds what the step would return; the
table computes the rows that were appended since.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from silva.plan.fingerprint import column_fingerprints
from silva.plan.node import Derive, Node, PlannedSource, Select, Source
from silva.plan.schema import columns, step_reads
from silva.rewrite.rule import Rewrite, Rule


@runtime_checkable
class KeepsColumns(Protocol):
    """A source that can store columns which are derived from its own."""

    def fingerprints(self) -> dict[str, str]: ...
    def stored_in(self, fingerprint: str) -> str | None: ...
    def giving(
        self, recipes: tuple[tuple[Any, ...], ...], names: tuple[str, ...]
    ) -> PlannedSource: ...


def apply(plan: Node) -> Rewrite:
    """The plan that reads derived columns where they are stored."""
    notes: list[str] = []
    return Rewrite(_rewritten(plan, notes), tuple(notes))


def _rewritten(node: Node, notes: list[str]) -> Node:
    chain, bottom = _chain(node)
    if chain and isinstance(bottom, Source) and isinstance(bottom.source, KeepsColumns):
        return _over_table(node, chain, bottom, bottom.source, notes)
    inputs = tuple(_rewritten(child, notes) for child in node.inputs)
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return node.with_inputs(inputs)


def _chain(node: Node) -> tuple[list[Derive], Node]:
    """The derivations from `node` down, the lowest first, and the node below them."""
    found: list[Derive] = []
    while isinstance(node, Derive):
        found.append(node)
        node = node.input
    return found[::-1], node


def _over_table(
    node: Node, chain: list[Derive], bottom: Source, source: KeepsColumns, notes: list[str]
) -> Node:
    known: dict[str, str | None] = dict(source.fingerprints())
    recipes: list[tuple[Any, ...]] = []
    given: list[str] = []
    kept: list[Derive] = []
    for derive in chain:
        reads = step_reads(derive.step)
        if any(known.get(n) is None for n in reads):
            known.update(dict.fromkeys(derive.into))
            kept.append(derive)
            continue
        inputs = tuple(fp for n in reads if (fp := known[n]) is not None)
        own = dict(
            zip(derive.into, column_fingerprints(derive.step, inputs, derive.into), strict=True)
        )
        used = {n for d in kept for n in (*step_reads(d.step), *d.into)}
        stored = {name: note for name, fp in own.items() if (note := source.stored_in(fp))}
        gives = bool(stored) and not used & set(own)
        if gives:
            given += own
            notes += [f"{name} ({stored.get(name, 'not stored')})" for name in own]
        else:
            kept.append(derive)
        # a column that the table does not yield has no name there: another may have it by now
        recipes += [
            (name if gives else "", fingerprint, derive.step, reads, inputs, tuple(own.items()))
            for name, fingerprint in own.items()
        ]
        known |= own
    if not given:
        return node
    made: Node = replace(bottom, source=source.giving(tuple(recipes), tuple(given)))
    for derive in kept:
        made = replace(derive, input=made)
    names = columns(node)
    return made if columns(made) == names else Select(made, names)


RULE = Rule("read_stored", apply, "the table has these columns stored", acts_on=KeepsColumns)
