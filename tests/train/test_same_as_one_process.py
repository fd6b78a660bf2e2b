"""Every plan gives the loss and the gradients of a single process, on unmodified models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.train.models import MODELS, loss, make
from tests.train.ranks import Ranks
from torch import Tensor

from silva.fabric.topology import Device, Link, Topology
from silva.train.batches import microbatches
from silva.train.choice import Choice
from silva.train.graph.trace import tensors_of
from silva.train.plan import Plan
from silva.train.planning.module import Recipe, look, with_groups
from silva.train.running.boxes import boxes, slices
from silva.train.running.gradients import local
from silva.train.running.trainer import Trainer

LOSS, GRADIENT = 1e-5, 1e-5
"""Relative differences that are allowed."""

TWO = {
    "ddp": Choice(dp=2),
    "fsdp": Choice(fsdp=2),
    "tp": Choice(tp=2),
    "pp": Choice(pp=2, microbatches=4),
    "gpipe": Choice(pp=2, microbatches=2, schedule="gpipe"),
    "interleaved": Choice(pp=2, microbatches=4, schedule="interleaved", rounds=2),
    "accumulated": Choice(dp=2, microbatches=2),
    "recomputing": Choice(dp=2, recompute=True),
}
FOUR = {
    "fsdp × tp": Choice(fsdp=2, tp=2),
    "pp × dp": Choice(pp=2, dp=2, microbatches=2),
    "pp × tp": Choice(pp=2, tp=2, microbatches=2),
    "pp × fsdp": Choice(pp=2, fsdp=2, microbatches=2),
    "dp × fsdp": Choice(dp=2, fsdp=2),
}
IMPOSSIBLE = {
    (kind, name) for kind in ("tp", "fsdp × tp", "pp × tp") for name in ("resnet", "batchnorm")
}
"""Normalisations over channels cannot be run on parts: no weight can be sharded."""


def topology(world: int) -> Topology:
    devices = tuple(Device(f"rank{i}", "here") for i in range(world))
    return Topology(devices, (Link("here", "here", 1e-4, 1e9),))


def plan_of(name: str, choice: Choice) -> Plan:
    model, batch = make(name)
    module = with_groups(look(model, batch), choice.tp)
    assert choice.tp == 1 or module.groups[choice.tp].groups
    recipe = Recipe(choice, module, loss, len(next(iter(batch.values()))))
    return Plan(recipe, topology(choice.world))


def share(batch: dict[str, Tensor], reader: int, readers: int) -> dict[str, Tensor]:
    return {name: value.chunk(readers)[reader] for name, value in batch.items()}


def alone(name: str, choice: Choice) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients of one process, over the same slices: BatchNorm sees each."""
    model, batch = make(name)
    model.train()
    total, count = torch.zeros(()), torch.zeros(())
    for reader in range(choice.readers):
        mine = share(batch, reader, choice.readers)
        for part in microbatches(mine, choice.microbatches, equal=True):
            one, number = loss(tensors_of(model(**part))[0], part)
            total, count = total + one, count + number
    (total / count).backward()
    named = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return float((total / count).detach()), named


def differences(name: str, choice: Choice) -> tuple[float, float]:
    """On a rank: how far the loss and the worst gradient are from those of one process."""
    plan = plan_of(name, choice)
    trainer = plan.build(verify=True)
    wanted, gradients = alone(name, choice)
    _, batch = make(name)
    found = trainer.backward(share(batch, trainer.layout.reader, choice.readers))
    return abs(found - wanted) / abs(wanted), worst(trainer, gradients)


def worst(trainer: Trainer, gradients: dict[str, Tensor]) -> float:
    largest = max(float(g.abs().max()) for g in gradients.values())
    off = 0.0
    for name, parameter in trainer.parts.parameters.items():
        own: Any = parameter.grad
        if own is None:
            assert name not in gradients or not gradients[name].any(), name
            continue
        for box in boxes(parameter, trainer.parts.shards.get(name), trainer.layout):
            here = local(own)[slices(box.here, box.shape)]
            there = gradients[name][slices(box.there, box.shape)]
            off = max(off, float((here - there).abs().max()) / largest)
    return off


@pytest.mark.parametrize("name", ["encoder"])
@pytest.mark.parametrize("choice", TWO)
def test_two_ranks_give_the_loss_and_gradients_of_one(ranks: Ranks, name: str, choice: str) -> None:
    check(ranks, name, choice, TWO[choice])


@pytest.mark.rest
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("choice", ["ddp", "fsdp", "tp", "pp", "interleaved"])
def test_every_model_gives_the_loss_and_gradients_of_one_on_two_ranks(
    ranks: Ranks, name: str, choice: str
) -> None:
    check(ranks, name, choice, TWO[choice])


@pytest.mark.rest
@pytest.mark.parametrize("name", ["gpt2", "llama", "encoder"])
@pytest.mark.parametrize("choice", FOUR)
def test_four_ranks_give_the_loss_and_gradients_of_one(
    ranks: Ranks, name: str, choice: str
) -> None:
    check(ranks, name, choice, FOUR[choice])


def check(ranks: Ranks, name: str, kind: str, choice: Choice) -> None:
    if (kind, name) in IMPOSSIBLE:
        model, batch = make(name)
        module = with_groups(look(model, batch), choice.tp)
        assert not module.groups[choice.tp].groups
        assert any("norm" in why for why in module.groups[choice.tp].why_not.values())
        return
    found = ranks.run(choice.world, __name__, "differences", name, choice)
    for off, gradient in found:
        assert off <= LOSS
        assert gradient <= GRADIENT
