"""Merges two expressions, where only the second reads the column of the first.

Motive: a chain of operators takes a row through all of them while it is in the CPU's cache, and
laws of operators hold within an expression. Written as two steps, neither reaches across.

    select image                                 select image
    derive image = raw.to_float()           →    derive image = bytes.decode().to_float()
    derive raw = bytes.decode()                  source
    source

Derivations in between are skipped, if they neither read nor write the columns involved.

Must not fire: for functions; where another step reads the column, or it is part of the result;
where the second expression reads it twice (it would be computed twice); where the first writes
several columns; where either comes after `batch`; for a constant (an array of one number is
promoted, a number is not); for `decode(shrink=True)`, which decodes less only if it knows what
follows; or where bad rows are substituted: the substitute of the first result flows into the
second.

Law: a pure expression may be computed later, as long as the columns it reads are unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from silva.plan import expr
from silva.plan.function import Function, show_step
from silva.plan.node import Derive, Node, Rename, Select
from silva.plan.schema import columns, is_batched, needed_below, step_is_pure, step_reads
from silva.rewrite.rule import Rewrite, Rule
from silva.rewrite.same_value import looks_ahead


def apply(plan: Node) -> Rewrite:
    """The plan with neighbouring expressions merged."""
    notes: list[str] = []
    return Rewrite(_visit(plan, frozenset(columns(plan)), frozenset(), notes), tuple(notes))


def _visit(node: Node, wanted: frozenset[str], later: frozenset[str], notes: list[str]) -> Node:
    """The plan from `node` down, merged. Columns in `later` are written again by a later step, so
    they keep their place among the columns."""
    while isinstance(node, Derive) and (merged := _merged(node, wanted, later)) is not None:
        node = merged
        notes.append(f"{', '.join(merged.into)} = {show_step(merged.step)}")
    below = needed_below(node, wanted)
    match node:
        case Derive():
            later = later | set(node.into)
        case Rename():
            below = frozenset(columns(node.input))  # all must be there to be renamed
        case Select():
            later = frozenset()  # gives the columns a new order
    if below is None:
        all_of = [frozenset(columns(child)) for child in node.inputs]
        inputs = tuple(
            _visit(child, names, frozenset(), notes)
            for child, names in zip(node.inputs, all_of, strict=True)
        )
    else:
        inputs = (_visit(node.inputs[0], below, later, notes),)
    same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)


def _merged(node: Derive, wanted: frozenset[str], later: frozenset[str]) -> Derive | None:
    """The derivation with one that only it reads merged into it; None where there is none."""
    if isinstance(node.step, Function) or is_batched(node.input):
        return None
    seen = wanted | later
    for name in expr.columns_read(node.step):
        uses = [part for part in expr.walk(node.step) if part == expr.Col(name)]
        if len(uses) > 1 or (name in wanted and name not in node.into):
            continue
        if uses[0] not in expr.walk_always(node.step):  # it would run on other rows
            continue
        found = _extract(node.input, name, frozenset())
        if found is None:
            continue
        below, first = found
        step = expr.rebuild(node.step, partial(_substitute, name, first))
        merged = replace(node, step=step, input=below)
        before, after = ([n for n in columns(x) if n in seen] for x in (node, merged))
        if before == after:
            return merged
    return None


def _substitute(name: str, first: expr.Term, part: expr.Term) -> expr.Term:
    return first if part == expr.Col(name) else part


def _extract(node: Node, name: str, passed: frozenset[str]) -> tuple[Node, expr.Term] | None:
    """The plan without the step that writes the column, and that step, if it may be computed after
    the steps above it, which write the columns `passed`."""
    if not isinstance(node, Derive):
        return None
    if name in node.into:
        step = node.step
        if isinstance(step, Function) or not _may_move(step) or len(node.into) > 1:
            return None
        return None if passed & set(step_reads(step)) else (node.input, step)
    if not step_is_pure(node.step) or name in step_reads(node.step):
        return None
    found = _extract(node.input, name, passed | set(node.into))
    return None if found is None else (replace(node, input=found[0]), found[1])


def _may_move(step: expr.Term) -> bool:
    if isinstance(step, expr.Literal):
        return False
    return not (isinstance(step, expr.Call) and looks_ahead(step))


RULE = Rule(
    "merge_derives",
    apply,
    "a row stays in the CPU's cache, and laws apply across steps",
    merges=True,
    acts_on=expr.Col | expr.Call,
)
