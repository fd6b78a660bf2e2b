"""Steps of training on one rank."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from silva.errors import PlanError
from silva.train.batches import Loss, MakeOptimizer, microbatches, to_device
from silva.train.graph.trace import Leaves
from silva.train.running import gradients
from silva.train.running.layout import Layout
from silva.train.running.model import Parts, Precision
from silva.train.running.pipeline import Pipeline


@dataclass(frozen=True)
class Options:
    """What a step does beside forward and backward; all of it is off by default."""

    precision: Precision = field(default_factory=Precision)
    clip: float | None = None
    """The largest norm of the gradients."""
    compile: str | None = None
    """The backend of `torch.compile`."""


def without_padding(output: Any, batch: Any) -> tuple[Any, Any]:
    """An output and a batch without the rows that fill up the batches of an evaluation, which the
    column `mask` tells."""
    mask = batch.get("mask") if isinstance(batch, Mapping) else None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.dim() != 1 or mask.all():
        return output, batch

    def kept(leaf: Any) -> Any:
        fits = isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == len(mask)
        return leaf[mask] if fits else leaf

    return pytree.tree_map(kept, output), pytree.tree_map(kept, batch)


class Trainer:
    """One rank of a plan: takes steps, and holds this rank's part of the module.

    The loss contract is `loss(output, batch) -> (sum, count)`: the gradient of a step is that of
    the sum of all ranks' sums over the sum of all counts, whatever each rank has.
    """

    def __init__(
        self,
        parts: Parts,
        layout: Layout,
        loss: Loss,
        optimizer: MakeOptimizer | None,
        leaves: Leaves | None,
        options: Options,
    ) -> None:
        self.parts, self.layout, self.options = parts, layout, options
        self._loss, self._leaves = loss, leaves
        self._counts: list[Tensor] = []
        self._sums: list[Tensor] = []
        if options.compile is not None:
            for stage in parts.stages:
                stage.compile(backend=options.compile)
        self._pipeline: Pipeline | None = None
        if layout.choice.pp > 1:
            assert leaves is not None
            self._pipeline = Pipeline(parts, layout, leaves, self._loss_of)
        self._batches: list[Any] = []
        trained = [(n, p) for n, p in parts.parameters.items() if p.requires_grad]
        made = optimizer(trained) if optimizer is not None and trained else []
        self.optimizers: list[Any] = list(made) if isinstance(made, list | tuple) else [made]
        self.asks_to_stop = False
        """Whether this rank was told to end; the others hear of it with the loss of a step."""
        self.told_to_stop = False
        """Whether any rank was told to end, as of the latest step."""
        self.gradient_norm: float | None = None
        """The norm of the latest step's gradients, where they are clipped."""

    @property
    def device(self) -> str:
        return self.layout.device

    def step(self, batch: Any) -> float:
        """Takes a step on the rows of this rank, and gives the mean loss over all ranks."""
        mean = self.backward(batch)
        self.update()
        return mean

    def update(self) -> None:
        """Clips the gradients and lets the optimisers step."""
        if self.options.clip is not None:
            self.gradient_norm = float(gradients.clip(self.parts, self.layout, self.options.clip))
        for optimizer in self.optimizers:
            optimizer.step()

    def backward(self, batch: Any, *, train: bool = True) -> float:
        """The gradients of the mean loss over all ranks, without a step; `train=False` as the
        module is in eval mode."""
        for stage in self.parts.stages:
            stage.train(train)
        gradients.zero(self.parts.parameters.values())
        total, count = self._run(batch, train=True)
        gradients.finish(self.parts, self.layout, count)
        return float(total / count.clamp(min=1e-30))

    @torch.no_grad()
    def eval(self, batch: Any) -> float:
        """The mean loss over all ranks, in eval mode, without gradients."""
        total, count = self.sums(batch)
        return float(total / count.clamp(min=1e-30))

    @torch.no_grad()
    def sums(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The sum of the losses and of the counts over all ranks, in eval mode."""
        for stage in self.parts.stages:
            stage.eval()
        return self._run(batch, train=False)

    def _run(self, batch: Any, *, train: bool) -> tuple[Tensor, Tensor]:
        """The sums of losses and counts over all ranks; gradients are left as sums."""
        pipeline = self._pipeline
        choice = self.layout.choice
        moved = to_device(batch, self.device)
        self._batches = microbatches(moved, choice.microbatches, equal=pipeline is not None)
        self._sums, self._counts = [], []
        if pipeline is not None:
            pipeline.run(self._batches, train=train)
        else:
            self._one_by_one(train)
        self._batches = []
        return self._over_all()

    def _one_by_one(self, train: bool) -> None:
        (stage,) = self.parts.stages
        last = len(self._batches) - 1
        for number, batch in enumerate(self._batches):
            with self._sync(stage, number == last), self.options.precision.autocast(self.device):
                if self._leaves is None:
                    output = stage(batch)
                else:
                    output = self._leaves.put_back(stage(*pytree.tree_leaves(batch)))
                loss = self._loss_of(output, number)
            if train:
                with self._sync(stage, number == last):
                    loss.backward()

    @contextlib.contextmanager
    def _sync(self, stage: nn.Module, last: bool) -> Any:
        """Gradients are reduced with the last microbatch alone."""
        if isinstance(stage, FSDPModule):
            stage.set_requires_gradient_sync(last)
        if isinstance(stage, DistributedDataParallel) and not last:
            with stage.no_sync():
                yield
        else:
            yield

    def _loss_of(self, output: Any, number: int) -> Tensor:
        output, batch = without_padding(output, self._batches[number])
        found = self._loss(output, batch)
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], Tensor):
            raise PlanError(
                "loss(output, batch) returns (sum, count): the sum of the losses of the rows or "
                f"tokens, as a tensor, and their number; it returned {type(found).__name__}"
            )
        total, count = found
        if total.dim():
            raise PlanError(
                f"the sum that loss returns has the shape {tuple(total.shape)}: add it up"
            )
        self._sums.append(total.detach().double())
        self._counts.append(
            torch.as_tensor(count, dtype=torch.float64, device=self.device).detach()
        )
        return total

    def _over_all(self) -> tuple[Tensor, Tensor]:
        """Sums over the ranks that computed a loss, told to all: one for each reader."""
        own = torch.zeros(3, dtype=torch.float64, device=self.device)
        own[2] = self.asks_to_stop
        if self._sums and self.layout.at("tp") == 0:
            own[0], own[1] = sum(self._sums), sum(self._counts)
        total, count, asking = self.layout.sum(own)
        self.told_to_stop = bool(asking > 0)
        if not count > 0:
            raise PlanError("loss counted nothing in this step: count is 0 on all ranks")
        return total, count
