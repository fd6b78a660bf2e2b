"""A pipeline of stages, run by torch's schedules.

A schedule is given the numbers of the microbatches in place of their rows: each stage looks up the
leaves of the batch that it needs, so that masks and tables are computed where they are used, and
only activations travel. Stages are described to torch in advance: otherwise it would run forward
and loss once on uninitialised memory. The loss is called exactly once for each microbatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from silva.train.batches import numbers
from silva.train.graph.trace import Leaves
from silva.train.running.layout import Layout
from silva.train.running.model import Parts, Precision

LossOf = Callable[[Any, int], Tensor]
"""The sum of the losses of a microbatch, by the output and the number of the microbatch."""


class _Stage(nn.Module):
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
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient.contiguous()


class Pipeline:
    """The stages of this rank in their schedule."""

    def __init__(
        self, parts: Parts, layout: Layout, leaves: Leaves, loss: LossOf, precision: Precision
    ) -> None:
        choice = layout.choice
        self.held: list[Any] = []
        """The microbatches of the present step."""
        self._leaves, self._loss, self._choice = leaves, loss, choice
        group = layout.group("pp")
        stages = [
            PipelineStage(
                _Stage(module, self.held, layout.device, precision),
                layout.at("pp") + i * choice.pp,
                choice.stages,
                torch.device(layout.device),
                input_args=tuple(takes),
                output_args=tuple(gives),
                group=group,
            )
            for i, (module, (takes, gives)) in enumerate(
                zip(parts.stages, parts.metadata, strict=True)
            )
        ]
        options: dict[str, Any] = {"loss_fn": self._compute, "scale_grads": False}
        if choice.schedule == "interleaved":
            self._schedule: Any = ScheduleInterleaved1F1B(
                stages, choice.microbatches, defer_pp_recv=True, **options
            )
        else:
            kind = ScheduleGPipe if choice.schedule == "gpipe" else Schedule1F1B
            self._schedule = kind(stages[0], choice.microbatches, **options)

    def run(self, batches: list[Any], *, train: bool) -> None:
        """Forward and backward for all microbatches, or forward alone."""
        self.held[:] = batches
        every = numbers(len(batches))
        run = self._schedule.step if train else self._schedule.eval
        more = {"return_outputs": False} if train else {}
        try:
            run(number=every, target=every, **more)
        finally:
            self.held.clear()

    def _compute(self, output: Any, number: Tensor) -> Tensor:
        several = output if isinstance(output, tuple | list) else (output,)
        return self._loss(self._leaves.put_back(several), int(number[0]))
