"""What devices exchange in a divided graph: functions that stand in it as operators."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: str) -> Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum(gradient, ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: str) -> Tensor:
        return _sum(value, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _sum(value: Tensor, group: str) -> Tensor:
    found = dist.distributed_c10d._resolve_process_group(group)
    total = value.contiguous().clone()
    dist.all_reduce(total, group=found)
    return total


def enter(value: Tensor, group: str) -> Tensor:
    """A value that each device has whole, where it is used on parts: gradients are added up."""
    out: Tensor = _Enter.apply(value, group)
    return out


def leave(value: Tensor, group: str) -> Tensor:
    """The sum of what the devices have computed of their parts."""
    out: Tensor = _Leave.apply(value, group)
    return out


def take_part(value: Tensor, dim: int, rows: list[tuple[int, int]]) -> Tensor:
    """The part of a device of a value that it has whole."""
    found = [value.narrow(dim, start, end - start) for start, end in rows]
    return found[0] if len(found) == 1 else torch.cat(found, dim)


def add_bias(value: Tensor, bias: Tensor, dim: int) -> Tensor:
    """A bias along a dimension."""
    return value + bias.view([-1 if i == dim else 1 for i in range(value.dim())])
