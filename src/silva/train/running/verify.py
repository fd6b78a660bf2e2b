"""Compares one small step of a plan with a single process, before the first real one.

The module is in eval mode, so that dropout is off and normalisations use what they have seen. The
loss and every gradient have to agree, relative to the largest gradient: some gradients are 0 but
for rounding. Weights that are sharded and whose gradients differ are left whole; anything else that
differs is an error.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree
from torch import Tensor, nn

from silva.errors import PlanError
from silva.train.batches import microbatches, to_device
from silva.train.graph.groups import Found
from silva.train.graph.trace import tensors_of
from silva.train.planning.module import Recipe
from silva.train.running.boxes import boxes, slices
from silva.train.running.gradients import local
from silva.train.running.layout import Layout
from silva.train.running.trainer import Options, Trainer

_TOLERANCE = 1e-4
"""Of the largest gradient, or of the loss, in 32 bits: sums in another order."""
_ROWS = 2
"""Rows of a microbatch of the step."""


def verify(plan: Recipe, place: Layout) -> Recipe:
    """The plan, without sharded weights whose gradients differ.

    Raises a `PlanError` that names the parameter if something else differs.
    """
    if plan.choice.world == 1 and plan.choice.microbatches == 1 and not plan.choice.recompute:
        return plan
    wrong = _differences(plan, place)
    if not wrong:
        return plan
    smaller, dropped = _without(plan, set(wrong))
    if dropped and not _differences(smaller, place):
        return smaller
    name, (how_much, what) = max(wrong.items(), key=lambda one: one[1][0])
    raise PlanError(
        f"the plan ({plan.choice}) does not compute what one process computes: {what} of {name!r} "
        f"is off by {how_much:.2g} of the largest; choose another plan, keep it whole with "
        "plan.keep(…, tp=False), or pass verify=False if you know why"
    )


def _differences(plan: Recipe, place: Layout) -> dict[str, tuple[float, str]]:
    """What differs on any rank, by the name of the parameter: by how much, and what."""
    from silva.train.running.build import make

    batches = [_small(plan, reader) for reader in range(plan.choice.readers)]
    model = copy.deepcopy(plan.module.model).to(place.device)
    loss, gradients = _alone(model, plan, [to_device(b, place.device) for b in batches])
    tiny = replace(plan, module=replace(plan.module, model=model), global_rows=_global_rows(plan))
    trainer = make(tiny, place, None, Options())
    found = trainer.backward(batches[place.reader], train=False)
    wrong: dict[str, tuple[float, str]] = {}
    if not abs(found - loss) <= _TOLERANCE * max(abs(loss), 1e-6):
        wrong["loss"] = (abs(found - loss) / max(abs(loss), 1e-6), "the value")
    wrong |= _wrong_gradients(trainer, gradients)
    every: list[dict[str, tuple[float, str]]] = [wrong]
    if dist.is_initialized():
        every = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(every, wrong)
    return {name: one for rank in every for name, one in rank.items()}


def _wrong_gradients(trainer: Trainer, wanted: dict[str, Tensor]) -> dict[str, tuple[float, str]]:
    largest = max((float(g.abs().max()) for g in wanted.values()), default=0.0) or 1.0
    wrong: dict[str, tuple[float, str]] = {}
    for name, parameter in trainer.parts.parameters.items():
        gradient = parameter.grad
        if gradient is None:
            if name in wanted and float(wanted[name].abs().max()) > _TOLERANCE * largest:
                wrong[name] = (1.0, "no gradient came; the gradient")
            continue
        own = local(gradient)
        for box in boxes(parameter, trainer.parts.shards.get(name), trainer.layout):
            here = own[slices(box.here, box.shape)]
            there = (
                wanted[name][slices(box.there, box.shape)]
                if name in wanted
                else torch.zeros_like(here)
            )
            off = float((here - there).abs().max()) / largest
            if not off <= _TOLERANCE:
                wrong[name] = (off, "the gradient")
    return wrong


def _alone(model: nn.Module, plan: Recipe, batches: list[Any]) -> tuple[float, dict[str, Tensor]]:
    """The mean loss and the gradients of one process, over the rows of all ranks."""
    was = model.training
    model.eval()
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for batch in batches:
        for part in microbatches(batch, plan.choice.microbatches, equal=True):
            output = tensors_of(plan.module.call(model, part))[0]
            one, number = plan.loss(output, part)
            one.backward()
            total += one.detach().double().cpu()
            count += torch.as_tensor(number, dtype=torch.float64).cpu()
    gradients = {
        name: p.grad.clone() / count.to(p.grad.dtype)
        for name, p in model.named_parameters()
        if p.grad is not None
    }
    model.zero_grad()
    model.train(was)
    return float(total / count), gradients


def _global_rows(plan: Recipe) -> int:
    return _ROWS * plan.choice.microbatches * plan.choice.readers


def _small(plan: Recipe, reader: int) -> Any:
    """A few rows of the example for a reader; others get other rows where there are enough."""
    rows = _ROWS * plan.choice.microbatches

    def part(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim():
            return leaf
        at = torch.arange(reader * rows, (reader + 1) * rows) % leaf.shape[0]
        return leaf[at]

    return pytree.tree_map(part, plan.module.batch)


def _without(plan: Recipe, wrong: set[str]) -> tuple[Recipe, bool]:
    """The plan without the groups that have a weight whose gradient differs."""
    module, tp = plan.module, plan.choice.tp
    found = module.groups.get(tp)
    if found is None or module.traced is None:
        return plan, False
    states = module.traced.states
    bad = [g for g in found.groups if any(states[name] in wrong for name in g.weights)]
    if not bad:
        return plan, False
    why = {states[name]: "its gradients differed in the check" for g in bad for name in g.names}
    kept = tuple(g for g in found.groups if g not in bad)
    left = Found(tp, kept, {**found.why_not, **why})
    patterns = tuple((name, {"tp": False}) for name in why)
    smaller = replace(module, groups={**module.groups, tp: left}, kept=(*module.kept, *patterns))
    return replace(plan, module=smaller), True
