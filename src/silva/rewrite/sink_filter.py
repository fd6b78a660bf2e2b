"""Moves a filter down a plan, to the lowest place where it keeps the same rows."""

from __future__ import annotations

from dataclasses import replace

from silva.plan import expr
from silva.plan.function import Function, Stateful, Step, show_step
from silva.plan.node import Concat, Derive, Explode, Filter, Node, Rename, Select, transform, walk
from silva.plan.schema import step_is_pure, step_is_random, step_reads
from silva.rewrite.rule import Rewrite


def sink_filters(plan: Node, *, explodes: bool) -> Rewrite:
    """The plan with filters as early as their columns allow; `explodes`: also before explodes."""
    notes: list[str] = []
    concats = not any(isinstance(node, Explode) and _has_concat(node) for node in walk(plan))
    into = frozenset([Explode] if explodes else []) | frozenset([Concat] if concats else [])

    def change(node: Node) -> Node:
        if not isinstance(node, Filter) or not step_is_pure(node.step):
            return node
        below, left = node.input, []
        for part in _conjuncts(node):
            moved = _sunk(part, below, into)
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


def _has_concat(node: Node) -> bool:
    return any(isinstance(below, Concat) for below in walk(node))


def _conjuncts(node: Filter) -> list[Filter]:
    """The filters that together keep what `node` keeps, in the order written."""
    step = node.step
    if not isinstance(step, expr.Call) or step.op != "and" or step_is_random(step):
        return [node]
    first, second = (
        replace(node, step=arg, id=f"{node.id}.{i}") for i, arg in enumerate(step.args)
    )
    return [*_conjuncts(first), *_conjuncts(second)]


def _sunk(part: Filter, below: Node, past: frozenset[type]) -> Node | None:
    """`below` with the filter somewhere inside it; None where it would stay on top. `past` says
    whether it may pass concats and explodes."""
    reads = frozenset(step_reads(part.step))
    match below:
        case Derive() if step_is_pure(below.step) and not reads & frozenset(below.into):
            return replace(below, input=_put(part, below.input, past))
        case Select():
            return _passed(part, below, past)
        case Filter() if step_is_pure(below.step) and _is_cheap(part):
            return _passed(part, below, past)
        case Rename():
            old = {new: name for name, new in below.names}
            before = replace(part, step=_with_names(part.step, old))
            return replace(below, input=_put(before, below.input, past))
        case Concat() if Concat in past and not _is_stateful(part.step):
            return replace(below, many=tuple(_put(part, n, past) for n in below.many))
        case Explode() if (
            Explode in past and below.column not in reads and _is_of_columns(part.step)
        ):
            return replace(below, input=_put(part, below.input, past))
    return None


def _put(part: Filter, below: Node, past: frozenset[type]) -> Node:
    """`below` with the filter inside it, or else on top."""
    return _sunk(part, below, past) or replace(part, input=below)


def _passed(part: Filter, below: Select | Filter, past: frozenset[type]) -> Node | None:
    """`below` with the filter under its input: nothing is gained by passing `below` alone."""
    deeper = _sunk(part, below.input, past)
    return None if deeper is None else replace(below, input=deeper)


def _with_names(step: Step, names: dict[str, str]) -> Step:
    """The step, reading columns by other names."""
    if not isinstance(step, Function):

        def renamed(term: expr.Term) -> expr.Term:
            if not isinstance(term, expr.Col):
                return term
            return expr.Col(names.get(term.name, term.name))

        return expr.rebuild(step, renamed)
    owns = frozenset(names.get(name, name) for name in step.marks.owns)
    reads = tuple(names.get(name, name) for name in step.reads)
    return replace(step, reads=reads, marks=replace(step.marks, owns=owns))


def _is_cheap(part: Filter) -> bool:
    """Whether a filter is plain arithmetic and comparisons, which cost less than any function."""
    if not isinstance(part.step, expr.Call):
        return False
    calls = [term for term in expr.walk(part.step) if isinstance(term, expr.Call)]
    return all("." not in call.op for call in calls)


def _is_stateful(step: Step) -> bool:
    return isinstance(step, Function) and isinstance(step.fn, Stateful)


def _is_of_columns(step: Step) -> bool:
    """Whether a step depends on columns alone: not on which row it is, or which part of one."""
    if step_is_random(step):
        return False
    return isinstance(step, Function) or not any(
        isinstance(term, expr.RowId) for term in expr.walk(step)
    )
