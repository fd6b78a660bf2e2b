"""Gradients after the backward pass: added up over stages, scaled to a mean, clipped.

Losses are sums, so gradients are sums over rows. They become a mean over all counts of a step: a
rank with more tokens weighs more, as it would in one process. FSDP adds up over its ranks, DDP
takes a mean over them, which is undone; the ranks of `tp` have the same gradients already. A
parameter that several stages have gets the sum of their gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from silva.train.running.layout import Layout
from silva.train.running.model import Parts


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def finish(parts: Parts, layout: Layout, count: Tensor) -> None:
    """Turns the sums that the backward pass has left into the gradients of the mean."""
    choice = layout.choice
    _add_tied(parts, layout)
    averaged = choice.dp if choice.fsdp == 1 else 1
    factor = averaged / count.clamp(min=1e-30)
    for parameter in parts.parameters.values():
        if parameter.grad is not None:
            local(parameter.grad).mul_(factor.to(parameter.grad.dtype))


def _add_tied(parts: Parts, layout: Layout) -> None:
    """Adds up the gradients of parameters that several stages have, in the same order on all."""
    if layout.choice.pp == 1:
        return
    for name in sorted(n for n, ranks in parts.owners.items() if len(ranks) > 1):
        if name in parts.buffers:
            continue
        parameter = parts.parameters.get(name)
        group = layout.group("pp")
        form = None if parameter is None else (tuple(local(parameter).shape), parameter.dtype)
        forms: list[Any] = [None] * layout.choice.pp
        dist.all_gather_object(forms, form, group=group)
        if not any(forms):
            continue  # a buffer of other ranks
        shape, dtype = next(found for found in forms if found is not None)
        if parameter is None:
            dist.all_reduce(torch.zeros(shape, dtype=dtype, device=layout.device), group=group)
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        total = local(parameter.grad).contiguous()
        dist.all_reduce(total, group=group)
        local(parameter.grad).copy_(total)


def norm(parts: Parts, layout: Layout) -> Tensor:
    """The norm of all gradients of the module, wherever they are."""
    total = torch.zeros((), dtype=torch.float64, device=layout.device)
    for name, parameter in parts.parameters.items():
        if parameter.grad is not None:
            squared = local(parameter.grad).double().pow(2).sum()
            total += squared / copies(name, parts, layout)
    return layout.sum(total).sqrt()


def copies(name: str, parts: Parts, layout: Layout) -> int:
    """The number of ranks that hold the same part of a parameter."""
    choice = layout.choice
    in_tp = 1 if name in parts.shards else choice.tp
    return choice.dp * in_tp * len(parts.owners[name])


def clip(parts: Parts, layout: Layout, most: float) -> Tensor:
    """Scales gradients down to a norm; gives the norm before."""
    found = norm(parts, layout)
    factor = (most / (found + 1e-6)).clamp(max=1.0)
    for parameter in parts.parameters.values():
        if parameter.grad is not None:
            local(parameter.grad).mul_(factor.to(parameter.grad.dtype))
    return found


def are_numbers(parts: Parts, layout: Layout) -> bool:
    """Whether no gradient of the module is NaN or infinite, on any rank."""
    own = [local(p.grad) for p in parts.parameters.values() if p.grad is not None]
    bad = torch.zeros((), device=layout.device)
    if own:
        norms = torch.stack(torch._foreach_norm(own))
        bad = (~torch.isfinite(norms)).any().float()
    if layout.choice.world > layout.choice.dp:  # replicas have the same gradients
        layout.sum(bad)
    return not bool(bad)


def first_wrong(parts: Parts) -> str | None:
    """The name of a parameter here whose gradient is no number."""
    for name, parameter in parts.parameters.items():
        if parameter.grad is not None and not bool(torch.isfinite(local(parameter.grad)).all()):
            return name
    return None


def zero(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
