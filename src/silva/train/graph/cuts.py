"""Finds where a graph can be cut, and chooses cuts of equal work where little has to be sent."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from silva.errors import PlanError
from silva.train.graph.pieces import operators
from silva.train.graph.trace import Traced
from silva.train.graph.values import bytes_of, differentiable, mutates

_REACH = 0.35
"""How far a cut may be from its share of the work, in shares: more balance is worth more than fewer
bytes."""


@dataclass(frozen=True)
class Cut:
    """A place between two operators where a graph can be cut."""

    position: int
    before: str
    """The operator behind it."""
    nbytes: int
    """Bytes that cross it, in each direction, for the batch that was traced."""
    values: int
    """Tensors that cross it."""


def possible_cuts(traced: Traced, trainable: Collection[str]) -> list[Cut]:
    """All places where only values cross through which gradients flow, and none of them is changed
    in place later. What is computed again behind a cut must not be random, nor depend on a value
    through which gradients flow."""
    nodes = operators(traced)
    flows = differentiable(traced, trainable)
    position = {node: i for i, node in enumerate(nodes)}
    outputs = set(traced.output.all_input_nodes)
    last: dict[fx.Node, int] = {}
    for i, node in enumerate(nodes):
        for arg in node.all_input_nodes:
            last[arg] = i
    for node in outputs:
        last[node] = len(nodes)
    roots = _roots(nodes)
    changed: dict[fx.Node, int] = {}
    for i, node in enumerate(nodes):
        for arg in mutates(node):
            changed[roots.get(arg, arg)] = i
    stays = _must_stay(nodes, flows)
    live: dict[fx.Node, None] = {}
    found: list[Cut] = []
    for i in range(1, len(nodes)):
        live[nodes[i - 1]] = None
        for node in [n for n in live if last.get(n, -1) < i]:
            del live[node]
        crossing = [node for node in live if node in flows]
        if any(node.meta.get("divided") for node in crossing):
            continue
        if any(changed.get(roots.get(node, node), -1) >= i for node in live):
            continue
        if any(node in stays for node in live if node not in flows):
            continue
        if crossing and all(isinstance(n.meta.get("val"), torch.Tensor) for n in crossing):
            nbytes = sum(map(bytes_of, crossing))
            if not all(position[n] < i for n in crossing):
                continue
            found.append(Cut(i, nodes[i].name, nbytes, len(crossing)))
    return found


def _roots(nodes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """The value whose memory another one shows."""
    roots: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        schema = getattr(node.target, "_schema", None)
        returns = schema.returns if schema is not None else ()
        if any(r.alias_info is not None for r in returns) and node.all_input_nodes:
            source = node.all_input_nodes[0]
            roots[node] = roots.get(source, source)
        elif str(node.target).endswith("getitem>") and node.all_input_nodes[0] in roots:
            roots[node] = roots[node.all_input_nodes[0]]
    return roots


def _must_stay(nodes: Sequence[fx.Node], flows: set[fx.Node]) -> set[fx.Node]:
    """Values that cannot be computed again elsewhere, though no gradient flows through them."""
    found: set[fx.Node] = set()
    for node in nodes:
        tags = getattr(node.target, "tags", ())
        random = torch.Tag.nondeterministic_seeded in tags
        if node not in flows and (
            random or any(a in flows or a in found for a in node.all_input_nodes)
        ):
            found.add(node)
    return found


def choose_cuts(
    cuts: Sequence[Cut], work: Mapping[fx.Node, float], nodes: Sequence[fx.Node], stages: int
) -> list[Cut]:
    """The cuts into so many stages: near each share of the work, the one that fewest bytes cross.

    Raises a `PlanError` if the graph cannot be cut so often.
    """
    before = list(itertools.accumulate((work.get(node, 0.0) for node in nodes), initial=0.0))
    total = before[-1]
    chosen: list[Cut] = []
    for number in range(1, stages):
        share = total * number / stages
        reach = _REACH * total / stages
        low = bisect.bisect_left(before, share - reach)
        high = bisect.bisect_right(before, share + reach)
        least = chosen[-1].position if chosen else 0
        near = [cut for cut in cuts if max(low, least + 1) <= cut.position <= high]
        if not near:
            raise PlanError(
                f"the module cannot be cut into {stages} stages: near {number}/{stages} of its "
                "work, every place is within a group, or a value that crosses is changed later"
            )
        fewest = min(cut.nbytes for cut in near)
        same = [cut for cut in near if cut.nbytes == fewest]
        chosen.append(min(same, key=lambda cut: abs(before[cut.position] - share)))
    return chosen


def natural_cuts(cuts: Sequence[Cut], most: int) -> list[Cut]:
    """The places where least crosses, such as those between blocks, at most so many; of places next
    to each other, the first."""
    if not cuts:
        return []
    middle = list(cuts[len(cuts) // 8 : -len(cuts) // 8 or None]) or list(cuts)
    least = min((cut.nbytes, cut.values) for cut in middle)
    found: list[Cut] = []
    previous = -2
    for cut in cuts:
        if (cut.nbytes, cut.values) == least:
            if cut.position != previous + 1:
                found.append(cut)
            previous = cut.position
    step = -(-len(found) // most) if most else 1
    return found[::step]
