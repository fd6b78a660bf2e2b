"""Modules of parts of a graph, with parameters under the names of the unmodified module."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from silva.train.graph.trace import Traced

State = Callable[[str], Tensor]
"""The parameter or buffer of a name, as this device has it."""


@dataclass(frozen=True)
class Span:
    """A part of a graph: what it computes and what it takes from and gives to its neighbours."""

    nodes: tuple[fx.Node, ...]
    takes: tuple[fx.Node, ...]
    """Values of earlier parts."""
    gives: tuple[fx.Node, ...]
    """Values for later parts; the outputs of the module, in the last one."""


def make(traced: Traced, span: Span, state: State) -> fx.GraphModule:
    """A module of a part. It is called with the leaves of the batch, then with what it takes."""
    graph, root, new = fx.Graph(), nn.Module(), {}
    for name in traced.inputs:
        new[name] = graph.placeholder(name)
    values: dict[fx.Node, Any] = {node: graph.placeholder(node.name) for node in span.takes}
    made: dict[str, fx.Node] = {}

    def value_of(node: fx.Node) -> fx.Node:
        if node in values:
            return values[node]
        if node.name in traced.inputs:
            return new[node.name]
        if node.name not in made:
            made[node.name] = _fetch(graph, root, traced, node.name, state)
        return made[node.name]

    for node in span.nodes:
        moded = _moded(node)
        if moded is None:
            values[node] = graph.node_copy(node, value_of)
            continue
        root.add_module(f"mode_{node.name}", moded)
        args = fx.node.map_arg(node.args, value_of)
        kwargs = fx.node.map_arg(dict(node.kwargs), value_of)
        values[node] = graph.call_module(f"mode_{node.name}", args, kwargs)
    out = []
    for node in span.gives:
        value = value_of(node)
        if node in span.takes:  # what passes through is a value of its own, with its own gradient
            value = graph.call_function(torch.ops.aten.alias.default, (value,))
        out.append(value)
    graph.output(tuple(out))
    return fx.GraphModule(root, graph)


class _Moded(nn.Module):
    """An operator that does something else in eval mode, as dropout does."""

    def __init__(self, target: Callable[..., Any], name: str, at: int) -> None:
        super().__init__()
        self._target, self._name, self._at = target, name, at

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.training:
            return self._target(*args, **kwargs)
        off = 0.0 if self._name == "dropout_p" else False
        if len(args) > self._at:
            args = (*args[: self._at], off, *args[self._at + 1 :])
        else:
            kwargs = {**kwargs, self._name: off}
        return self._target(*args, **kwargs)


def _moded(node: fx.Node) -> _Moded | None:
    """What runs an operator that was told to be in train mode; None for others."""
    schema = getattr(node.target, "_schema", None)
    for at, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.name in ("train", "training", "dropout_p"):
            given = node.args[at] if len(node.args) > at else node.kwargs.get(argument.name)
            if given:
                return _Moded(node.target, argument.name, at)
    return None


def _fetch(graph: fx.Graph, root: nn.Module, traced: Traced, name: str, state: State) -> fx.Node:
    """A parameter, a buffer or a constant of the module."""
    if name not in traced.states:
        value = traced.constants[name]
        if isinstance(value, Tensor):
            root.register_buffer(name, value, persistent=False)
        else:
            setattr(root, name, value)
        return graph.get_attr(name)
    path = traced.states[name]
    *parents, last = path.split(".")
    owner = root
    for parent in parents:
        if not hasattr(owner, parent):
            owner.add_module(parent, nn.Module())
        owner = getattr(owner, parent)
    if not hasattr(owner, last):
        value = state(path)
        if isinstance(value, nn.Parameter):
            owner.register_parameter(last, value)
        else:
            owner.register_buffer(last, value)
    return graph.get_attr(path)


def whole(traced: Traced) -> Span:
    """The whole graph as one part."""
    return Span(tuple(operators(traced)), (), _outputs(traced))


def _outputs(traced: Traced) -> tuple[fx.Node, ...]:
    found: list[fx.Node] = []
    fx.node.map_arg(traced.output.args[0], lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return tuple(found)


def spans(traced: Traced, cuts: Sequence[int], flows: set[fx.Node]) -> list[Span]:
    """The parts between cuts, which are positions among the operators.

    Values through which gradients flow cross a cut, and pass through all parts up to the last one
    that needs them. All others are computed again in each part that needs them, from the batch.
    """
    nodes = operators(traced)
    edges = [0, *cuts, len(nodes)]
    position = {node: i for i, node in enumerate(nodes)}
    outputs = _outputs(traced)
    needed = [
        _needed(nodes[a:b], a, position, flows, outputs if b == len(nodes) else ())
        for a, b in itertools.pairwise(edges)
    ]
    crossing: list[tuple[fx.Node, ...]] = [()]
    for number, edge in enumerate(cuts, 1):
        later = {a for part in needed[number:] for node in part for a in node.all_input_nodes}
        later |= set(outputs)
        found = [n for n in later if position.get(n, edge) < edge and n in flows]
        crossing.append(tuple(sorted(found, key=position.__getitem__)))
    ends = [*crossing[1:], outputs]
    return [Span(tuple(p), t, g) for p, t, g in zip(needed, crossing, ends, strict=True)]


def operators(traced: Traced) -> list[fx.Node]:
    """The operators of a graph, in order."""
    return [node for node in traced.graph.nodes if node.op == "call_function"]


def _needed(
    own: Sequence[fx.Node],
    start: int,
    position: Mapping[fx.Node, int],
    flows: set[fx.Node],
    outputs: Sequence[fx.Node],
) -> list[fx.Node]:
    """The operators of a part, after those that it computes again."""
    todo = [arg for node in own for arg in node.all_input_nodes] + list(outputs)
    again: set[fx.Node] = set()
    while todo:
        node = todo.pop()
        at = position.get(node, start)
        if at < start and node not in flows and node not in again:
            again.add(node)
            todo += node.all_input_nodes
    return [*sorted(again, key=position.__getitem__), *own]


class Chain(nn.Module):
    """Parts of a module, one after another: called with the leaves of the batch, then with what
    the first part takes."""

    def __init__(self, parts: Sequence[nn.Module], leaves: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self._leaves = leaves

    def forward(self, *args: Any) -> tuple[Tensor, ...]:
        batch, values = args[: self._leaves], args[self._leaves :]
        for part in self.parts:
            values = part(*batch, *values)
        return values
