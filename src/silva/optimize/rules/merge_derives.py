"""Makes one expression of two, where the second is the only one that reads what the first makes.

Motive: a chain of operators takes a row through all steps while it is in the CPU's cache, and laws
of operators hold within an expression. Written as two steps, neither reaches across.

    select image                                 select image
    derive image = raw.random_crop(224)     →    derive image = bytes.decode().random_crop(224)
    derive raw = bytes.decode()

Derivations in between are stepped over, if they have nothing to do with the first one.

Must not fire: for functions; where anybody else reads the column, also as a result; where the
second reads it twice (it would be computed twice); where the first makes several columns; where
either is after `batch`; for a constant (an array of one number is promoted, a number is not); for
`decode(shrink=True)`, which decodes less only if it knows what follows. Nor where bad rows are
substituted: what is put in place of the first result flows into the second.

Law: a pure expression may be computed later, as long as what it reads is still there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from silva.optimize.liveness import needed_below
from silva.optimize.rewrite import Rewrite
from silva.optimize.same_value import looks_ahead
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.node import Derive, Node, Rename, Select
from silva.plan.schema import columns
from silva.plan.show_steps import show_step
from silva.plan.traits import step_reads, traits
from silva.plan.verify import is_batched

NAME = "merge_derives"


def apply(plan: Node) -> Rewrite:
    """The plan with neighbouring expressions as one."""
    notes: list[str] = []
    return Rewrite(_visit(plan, frozenset(columns(plan)), frozenset(), notes), tuple(notes))


def _visit(node: Node, wanted: frozenset[str], later: frozenset[str], notes: list[str]) -> Node:
    """`later` are columns that a later step writes again: their place among the columns stays."""
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
    """The derivation with one that only it reads inside it; None where there is none."""
    if isinstance(node.step, Function) or is_batched(node.input):
        return None
    seen = wanted | later
    for name in expr.columns_read(node.step):
        uses = [part for part in expr.walk(node.step) if part == expr.Col(name)]
        if len(uses) > 1 or (name in wanted and name not in node.into):
            continue
        found = _taken_out(node.input, name, frozenset())
        if found is None:
            continue
        below, first = found
        step = expr.rebuild(node.step, partial(_with, name, first))
        merged = replace(node, step=step, input=below)
        before, after = ([n for n in columns(x) if n in seen] for x in (node, merged))
        if before == after:
            return merged
    return None


def _with(name: str, first: expr.Term, part: expr.Term) -> expr.Term:
    return first if part == expr.Col(name) else part


def _taken_out(node: Node, name: str, passed: frozenset[str]) -> tuple[Node, expr.Term] | None:
    """The plan without the step that makes the column, and that step, if it may be computed after
    all that stands above it, which writes the columns `passed`."""
    if not isinstance(node, Derive):
        return None
    if name in node.into:
        step = node.step
        if isinstance(step, Function) or not _may_move(step) or len(node.into) > 1:
            return None
        return None if passed & set(step_reads(step)) else (node.input, step)
    if not traits(node).pure or name in step_reads(node.step):
        return None
    found = _taken_out(node.input, name, passed | set(node.into))
    return None if found is None else (replace(node, input=found[0]), found[1])


def _may_move(step: expr.Term) -> bool:
    if isinstance(step, expr.Literal):
        return False
    return not (isinstance(step, expr.Call) and looks_ahead(step))
