"""Moves filters down a plan, to the lowest place where they keep the same rows."""

from __future__ import annotations

from dataclasses import replace

from silva.plan import expr
from silva.plan.function import Function, Stateful, Step, show_step
from silva.plan.node import Concat, Derive, Explode, Filter, Node, Rename, Select, transform
from silva.plan.schema import step_is_pure, step_is_random, step_reads
from silva.rewrite.rule import Rewrite


def sink_filters(plan: Node, past: type[Node] | None = None) -> Rewrite:
    """The plan with filters before the derivations that they do not depend on. With `past`, those
    filters only that come to pass a node of that kind."""
    notes: list[str] = []

    def change(node: Node) -> Node:
        if not isinstance(node, Filter) or not step_is_pure(node.step):
            return node
        below, left = node.input, []
        for part in _conjuncts(node):
            descent = _Descent(past)
            moved = descent.sunk(part, below)
            if moved is None or not descent.passed:
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


class _Descent:
    """The way of one filter down a plan."""

    def __init__(self, past: type[Node] | None) -> None:
        self._past = past
        self.passed = past is None
        """Whether it has passed a node of the kind that it is to pass."""

    def sunk(self, part: Filter, below: Node) -> Node | None:
        """`below` with the filter somewhere inside it; None where it would stay on top."""
        reads = frozenset(step_reads(part.step))
        match below:
            case Derive() if step_is_pure(below.step) and not reads & frozenset(below.into):
                return replace(below, input=self._put(part, below.input))
            case Select():
                return self._beyond(part, below) or self._joined(part, below)
            case Filter() if step_is_pure(below.step) and is_cheap(part):
                return self._beyond(part, below)
        if self._past is None or not isinstance(below, self._past) or not may_pass(part, below):
            return None
        self.passed = True
        if isinstance(below, Rename):
            part = _before_rename(part, below)
        return below.with_inputs(tuple(self._put(part, child) for child in below.inputs))

    def _put(self, part: Filter, below: Node) -> Node:
        """`below` with the filter inside it, or else on top."""
        return self.sunk(part, below) or replace(part, input=below)

    def _beyond(self, part: Filter, below: Select | Filter) -> Node | None:
        """`below` with the filter under its input: nothing is gained by passing `below` alone."""
        deeper = self.sunk(part, below.input)
        return None if deeper is None else replace(below, input=deeper)

    def _joined(self, part: Filter, below: Select) -> Node | None:
        """`below` with the filter right under it, where it then stands among steps of which some
        could come after it: their order is chosen by what they cost."""
        needed, node = set(step_reads(part.step)), below.input
        while isinstance(node, Derive | Filter) and step_is_pure(node.step):
            if isinstance(node, Filter):
                gains = not is_cheap(node)
            else:
                gains = not needed & set(node.into)
                needed |= set(step_reads(node.step))
            if gains:
                return replace(below, input=replace(part, input=below.input))
            node = node.input
        return None


def may_pass(part: Filter, below: Node) -> bool:
    """Whether a filter keeps the same rows below a rename, a concat or an explode."""
    match below:
        case Rename():
            return True
        case Concat():  # a class would be built for each of the pipelines
            return not is_stateful(part.step)
        case Explode():
            return below.column not in step_reads(part.step) and _is_of_columns(part.step)
    return False


def _conjuncts(node: Filter) -> list[Filter]:
    """The filters that together keep what `node` keeps, in the order written."""
    step = node.step
    if not isinstance(step, expr.Call) or step.op != "and" or step_is_random(step):
        return [node]
    first, second = (
        replace(node, step=arg, id=f"{node.id}.{i}") for i, arg in enumerate(step.args)
    )
    return [*_conjuncts(first), *_conjuncts(second)]


def _before_rename(part: Filter, rename: Rename) -> Filter:
    """The filter of the columns by the names that they have before a rename."""
    step = with_names(part.step, names_before(rename))
    return replace(part, step=step, written=part.written or show_step(part.step))


def names_before(rename: Rename) -> dict[str, str]:
    """The names that columns have before a rename, by those that they have after it."""
    return {new: old for old, new in rename.names}


def with_names(step: Step, names: dict[str, str]) -> Step:
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


def is_cheap(part: Filter) -> bool:
    """Whether a filter is plain arithmetic and comparisons, which cost less than any function."""
    if not isinstance(part.step, expr.Call):
        return False
    calls = [term for term in expr.walk(part.step) if isinstance(term, expr.Call)]
    return all("." not in call.op for call in calls)


def is_stateful(step: Step) -> bool:
    """Whether a step is a class that is built once for each stage that it runs in."""
    return isinstance(step, Function) and isinstance(step.fn, Stateful)


def _is_of_columns(step: Step) -> bool:
    """Whether a step depends on columns alone: not on which row it is, or which part of one."""
    if step_is_random(step):
        return False
    return isinstance(step, Function) or not any(
        isinstance(term, expr.RowId) for term in expr.walk(step)
    )
