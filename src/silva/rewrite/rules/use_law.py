"""Uses a law of operators: one rule for each law.

Motive: people write steps in the order that reads best. Most of a photo is turned gray only to be
cropped away; a number is clipped twice because two people wrote a step each.

    derive image = bytes.decode().grayscale(channels=1).center_crop(height=224, width=224)
    source
        →
    derive image = bytes.decode().center_crop(height=224, width=224).grayscale(channels=1)
    source

The law in the example is `crop_before_pixels`.

Must not fire: after `batch`, where columns have other forms; for a close law under
`fidelity="exact"`; ever, for a law that does not hold: it is matched only so that `explain` can
name it.

Law: the law's own equation, tested on both sides in `tests/laws/test_operator_laws.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

from silva.plan import expr
from silva.plan.expr import show_term
from silva.plan.function import Function
from silva.plan.law import Law
from silva.plan.node import Derive, Filter, Node, transform
from silva.plan.schema import is_batched
from silva.rewrite.rule import Rewrite, Rule

_LONGEST = 80
"""Characters of a note beyond which it names operators only."""


@cache
def as_rule(law: Law) -> Rule:
    """The rule that rewrites the left side of `law` wherever it occurs."""
    return Rule(
        law.name,
        lambda plan: apply(law, plan),
        law.equation,
        exact=law.kind == "exact",
        numeric=True,
        refused=f"refused: {law.fails}" if law.kind == "never" else None,
        acts_on=expr.Call,
    )


def apply(law: Law, plan: Node) -> Rewrite:
    """The plan with the right side of the law in place of its left side."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Derive | Filter) or isinstance(node.step, Function):
            return node
        found: list[str] = []
        step = expr.rebuild(node.step, partial(_used, law, found))
        if step is node.step or is_batched(node):
            return node
        notes.extend(found)
        return replace(node, step=step)

    return Rewrite(transform(plan, change), tuple(notes))


def _used(law: Law, notes: list[str], term: expr.Term) -> expr.Term:
    """The right side of the law, if the term is a left side; else the term."""
    if not isinstance(term, expr.Call):
        return term
    made = law.rewrite(term)
    if made is None:
        return term
    notes.append(_note(term, made))
    return made


def _note(left: expr.Call, right: expr.Term) -> str:
    """Both sides as text, with three dots for the term that they are applied to."""
    kept = {id(part) for part in expr.walk(right)}
    base: expr.Term = left
    while isinstance(base, expr.Call) and base.args and id(base) not in kept:
        base = base.args[0]

    def short(part: expr.Term) -> expr.Term:
        return expr.Col("…") if part is base else part

    sides = [expr.rebuild(side, short) for side in (left, right)]
    text = " → ".join(map(show_term, sides))
    if len(text) <= _LONGEST:
        return text
    names = [_names(side) for side in sides]
    return " → ".join(names) if names[0] != names[1] else _changed(left, right)


def _changed(left: expr.Term, right: expr.Term) -> str:
    """The operators whose parameters differ, of two chains of the same operators."""
    found = []
    while isinstance(left, expr.Call) and isinstance(right, expr.Call) and left.args:
        if left.params != right.params:
            pair = (replace(call, args=(expr.Col("…"),)) for call in (left, right))
            found.append(" → ".join(map(show_term, pair)))
        left, right = left.args[0], right.args[0]
    return ", ".join(found)


def _names(term: expr.Term) -> str:
    """A chain of calls without their parameters."""
    if not isinstance(term, expr.Call) or not term.args:
        return show_term(term)
    return f"{_names(term.args[0])}.{term.op.rpartition('.')[2]}()"
