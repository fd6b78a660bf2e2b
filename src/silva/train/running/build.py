"""Builds the trainer of a rank from a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import Tensor

from silva.errors import PlanError
from silva.train.batches import MakeOptimizer
from silva.train.graph.groups import Found
from silva.train.graph.trace import Traced, trace
from silva.train.planning.module import Module, Recipe, cuts_of, with_groups
from silva.train.running.layout import Layout, layout
from silva.train.running.model import Precision, parts_of_graph, whole_module
from silva.train.running.trainer import Options, Trainer
from silva.train.running.verify import verify as compare

_PRECISIONS: Mapping[str, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def build(
    plan: Recipe,
    optimizer: MakeOptimizer | None = None,
    *,
    precision: str | None = None,
    clip: float | None = None,
    compile: str | bool | None = None,
    verify: bool = True,
    device: str | None = None,
) -> Trainer:
    """The trainer of this rank."""
    if precision is not None and precision not in _PRECISIONS:
        raise PlanError(f"precision is None or one of {', '.join(_PRECISIONS)}, not {precision!r}")
    if clip is not None and not clip > 0:
        raise PlanError(f"clip is the largest norm of the gradients, above 0, not {clip!r}")
    backend = ("inductor" if compile else None) if isinstance(compile, bool) else compile
    options = Options(Precision(_PRECISIONS.get(precision or "")), clip, backend)
    place = layout(plan.choice, device)
    _same_everywhere()
    if verify:
        plan = compare(plan, place)
    return make(plan, place, optimizer, options)


def make(plan: Recipe, place: Layout, optimizer: MakeOptimizer | None, options: Options) -> Trainer:
    """The trainer of a plan at a place, without a check."""
    module = plan.module
    model = module.model
    if any(p.is_meta for p in model.parameters()):
        raise PlanError(
            "the module is on the meta device, without values: load them with weights=…, or pass a "
            "module that has values"
        )
    model.to(place.device)
    if not needs_graph(plan):
        parts = whole_module(model, module.call, place, options.precision)
        return Trainer(parts, place, plan.loss, optimizer, None, options)
    small = microbatch_of(plan)
    traced = graph_for(module, small)
    ready = with_groups(
        Module(model, small, module.call, traced, None, module.cuts, {}, module.kept),
        plan.choice.tp,
    )
    found = ready.groups.get(plan.choice.tp, Found(plan.choice.tp, ()))
    natural = ready.natural if plan.choice.fsdp > 1 or plan.choice.recompute else []
    allowed = {cut.before for cut in cuts_of(ready, plan.choice.tp)}
    inner = [cut for cut in natural if cut.before in allowed]
    leaves = pytree.tree_leaves(small)
    parts = parts_of_graph(
        model, traced, found, plan.chosen_cuts(), inner, place, len(leaves), options.precision
    )
    return Trainer(parts, place, plan.loss, optimizer, traced.leaves, options)


def needs_graph(plan: Recipe) -> bool:
    """Whether the graph of the module is run, and not the module itself."""
    choice = plan.choice
    return choice.tp > 1 or choice.pp > 1 or choice.recompute


def microbatch_of(plan: Recipe) -> Any:
    """An example of a microbatch of the plan."""
    rows = plan.global_rows // plan.choice.readers // plan.choice.microbatches

    def resized(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim():
            return leaf
        times = -(-rows // leaf.shape[0])
        return torch.cat([leaf] * times)[:rows] if times > 1 else leaf[:rows]

    return pytree.tree_map(resized, plan.module.batch)


def graph_for(module: Module, batch: Any) -> Traced:
    """The graph of a module for the sizes of a batch."""
    was = module.model.training
    module.model.train()
    try:
        return trace(module.model, batch, module.call)
    finally:
        module.model.train(was)


def _same_everywhere() -> None:
    """Refuses ranks with other versions of torch: they would disagree in the middle of a step."""
    if not dist.is_initialized():
        return
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, torch.__version__)
    if len(set(found)) > 1:
        said = ", ".join(f"rank {i} has {version}" for i, version in enumerate(found))
        raise PlanError(f"the ranks have different versions of torch: {said}")
