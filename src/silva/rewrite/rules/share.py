"""Computes a common subexpression once.

Motive: a filter on the number of words and a column of words both split the text; two versions of
one photo both decode it.

    derive small = bytes.decode().to_float()             select bytes, large, small
    derive large = bytes.decode().to_chw()          →    derive small = shared_1.to_float()
    source                                               derive large = shared_1.to_chw()
                                                         derive shared_1 = bytes.decode()
                                                         source

The hidden column is computed right before its first use, so that no row is computed that was not
computed before; a `select` drops it above the last step.

Must not fire: for random expressions (two of them are never the same value); for plain arithmetic,
which costs less than a column; where a column that is read was written in between; for images that
carry boxes; for `decode(shrink=True)`, which decodes less only if it knows what follows; after
`batch`; or where bad rows are substituted.

Law: an expression without random numbers is a function of the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from silva.plan import expr
from silva.plan.expr import show_term
from silva.plan.function import Function
from silva.plan.node import Derive, Filter, Node, Select, walk
from silva.plan.operator import operator
from silva.plan.schema import columns, is_batched
from silva.rewrite.rule import Rewrite, Rule
from silva.rewrite.same_value import Versions, looks_ahead, same_value

_Step = Derive | Filter


def apply(plan: Node) -> Rewrite:
    """The plan with common expressions in columns of their own."""
    taken = {name for node in walk(plan) for name in columns(node)}
    notes: list[str] = []

    def visit(node: Node) -> Node:
        run, below = _run(node)
        inputs = tuple(visit(child) for child in below.inputs)
        if any(new is not old for new, old in zip(inputs, below.inputs, strict=True)):
            below = below.with_inputs(inputs)
        steps = run if is_batched(below) else _shared(run, taken, notes)
        top = below
        for step in steps:
            top = replace(step, input=top)
        return Select(top, columns(node)) if len(steps) > len(run) else top

    return Rewrite(visit(plan), tuple(notes))


def _run(node: Node) -> tuple[list[_Step], Node]:
    """Neighbouring derivations and filters, the lowest first, and the node below them."""
    run: list[_Step] = []
    while isinstance(node, Derive | Filter):
        run.append(node)
        node = node.input
    return run[::-1], node


def _shared(run: list[_Step], taken: set[str], notes: list[str]) -> list[_Step]:
    """The steps with hidden columns for common expressions, the largest first."""
    steps = run
    while (found := _largest(steps)) is not None:
        key, term = found
        name = next(n for i in range(1, 1 << 30) if (n := f"shared_{i}") not in taken)
        taken.add(name)
        notes.append(f"{name} = {show_term(term)}")
        steps = list(_with_column(steps, key, Derive(run[0].input, term, (name,), name)))
    return steps


def _with_column(steps: list[_Step], key: Any, hidden: Derive) -> Iterator[_Step]:
    made = False
    for step, versions in _versioned(steps):
        if isinstance(step.step, Function):
            yield step
            continue

        def use(part: expr.Term, versions: Versions = versions) -> expr.Term:
            same = isinstance(part, expr.Call) and same_value(part, versions) == key
            return expr.Col(hidden.into[0]) if same else part

        changed = expr.rebuild(step.step, use)
        if changed is not step.step and not made:
            made = True
            yield hidden
        yield step if changed is step.step else replace(step, step=changed)


def _largest(steps: list[_Step]) -> tuple[Any, expr.Term] | None:
    """The largest expression that occurs more than once, and its key."""
    counts: dict[Any, int] = {}
    terms: dict[Any, expr.Term] = {}
    for step, versions in _versioned(steps):
        if isinstance(step.step, Function):
            continue
        for part in expr.walk_always(step.step):
            if isinstance(part, expr.Call) and _is_worth_sharing(part):
                key = same_value(part, versions)
                counts[key] = counts.get(key, 0) + 1
                terms.setdefault(key, part)
    common = [key for key, count in counts.items() if count > 1]
    if not common:
        return None
    best = max(common, key=lambda key: sum(1 for _ in expr.walk(terms[key])))
    return best, terms[best]


def _versioned(steps: list[_Step]) -> Iterator[tuple[_Step, Versions]]:
    """Each step, with the number of times that each column was written before it."""
    versions: Versions = {}
    for step in steps:
        yield step, dict(versions)
        for name in step.into if isinstance(step, Derive) else ():
            versions[name] = versions.get(name, 0) + 1


def _is_worth_sharing(call: expr.Call) -> bool:
    """Whether a call costs more than a column, and has the same value wherever it is computed."""
    if "." not in call.op or looks_ahead(call):
        return False
    calls = [part for part in expr.walk(call) if isinstance(part, expr.Call)]
    return expr.width(call) == 1 and not any(operator(part.op).random for part in calls)


RULE = Rule(
    "share", apply, "what several steps need is computed once", merges=True, acts_on=expr.Call
)
