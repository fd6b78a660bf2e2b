"""This rank's part of a module: its stages, its part of divided weights, wrapped by FSDP or DDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from silva.train.graph.cuts import Cut
from silva.train.graph.divide import Part, divide, shards_of
from silva.train.graph.groups import Found
from silva.train.graph.pieces import Chain, Span, make, operators, spans
from silva.train.graph.shards import Shard
from silva.train.graph.trace import Caller, Traced, tensors_of
from silva.train.graph.values import differentiable, shape_of
from silva.train.running.layout import Layout

_MOST_UNITS = 64
"""Parts of a module that FSDP gathers one by one, at most."""


@dataclass(frozen=True)
class Precision:
    """The type that a module computes with; parameters and gradients stay as they are."""

    dtype: torch.dtype | None = None

    def autocast(self, device: str) -> AbstractContextManager[Any]:
        return torch.autocast(device, self.dtype or torch.bfloat16, enabled=self.dtype is not None)


@dataclass(eq=False)
class Parts:
    """What this rank holds of a module."""

    stages: list[nn.Module]
    """The modules that are called; one without a pipeline."""
    parameters: dict[str, nn.Parameter]
    """By the names of the unmodified module, each once."""
    buffers: dict[str, Tensor]
    shards: Mapping[str, Shard]
    """How parameters are divided among the ranks of `tp`."""
    owners: dict[str, tuple[int, ...]]
    """The ranks of the pipeline that have a parameter or a buffer, the first one first."""
    metadata: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)
    """What each stage takes and gives, as tensors without memory."""
    held: list[Any] = field(default_factory=list)
    """The microbatches of the present step, for the stages of a pipeline."""


def whole_module(model: nn.Module, call: Caller, layout: Layout, precision: Precision) -> Parts:
    """The unmodified module, for data parallelism alone."""
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    choice = layout.choice
    wrapped: nn.Module = _Called(model, call)
    if choice.fsdp > 1:
        _shard(wrapped, repeated_blocks(model), layout)
    elif choice.dp > 1:
        wrapped = _replicate(wrapped, layout)
    parameters = _again(model, parameters)
    return Parts([wrapped], parameters, buffers, {}, dict.fromkeys([*parameters, *buffers], (0,)))


class _Called(nn.Module):
    """A module that is called with a batch, as its caller says."""

    def __init__(self, model: nn.Module, call: Caller) -> None:
        super().__init__()
        self.model, self._call = model, call

    def forward(self, batch: Any) -> Any:
        return tensors_of(self._call(self.model, batch))[0]


def _again(model: nn.Module, before: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The parameters of a module that FSDP has replaced, by the same names."""
    now = dict(model.named_parameters())
    return {name: now[name] for name in before}


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The outermost modules that stand beside others with parameters of the same shapes: the layers
    of a network, whatever they are called."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        same: dict[tuple[tuple[str, torch.Size], ...], list[nn.Module]] = {}
        for child in module.children():
            form = tuple((name, p.shape) for name, p in child.named_parameters())
            if form:
                same.setdefault(form, []).append(child)
        for children in same.values():
            deep = any(True for child in children for _ in child.children())
            if len(children) > 1 and deep:
                found.extend(children)
            else:
                for child in children:
                    visit(child)

    visit(model)
    return found


def parts_of_graph(
    model: nn.Module,
    traced: Traced,
    found: Found,
    cuts: Sequence[Cut],
    natural: Sequence[Cut],
    layout: Layout,
    leaves: int,
    precision: Precision,
) -> Parts:
    """The stages of this rank, made of the module's graph."""
    choice = layout.choice
    state = dict(model.named_parameters(remove_duplicate=False))
    trainable = {name for name, p in state.items() if p.requires_grad}
    state |= dict(model.named_buffers(remove_duplicate=False))
    shards: dict[str, Shard] = {}
    if choice.tp > 1:
        group = layout.group("tp").group_name
        part = Part(layout.at("tp"), choice.tp, group)
        shards = shards_of(traced, found)
        traced = divide(traced, found, part, trainable)
    flows = differentiable(traced, trainable)
    positions = _in_new_graph(traced, cuts)
    every = sorted({*positions, *_in_new_graph(traced, natural)})
    pieces = spans(traced, every, flows)
    edges = [0, *(every.index(p) + 1 for p in positions), len(pieces)]
    mine = range(layout.at("pp"), choice.stages, choice.pp)
    held: dict[str, Any] = {}
    batches: list[Any] = []

    def local(name: str) -> Any:
        if name not in held:
            value = state[name]
            shard = shards.get(name)
            if shard is not None:
                with torch.no_grad():
                    own = shard.take(value, layout.at("tp"), choice.tp).clone()
                value = nn.Parameter(own, requires_grad=value.requires_grad)
            held[name] = value
        return held[name]

    stages: list[nn.Module] = []
    metadata = []
    owners: dict[str, tuple[int, ...]] = {}
    for number in range(choice.stages):
        inside = pieces[edges[number] : edges[number + 1]]
        for name in sorted(_states_in(traced, inside)):
            ranks = owners.get(name, ())
            owners[name] = tuple(dict.fromkeys((*ranks, number % choice.pp)))
        if number not in mine:
            continue
        modules: list[nn.Module] = [make(traced, span, local) for span in inside]
        if choice.recompute:
            modules = [_Recomputed(module) for module in modules]
        stage: nn.Module = Chain(modules, leaves)
        if choice.pp > 1:
            stage = Stage(stage, batches, layout.device, precision)
        if choice.fsdp > 1:
            _shard(stage, _units(modules), layout)
        elif choice.dp > 1 and any(p.requires_grad for p in stage.parameters()):
            stage = _replicate(stage, layout)
        stages.append(stage)
        metadata.append(
            ([_empty(n) for n in inside[0].takes], [_empty(n) for n in inside[-1].gives])
        )
    for name in state:  # what the graph does not use is kept by the first stage
        if traced.tied.get(name, name) not in owners:
            owners[name] = (0,)
            if layout.at("pp") == 0:
                local(name)
    parameters = {n: v for n, v in held.items() if isinstance(v, nn.Parameter)}
    buffers = {n: v for n, v in held.items() if n not in parameters}
    parameters |= _named(stages, held)
    return Parts(stages, parameters, buffers, shards, owners, metadata, batches)


def _units(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules that FSDP gathers one by one. Those that share a parameter with another one are
    gathered with the whole."""
    users: dict[int, int] = {}
    for module in modules:
        for parameter in module.parameters():
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    own = [[users[id(p)] == 1 for p in module.parameters()] for module in modules]
    return [module for module, alone in zip(modules, own, strict=True) if alone and all(alone)]


def _states_in(traced: Traced, inside: Sequence[Span]) -> set[str]:
    """The parameters and buffers that parts of a graph use."""
    used = (arg.name for span in inside for node in span.nodes for arg in node.all_input_nodes)
    return {traced.states[name] for name in used if name in traced.states}


def _in_new_graph(traced: Traced, cuts: Sequence[Cut]) -> list[int]:
    """The positions of cuts, which are named by the operator behind them, in a divided graph."""
    position = {
        node.meta.get("origin", node.name): i
        for i, node in reversed(list(enumerate(operators(traced))))
    }
    return [position[cut.before] for cut in cuts]


def _named(stages: Sequence[nn.Module], held: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """The parameters that the stages have now, by the names of the unmodified module."""
    found: dict[str, nn.Parameter] = {}
    for stage in stages:
        for path, parameter in stage.named_parameters():
            found.setdefault(_canonical(path), parameter)
    return {name: found[name] for name in held if name in found}


def _canonical(path: str) -> str:
    """The name in the unmodified module of a parameter of a chain, whose parts are numbered."""
    path = path.removeprefix("module.").removeprefix("inner.").removeprefix("parts.")
    return path.partition(".")[2].removeprefix("again.")


class Stage(nn.Module):
    """A stage that takes the number of a microbatch and what the stage before gives."""

    def __init__(
        self, inner: nn.Module, held: list[Any], device: str, precision: Precision
    ) -> None:
        super().__init__()
        self.inner, self._held, self._device, self._precision = inner, held, device, precision

    def forward(self, *received: Tensor, number: Tensor) -> Any:
        leaves = pytree.tree_leaves(self._held[int(number[0])])
        with self._precision.autocast(self._device):
            out = self.inner(*leaves, *(_Contiguous.apply(one) for one in received))
        return out[0] if len(out) == 1 else out


class _Contiguous(torch.autograd.Function):
    """Gradients that are sent to the stage before lie in memory as their values do."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


class _Recomputed(nn.Module):
    """A part whose activations are computed again in the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.again = inner

    def forward(self, *args: Any) -> Any:
        return checkpoint(self.again, *args, use_reentrant=False)


def _empty(node: Any) -> Tensor:
    return torch.empty(
        shape_of(node) or (), dtype=node.meta["val"].dtype, device="meta", requires_grad=True
    )


def _shard(module: nn.Module, units: Sequence[nn.Module], layout: Layout) -> None:
    """FSDP over units and the rest. Gradients are added up, not averaged: losses are sums."""
    assert layout.mesh is not None
    mesh = layout.mesh["dp", "fsdp"] if layout.choice.dp > 1 else layout.mesh["fsdp"]
    for unit in [*units, module]:
        sharded = fully_shard(unit, mesh=mesh)
        assert isinstance(sharded, FSDPModule)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def _replicate(module: nn.Module, layout: Layout) -> nn.Module:
    if not any(p.requires_grad for p in module.parameters()):
        return module
    return DistributedDataParallel(
        module, process_group=layout.group("dp"), forward_sync_buffers=False
    )
