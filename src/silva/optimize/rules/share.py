"""Computes once what several expressions need.

Motive: a filter on the number of words and a column of words both split the text; two crops of one
photo both decode it.

    derive small = bytes.decode().resize(32, 32)         select bytes, large, small
    derive large = bytes.decode().center_crop(224)  →    derive small = shared_1.resize(32, 32)
                                                         derive large = shared_1.center_crop(224)
                                                         derive shared_1 = bytes.decode()

The hidden column is made right before its first use, so that nothing is computed for rows that were
not computed before; a `select` forgets it above the last step.

Must not fire: for anything random (equal random expressions are never one); for plain arithmetic,
which costs less than a column; where a column that is read was written in between; for images that
carry boxes; for `decode(shrink=True)`, which decodes less only if it knows what follows; after
`batch`. Nor where bad rows are substituted.

Law: an expression without random numbers is a function of the columns that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from silva.optimize.rewrite import Rewrite
from silva.optimize.same_value import Versions, looks_ahead, same_value
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.node import Derive, Filter, Node, Select, walk
from silva.plan.operator import operator
from silva.plan.schema import columns
from silva.plan.show_steps import show_term
from silva.plan.verify import is_batched

NAME = "share"

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
    """Derivations and filters that stand upon each other, lowest first, and what is below them."""
    run: list[_Step] = []
    while isinstance(node, Derive | Filter):
        run.append(node)
        node = node.input
    return run[::-1], node


def _shared(run: list[_Step], taken: set[str], notes: list[str]) -> list[_Step]:
    """The steps with hidden columns before them; the largest common expressions first."""
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
    """The largest expression that stands in more than one place, and its key."""
    counts: dict[Any, int] = {}
    terms: dict[Any, expr.Term] = {}
    for step, versions in _versioned(steps):
        if isinstance(step.step, Function):
            continue
        for part in expr.walk(step.step):
            if isinstance(part, expr.Call) and _is_worth(part):
                key = same_value(part, versions)
                counts[key] = counts.get(key, 0) + 1
                terms.setdefault(key, part)
    common = [key for key, count in counts.items() if count > 1]
    if not common:
        return None
    best = max(common, key=lambda key: sum(1 for _ in expr.walk(terms[key])))
    return best, terms[best]


def _versioned(steps: list[_Step]) -> Iterator[tuple[_Step, Versions]]:
    """Each step, with how often the columns that it sees were written."""
    versions: Versions = {}
    for step in steps:
        yield step, dict(versions)
        for name in step.into if isinstance(step, Derive) else ():
            versions[name] = versions.get(name, 0) + 1


def _is_worth(call: expr.Call) -> bool:
    """Costs more than a column, and is one value whoever computes it."""
    if "." not in call.op or looks_ahead(call):
        return False
    calls = [part for part in expr.walk(call) if isinstance(part, expr.Call)]
    return expr.width(call) == 1 and not any(operator(part.op).random for part in calls)
