"""Moves filters before the steps that they do not depend on.

Motive: a pipeline reads best with its filters where the thought occurs, often last. A row that is
dropped in the end should not be decoded first.

    filter label >= 0                        derive image = decode(bytes)
    derive image = decode(bytes)        →    filter label >= 0
    source                                   source

A conjunction is split (`a & b` keeps a row when both do), so that each part moves as far as it can.
A filter of plain arithmetic also overtakes other filters on its way.

Must not fire: past a step that writes a column that the filter reads; past an impure step, or a
batched function of fixed chunks (it must see the same chunks); past a shuffle, batch, cache,
explode, take or source; for a filter that is itself impure; or where failures are counted (`Skip`,
`Substitute`): a row that is dropped early cannot fail, so other rows would be counted.

Law: a pure step that turns one row into one row commutes with a predicate of columns it does not
write. Random numbers belong to rows and steps, so they stay the same.
"""

from __future__ import annotations

from dataclasses import replace

from silva.plan import expr
from silva.plan.function import show_step
from silva.plan.node import Derive, Filter, Node, Select, transform
from silva.plan.schema import step_is_pure, step_is_random, step_reads
from silva.rewrite.rule import Rewrite, Rule


def apply(plan: Node) -> Rewrite:
    """The plan with filters as early as their columns allow."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Filter) or not step_is_pure(node.step):
            return node
        below, left = node.input, []
        for part in _conjuncts(node):
            moved = _sunk(part, below)
            if moved is None:
                left.append(part)
            else:
                below = moved
                notes.append(show_step(part.step))
        if below is node.input:
            return node
        for part in left:
            below = replace(part, input=below)
        return below

    return Rewrite(transform(plan, change), tuple(notes))


def _conjuncts(node: Filter) -> list[Filter]:
    """The filters that together keep what `node` keeps, in the order written."""
    step = node.step
    if not isinstance(step, expr.Call) or step.op != "and" or step_is_random(step):
        return [node]
    first, second = (
        replace(node, step=arg, id=f"{node.id}.{i}") for i, arg in enumerate(step.args)
    )
    return [*_conjuncts(first), *_conjuncts(second)]


def _sunk(part: Filter, below: Node) -> Node | None:
    """`below` with the filter somewhere inside it; None where it would stay on top."""
    reads = frozenset(step_reads(part.step))
    match below:
        case Derive() if step_is_pure(below.step) and not reads & frozenset(below.into):
            deeper = _sunk(part, below.input)
            return replace(below, input=deeper or replace(part, input=below.input))
        case Select():
            deeper = _sunk(part, below.input)
            return None if deeper is None else replace(below, input=deeper)
        case Filter() if step_is_pure(below.step) and _is_cheap(part):
            deeper = _sunk(part, below.input)
            return None if deeper is None else replace(below, input=deeper)
    return None


def _is_cheap(part: Filter) -> bool:
    """Whether a filter is plain arithmetic and comparisons, which cost less than any function."""
    if not isinstance(part.step, expr.Call):
        return False
    calls = [term for term in expr.walk(part.step) if isinstance(term, expr.Call)]
    return all("." not in call.op for call in calls)


RULE = Rule(
    "filter_early", apply, "rows that are dropped should cost little", reorders=True, acts_on=Filter
)
