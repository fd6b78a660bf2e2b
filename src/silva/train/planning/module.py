"""What is found in an unmodified module before its parts are timed."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from silva.errors import PlanError
from silva.train.batches import Loss
from silva.train.choice import Choice
from silva.train.graph.cuts import Cut, choose_cuts, natural_cuts, possible_cuts
from silva.train.graph.divide import Part, divide
from silva.train.graph.groups import Found, Group, find_groups
from silva.train.graph.pieces import operators
from silva.train.graph.trace import Caller, CannotTrace, Traced, caller, trace
from silva.train.graph.values import work_of

_MOST_UNITS = 64
"""Parts of a module that are timed, gathered or recomputed one by one, at most."""


@dataclass(frozen=True, eq=False)
class Module:
    """What was found in an unmodified module, for one batch."""

    model: nn.Module
    batch: Any
    call: Caller
    traced: Traced | None
    why_not: str | None
    """Why it has no graph; None if it has one."""
    cuts: tuple[Cut, ...] = ()
    groups: Mapping[int, Found] = field(default_factory=dict)
    """Groups of weights, by the number of parts."""
    kept: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """What the user keeps from being sharded: patterns of names."""

    @property
    def natural(self) -> list[Cut]:
        return natural_cuts(self.cuts, _MOST_UNITS)


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that a rank needs of a plan."""

    choice: Choice
    module: Module
    loss: Loss
    global_rows: int
    """Rows of a step over all ranks."""

    def chosen_cuts(self) -> list[Cut]:
        """Where the stages begin."""
        traced, stages = self.module.traced, self.choice.stages
        if stages == 1 or traced is None:
            return []
        work = {node: one.flops + one.nbytes for node, one in work_of(traced).items()}
        return choose_cuts(cuts_of(self.module, self.choice.tp), work, operators(traced), stages)


def look(
    model: nn.Module | Callable[[], nn.Module],
    batch: Any,
    *,
    inputs: Mapping[str, str] | None = None,
    call: Caller | None = None,
    **_: Any,
) -> Module:
    """What there is to know of a module before its parts are timed."""
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise PlanError(f"plan takes a torch module, not {type(model).__name__}")
        with torch.device("meta"):
            model = model()
        if not isinstance(model, nn.Module):
            raise PlanError(f"the function gave {type(model).__name__}, and no torch module")
    how = call if call is not None else caller(model, inputs)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise PlanError("no parameter of the module requires a gradient: there is nothing to train")
    was = model.training
    model.train()
    try:
        traced = trace(model, _on_device_of(model, batch), how)
    except CannotTrace as error:
        return Module(model, batch, how, None, str(error))
    finally:
        model.train(was)
    return Module(model, batch, how, traced, None, tuple(possible_cuts(traced, trainable)))


def _on_device_of(model: nn.Module, batch: Any) -> Any:
    if not any(p.is_meta for p in model.parameters()):
        return batch
    return pytree.tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, batch)


def with_groups(module: Module, parts: int) -> Module:
    """The module with its groups of weights for so many parts."""
    if parts == 1 or parts in module.groups or module.traced is None:
        return module
    found = find_groups(module.traced, parts)
    groups = tuple(g for g in found.groups if not _is_kept(module, g))
    why = dict(found.why_not)
    for group in found.groups:
        if _is_kept(module, group):
            names = (module.traced.states[name] for name in group.names)
            why.update(dict.fromkeys(names, "you keep it whole"))
    kept = Found(parts, groups, why)
    return replace(module, groups={**module.groups, parts: kept})


def _is_kept(module: Module, group: Group) -> bool:
    assert module.traced is not None
    names = [module.traced.states[name] for name in group.names]
    return any(matches(name, pattern) for name in names for pattern, _ in module.kept)


def matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")


def cuts_of(module: Module, parts: int) -> tuple[Cut, ...]:
    """The places where a divided graph can be cut: none is within a group."""
    found = module.groups.get(parts)
    if parts == 1 or found is None or not found.groups or module.traced is None:
        return module.cuts
    trainable = {n for n, p in module.model.named_parameters() if p.requires_grad}
    divided = divide(module.traced, found, Part(0, parts, ""), trainable)
    names = {node.name: str(node.meta.get("origin", node.name)) for node in operators(divided)}
    allowed = {names[cut.before] for cut in possible_cuts(divided, trainable)}
    return tuple(cut for cut in module.cuts if cut.before in allowed)
