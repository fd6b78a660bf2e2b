"""Rewrites a graph for one device: its part of each group, and the exchanges between the parts."""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from silva.train.graph.exchange import add_bias, enter, leave, take_part
from silva.train.graph.groups import Found, Group, Product
from silva.train.graph.shards import Quotient, Shard, name_of
from silva.train.graph.trace import Traced
from silva.train.graph.values import differentiable, shape_of


@dataclass(frozen=True)
class Part:
    """Which of the parts a device has, and with whom it exchanges."""

    number: int
    parts: int
    group: str
    """The name of the process group of the devices that hold the parts."""


def shards_of(traced: Traced, found: Found) -> dict[str, Shard]:
    """How each parameter is divided, by its name; those that are not named are whole."""
    return {
        traced.states[weight]: shard
        for group in found.groups
        for weight, shard in group.weights.items()
    }


def divide(traced: Traced, found: Found, part: Part, trainable: Collection[str]) -> Traced:
    """The graph that a device runs. Placeholders of divided weights take the device's part; values
    within a group are marked, so that no cut is made there."""
    return _Divider(traced, found, part, differentiable(traced, trainable)).run()


class _Divider:
    def __init__(self, traced: Traced, found: Found, part: Part, flows: set[fx.Node]) -> None:
        self.traced, self.part, self.flows = traced, part, flows
        self.graph = fx.Graph()
        self.new: dict[fx.Node, Any] = {}
        self.entered: dict[fx.Node, fx.Node] = {}
        self.steps = {node: group for group in found.groups for node in group.steps}
        self.producers = {p.node: (p, g) for g in found.groups for p in g.producers}
        self.frontiers = {p.node: (p, g) for g in found.groups for p in g.frontiers}

    def run(self) -> Traced:
        for node in self.traced.graph.nodes:
            if node in self.producers:
                self._producer(node, *self.producers[node])
            elif node in self.frontiers:
                self._frontier(node, self.frontiers[node][0])
            elif node in self.steps:
                self._step(node, self.steps[node])
            else:
                copy = self.graph.node_copy(node, lambda n: self.new[n])
                copy.meta["origin"] = node.name
                self.new[node] = copy
        return replace(self.traced, graph=self.graph)

    def _enter(self, node: fx.Node, user: fx.Node) -> fx.Node:
        """A value from outside, where it is used within a group."""
        new: fx.Node = self.new[node]
        if node not in self.flows or shape_of(node) is None:
            return new
        if node not in self.entered:
            made = self.graph.call_function(enter, (new, self.part.group))
            made.meta = {**node.meta, "divided": True, "origin": user.name}
            self.entered[node] = made
        return self.entered[node]

    def _made(self, node: fx.Node, made: fx.Node, divided: bool = True) -> None:
        made.meta = {**node.meta, "divided": divided, "origin": node.name}
        self.new[node] = made

    def _producer(self, node: fx.Node, one: Product, group: Group) -> None:
        def value_of(arg: fx.Node) -> fx.Node:
            return self._enter(arg, node) if arg is one.value else self.new[arg]

        args = fx.node.map_arg(node.args, value_of)
        made = self.graph.call_function(node.target, args, dict(node.kwargs))
        self._made(node, made)

    def _step(self, node: fx.Node, group: Group) -> None:
        how = group.steps[node]

        def value_of(arg: fx.Node) -> fx.Node:
            if arg.graph is self.graph:
                return arg
            inside = arg in self.steps or arg in self.producers
            value: fx.Node = self.new[arg] if inside else self._enter(arg, node)
            shard = how.narrowed.get(arg)
            if shard is None:
                return value
            rows = shard.indices(self.part.number, self.part.parts)
            taken = self.graph.call_function(take_part, (value, shard.dim, rows))
            taken.meta = {**arg.meta, "divided": True}
            return taken

        args = fx.node.map_arg(self._sizes(how.args), value_of)
        kwargs = fx.node.map_arg(dict(how.kwargs), value_of)
        self._made(node, self.graph.call_function(node.target, args, kwargs))

    def _sizes(self, args: Any) -> Any:
        """Arguments in which sizes of the batch are divided."""
        if isinstance(args, Quotient):
            return self.graph.call_function(operator.floordiv, (self.new[args.size], args.parts))
        if isinstance(args, list | tuple):
            return type(args)(self._sizes(one) for one in args)
        return args

    def _frontier(self, node: fx.Node, one: Product) -> None:
        value, weight = self.new[one.value], self.new[one.turned[-1] if one.turned else one.weight]
        target: Any = node.target
        if name_of(node) == "addmm":
            target, args = torch.ops.aten.mm.default, (value, weight)
        else:
            rest = list(node.args[2:])
            if rest and one.bias is not None:
                rest[0] = None
            args = (value, weight, *rest)
        kwargs = {name: v for name, v in node.kwargs.items() if name != "bias"}
        args = fx.node.map_arg(args, lambda n: n if n.graph is self.graph else self.new[n])
        made = self.graph.call_function(target, args, kwargs)
        made.meta = {**node.meta, "divided": True}
        total = self.graph.call_function(leave, (made, self.part.group))
        if one.bias is not None:
            total.meta = {**node.meta, "divided": True}
            dim = 1 if name_of(node).startswith("conv") else len(shape_of(node) or ()) - 1
            total = self.graph.call_function(add_bias, (total, self.new[one.bias], dim))
        self._made(node, total, divided=False)
