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
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from silva.train.batches import numbers
from silva.train.graph.trace import Leaves
from silva.train.running.layout import Layout
from silva.train.running.model import Parts

LossOf = Callable[[Any, int], Tensor]
"""The sum of the losses of a microbatch, by the output and the number of the microbatch."""


class Pipeline:
    """The stages of this rank in their schedule."""

    def __init__(self, parts: Parts, layout: Layout, leaves: Leaves, loss: LossOf) -> None:
        choice = layout.choice
        self._held = parts.held
        self._leaves, self._loss = leaves, loss
        group = layout.group("pp")
        stages = [
            PipelineStage(
                module,
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
        self._held[:] = batches
        every = numbers(len(batches))
        run = self._schedule.step if train else self._schedule.eval
        more = {"return_outputs": False} if train else {}
        try:
            run(number=every, target=every, **more)
        finally:
            self._held.clear()

    def _compute(self, output: Any, number: Tensor) -> Tensor:
        several = output if isinstance(output, tuple | list) else (output,)
        return self._loss(self._leaves.put_back(several), int(number[0]))
