"""What the values of a graph are: how large and costly, and whether gradients flow through them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.flop_counter import FlopCounterMode

from silva.train.graph.trace import Traced

_DETACHED = ("detach", "detach_", "lift_fresh_copy")


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """The shape of a node's tensor in the batch that was traced; None for other values."""
    value = node.meta.get("val")
    return tuple(map(concrete, value.shape)) if isinstance(value, Tensor) else None


def concrete(size: Any) -> int:
    """A size in the batch that was traced."""
    return size if isinstance(size, int) else int(size.node.hint)


def bytes_of(node: fx.Node) -> int:
    """Bytes of a node's tensor, or of all tensors in its list."""
    value = node.meta.get("val")
    found = value if isinstance(value, list | tuple) else [value]
    return sum(
        math.prod(map(concrete, one.shape)) * one.dtype.itemsize
        for one in found
        if isinstance(one, Tensor)
    )


def dtype_of(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def differentiable(traced: Traced, trainable: Collection[str]) -> set[fx.Node]:
    """The values through which gradients flow to a trainable parameter."""
    found: set[fx.Node] = set()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            if traced.states.get(node.name) in trainable:
                found.add(node)
        elif node.op == "call_function" and not _detaches(node):
            value = node.meta.get("val")
            several = isinstance(value, list | tuple)
            dtype = dtype_of(node)
            flows = several or (dtype is not None and dtype.is_floating_point)
            if flows and any(arg in found for arg in node.all_input_nodes):
                found.add(node)
    return found


def _detaches(node: fx.Node) -> bool:
    name = getattr(node.target, "overloadpacket", None)
    if "set_grad_enabled" in str(node.target):
        return node.args[0] is False
    return name is not None and str(name).rpartition(".")[2] in _DETACHED


def mutates(node: fx.Node) -> list[fx.Node]:
    """The arguments that an operator changes in place."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable:
        return []
    changed = [
        node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return [arg for arg in changed if isinstance(arg, fx.Node)]


@dataclass(frozen=True)
class Work:
    """What a node does in a forward pass."""

    flops: float = 0.0
    nbytes: float = 0.0
    """Bytes that it reads and writes."""

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.nbytes + other.nbytes)


def work_of(traced: Traced) -> Mapping[fx.Node, Work]:
    """FLOPs and bytes of each node, counted on tensors without memory."""
    found: dict[fx.Node, Work] = {}
    for node in traced.graph.nodes:
        if node.op != "call_function":
            continue
        moved = bytes_of(node) + sum(map(bytes_of, node.all_input_nodes))
        found[node] = Work(_flops(node), moved)
    return found


def _flops(node: fx.Node) -> float:
    name = str(getattr(node.target, "overloadpacket", "")).rpartition(".")[2]
    if not any(part in name for part in ("linear", "mm", "matmul", "conv", "attention", "einsum")):
        return 0.0

    def without_memory(arg: fx.Node) -> Any:
        value = arg.meta.get("val")
        if isinstance(value, Tensor):
            return torch.empty(shape_of(arg) or (), dtype=value.dtype, device="meta")
        return concrete(value) if isinstance(value, torch.SymInt) else value

    args = fx.node.map_arg(node.args, without_memory)
    kwargs = fx.node.map_arg(node.kwargs, without_memory)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        node.target(*args, **kwargs)
    return float(counter.get_total_flops())
