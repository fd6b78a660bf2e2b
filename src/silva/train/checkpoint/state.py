"""What a trainer has to keep: its parameters, buffers and the state of its optimisers, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from silva.train.checkpoint.manifest import CheckpointError
from silva.train.graph.shards import Shard
from silva.train.running.gradients import local
from silva.train.running.trainer import Trainer


@dataclass(frozen=True)
class Held:
    """A tensor that this rank holds, or a part of it."""

    name: str
    tensor: Tensor
    shard: Shard | None
    owner: bool
    """Whether this rank is the first of those that hold the same."""


def held(trainer: Trainer) -> Iterator[Held]:
    """The parameters, buffers and optimiser states of a rank."""
    parts, layout = trainer.parts, trainer.layout
    for name, parameter in parts.parameters.items():
        shard = parts.shards.get(name)
        yield Held(f"model.{name}", parameter.detach(), shard, _owns(name, parameter, trainer))
    for name, buffer in parts.buffers.items():
        yield Held(f"model.{name}", buffer, None, _owns(name, buffer, trainer))
    names = {id(p): n for n, p in parts.parameters.items()}
    for number, optimizer in enumerate(trainer.optimizers):
        for parameter, state in optimizer.state.items():
            name = names[id(parameter)]
            for key, value in state.items():
                if isinstance(value, Tensor):
                    same = value.shape == parameter.shape
                    shard = parts.shards.get(name) if same else None
                    owner = _owns(name, value, trainer) and (same or layout.at("tp") == 0)
                    yield Held(f"optimizer.{number}.{name}.{key}", value, shard, owner)


def _owns(name: str, tensor: Tensor, trainer: Trainer) -> bool:
    """Whether this rank writes its part: the first replica, the first of `fsdp` and of `tp` for
    what is whole there, the first stage of a parameter that several have."""
    parts, layout = trainer.parts, trainer.layout
    if layout.at("fsdp") and not isinstance(tensor, DTensor):
        return False
    if layout.at("dp") or (name not in parts.shards and layout.at("tp")):
        return False
    return parts.owners[name][0] == layout.at("pp")


def without_tensors(trainer: Trainer) -> list[dict[str, Any]]:
    """What optimisers have beside tensors, as plain values."""
    names = {id(p): n for n, p in trainer.parts.parameters.items()}
    found = []
    for optimizer in trainer.optimizers:
        groups = []
        for group in optimizer.param_groups:
            plain = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            for key, value in plain.items():
                plain[key] = _plain(key, value)
            groups.append({"options": plain, "params": [names[id(p)] for p in group["params"]]})
        numbers: dict[str, dict[str, Any]] = {}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if not isinstance(value, Tensor):
                    numbers.setdefault(names[id(parameter)], {})[key] = _plain(key, value)
        found.append({"groups": groups, "numbers": numbers})
    return found


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(key, one) for one in value]
    raise CheckpointError(
        f"the optimiser's {key!r} is {type(value).__name__}, which a checkpoint cannot hold"
    )


def make_states(trainer: Trainer) -> None:
    """Makes the states that optimisers make in their first step, without changing a parameter: by
    a step with gradients of 0 and a learning rate of 0."""
    for optimizer in trainer.optimizers:
        if optimizer.state:
            continue
        before = [(group, dict(group)) for group in optimizer.param_groups]
        values = [
            (p, local(p).detach().clone()) for g in optimizer.param_groups for p in g["params"]
        ]
        for group, _ in before:
            group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        for group, old in before:
            group["lr"] = old["lr"]
        with torch.no_grad():
            for parameter, value in values:
                local(parameter).copy_(value)  # weight decay of 0 times the rate, whatever it does
                parameter.grad = None


def drop_states(trainer: Trainer, stored: set[str]) -> None:
    """Removes the states of parameters that had none, since they never had a gradient."""
    for number, optimizer in enumerate(trainer.optimizers):
        for name, parameter in trainer.parts.parameters.items():
            state = optimizer.state.get(parameter, {})
            keys = [key for key, value in state.items() if isinstance(value, Tensor)]
            if keys and not any(f"optimizer.{number}.{name}.{key}" in stored for key in keys):
                del optimizer.state[parameter]


def apply(trainer: Trainer, stored: list[dict[str, Any]]) -> None:
    """Puts options and numbers of optimisers back."""
    if len(stored) != len(trainer.optimizers):
        raise CheckpointError(
            f"the checkpoint has {len(stored)} optimisers, and the job {len(trainer.optimizers)}"
        )
    for optimizer, one in zip(trainer.optimizers, stored, strict=True):
        by_name = {n: g["options"] for g in one["groups"] for n in g["params"]}
        names = {id(p): n for n, p in trainer.parts.parameters.items()}
        for group in optimizer.param_groups:
            found = [by_name[n] for p in group["params"] if (n := names[id(p)]) in by_name]
            for key, value in (found[0] if found else {}).items():
                old = group.get(key)
                group[key] = tuple(value) if isinstance(old, tuple) else value
        for parameter, state in optimizer.state.items():
            state.update(one["numbers"].get(names[id(parameter)], {}))
