"""Runs of steps: neighbours in a plan that may change places as far as their columns allow.

An explode may stand within a run. Derivations stay on their side of it, since random draws belong
to a row before it, and to a part after it. A filter may come before it where the rule
`filter_before_explode` could move it if it stood right above the explode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from silva.plan.node import (
    Derive,
    Explode,
    Filter,
    Node,
    Options,
    Select,
    Shuffle,
    Source,
    transform,
)
from silva.plan.schema import columns, needed_below, step_is_pure, step_reads
from silva.rewrite.sink_filter import may_pass

StepNode = Derive | Filter
Cached = Callable[[Node], Node]
"""Adds a cache on top of a plan."""


@dataclass(frozen=True)
class StepRun:
    """Pure derivations and filters that follow each other."""

    steps: tuple[Derive | Filter, ...]
    """In the order written; the first runs first."""
    below: Node
    """The node that the first step reads."""
    explodes: tuple[tuple[int, Explode], ...] = ()
    """The explodes between the steps, each after the number of steps below it."""

    @property
    def top(self) -> Node:
        return self.steps[-1]

    @property
    def at_source(self) -> bool:
        """Rows come straight from one source, so they can be cached by their place in it."""
        return isinstance(_through(self.below), Source)

    @property
    def source(self) -> Source | None:
        found = _through(self.below)
        return found if isinstance(found, Source) else None

    def before(self, crosses: bool = True) -> list[int]:
        """For each step, the steps that must come before it, as bits; `crosses`: filters may come
        before an explode."""
        known = [(set(step_reads(node.step)), set(node.writes)) for node in self.steps]
        found = []
        for j in range(len(known)):
            bits = sum(1 << i for i in range(j) if _depends(*known[i], *known[j]))
            for number in self.explodes_before(j, crosses):
                bits |= (1 << self.explodes[number][0]) - 1
            found.append(bits)
        return found

    def explodes_before(self, number: int, crosses: bool) -> list[int]:
        """The numbers of the explodes that must come before a step."""
        step = self.steps[number]
        return [
            i
            for i, (below, explode) in enumerate(self.explodes)
            if below <= number
            and not (crosses and isinstance(step, Filter) and may_pass(step, explode))
        ]

    def arranged(
        self,
        first: Sequence[StepNode | Explode],
        cached: Cached | None,
        then: Sequence[StepNode | Explode],
    ) -> Node:
        """The run with the steps `first`, a cache, and the steps `then`. Columns keep their
        order."""
        node = self.below
        for step in first:
            node = replace(step, input=node)
        if cached is not None:
            node = cached(node)
        for step in then:
            node = replace(step, input=node)
        names = columns(self.top)
        return node if columns(node) == names else Select(node, names)


def _through(node: Node) -> Node:
    """The node below shuffles and options."""
    while isinstance(node, Shuffle | Options):
        node = node.input
    return node


def _depends(reads: set[str], writes: set[str], reads2: set[str], writes2: set[str]) -> bool:
    """Whether two steps, by the columns of each, must stay in this order."""
    return bool(writes & reads2 or reads & writes2 or writes & writes2)


def _movable(node: Node) -> bool:
    return isinstance(node, Derive | Filter) and step_is_pure(node.step)


def step_runs(plan: Node) -> Iterator[StepRun]:
    """The runs of a plan, from the sources up."""
    yield from _step_runs(plan, [])


def _step_runs(node: Node, above: list[StepNode | Explode]) -> Iterator[StepRun]:
    if _movable(node) or (above and isinstance(node, Explode)):
        assert isinstance(node, Derive | Filter | Explode)
        yield from _step_runs(node.input, [node, *above])
        return
    for child in node.inputs:
        yield from _step_runs(child, [])
    if above:
        steps: list[StepNode] = []
        explodes: list[tuple[int, Explode]] = []
        for one in above:
            if isinstance(one, Explode):
                explodes.append((len(steps), one))
            else:
                steps.append(one)
        yield StepRun(tuple(steps), node, tuple(explodes))


def replace_run(plan: Node, run: StepRun, by: Node) -> Node:
    """The plan with another form of one of its runs."""
    return transform(plan, lambda node: by if node is run.top else node)


def wanted_columns(plan: Node, target: Node) -> frozenset[str]:
    """The columns of `target` that something above it in the plan needs."""
    found = _wanted(plan, target, frozenset(columns(plan)))
    return frozenset(columns(target)) if found is None else found & frozenset(columns(target))


def _wanted(node: Node, target: Node, needed: frozenset[str]) -> frozenset[str] | None:
    if node is target:
        return needed
    below = needed_below(node, needed)
    for child in node.inputs:
        names = frozenset(columns(child))
        found = _wanted(child, target, names if below is None else below & names)
        if found is not None:
            return found
    return None
