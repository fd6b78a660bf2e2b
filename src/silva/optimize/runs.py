"""Runs: neighbouring steps of a plan that may change places as far as their columns allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from silva.optimize.liveness import needed_below
from silva.plan.node import Derive, Filter, Node, Options, Select, Shuffle, Source, transform
from silva.plan.schema import columns
from silva.plan.traits import Traits, traits

Step = Derive | Filter
Cached = Callable[[Node], Node]
"""Puts a cache upon a plan."""


@dataclass(frozen=True)
class Run:
    """Pure derivations and filters, one above the other."""

    steps: tuple[Derive | Filter, ...]
    """As written: the first is done first."""
    below: Node
    """What the first step reads."""

    @property
    def top(self) -> Node:
        return self.steps[-1]

    @property
    def at_source(self) -> bool:
        """Rows come from one source, each as it is there: they can be kept by their place in it."""
        return isinstance(_through(self.below), Source)

    @property
    def source(self) -> Source | None:
        found = _through(self.below)
        return found if isinstance(found, Source) else None

    def before(self) -> list[int]:
        """For each step the steps that must come before it, as bits."""
        known = [traits(step) for step in self.steps]
        return [
            sum(1 << i for i in range(j) if _depends(known[i], known[j])) for j in range(len(known))
        ]

    def arranged(self, first: Sequence[Step], cached: Cached | None, then: Sequence[Step]) -> Node:
        """The run with other steps, or in another order; `cached` comes in between. Columns keep
        their places."""
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
    """What is below shuffles and options."""
    while isinstance(node, Shuffle | Options):
        node = node.input
    return node


def _depends(first: Traits, second: Traits) -> bool:
    """Whether two steps must stay in this order."""
    return bool(
        first.writes & second.reads or first.reads & second.writes or first.writes & second.writes
    )


def _movable(node: Node) -> bool:
    return isinstance(node, Derive | Filter) and traits(node).pure


def runs(plan: Node) -> Iterator[Run]:
    """The runs of a plan, from the sources up."""
    yield from _runs(plan, [])


def _runs(node: Node, above: list[Derive | Filter]) -> Iterator[Run]:
    if _movable(node):
        assert isinstance(node, Derive | Filter)
        yield from _runs(node.input, [node, *above])
        return
    for child in node.inputs:
        yield from _runs(child, [])
    if above:
        yield Run(tuple(above), node)


def replaced(plan: Node, run: Run, by: Node) -> Node:
    """The plan with another form of one of its runs."""
    return transform(plan, lambda node: by if node is run.top else node)


def wanted(plan: Node, target: Node) -> frozenset[str]:
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
