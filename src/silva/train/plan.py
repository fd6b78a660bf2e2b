"""Plans: how a module is trained on a topology, and why so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from silva.cost.machine import parse_bytes
from silva.cost.trace import Trace
from silva.errors import PlanError
from silva.fabric.topology import Topology
from silva.folders import write_file
from silva.plan.arguments import path_of
from silva.plan.decision import Decision
from silva.train.batches import Loss, MakeOptimizer, rows_of
from silva.train.choice import Choice
from silva.train.explain import explain
from silva.train.graph.trace import Caller
from silva.train.planning.candidates import check_required
from silva.train.planning.choose import choose
from silva.train.planning.module import Module, Recipe, look, matches, with_groups
from silva.train.planning.price import Price
from silva.train.running.build import build
from silva.train.running.layout import agreed
from silva.train.running.trainer import Trainer

_VERSION = 1
"""Of the format of a saved plan."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How to train a module on a topology, and why so.

    `explain()` shows the candidates, `simulate()` the trace of a step, `build()` makes the trainer
    of this rank, `keep` and `require` change the plan.
    """

    recipe: Recipe
    topology: Topology
    prices: tuple[Price, ...] = ()
    """The candidates that were simulated, the fastest first."""
    defaults: tuple[Price, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why a choice is not possible."""
    required: Mapping[str, Any] = field(default_factory=dict)
    memory: int | None = None
    decision: Decision | None = None

    def explain(self) -> str:
        """The candidates side by side, and what is sharded how."""
        return explain(self)

    @property
    def choice(self) -> Choice:
        return self.recipe.choice

    @property
    def module(self) -> Module:
        return self.recipe.module

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"<Plan: {self.choice}>"

    @property
    def price(self) -> Price | None:
        """What the choice is predicted to take."""
        every = (*self.prices, *self.defaults)
        return next((one for one in every if one.choice == self.choice), None)

    def simulate(self) -> Trace:
        """A step of the plan as it is predicted: which device does what and when."""
        found = self.price
        if found is None or found.trace is None:
            raise PlanError(
                "a plan that was loaded has no measurements: make it anew to simulate it"
            )
        return found.trace

    def require(self, **required: int | str | bool) -> Plan:
        """The best plan with parts of the choice as given: `plan.require(pp=2)`."""
        check_required(required)
        return _planned(self.recipe, self.topology, self.memory, {**self.required, **required})

    def keep(self, pattern: str, *, tp: bool) -> Plan:
        """The best plan in which the weights whose names match are not sharded by `tp`:
        `plan.keep("blocks.*.attn", tp=False)`."""
        if tp:
            raise PlanError(
                "keep(…, tp=False) keeps weights whole; tp=True is what a plan does anyway"
            )
        names = [name for name, _ in self.module.model.named_parameters()]
        if not any(matches(name, pattern) for name in names):
            raise PlanError(
                f"no parameter matches {pattern!r}; there are {', '.join(names[:5])}, …"
            )
        kept = (*self.module.kept, (pattern, {"tp": False}))
        module = replace(self.module, kept=kept, groups={})
        recipe = replace(self.recipe, module=module)
        return _planned(recipe, self.topology, self.memory, self.required)

    def build(self, optimizer: MakeOptimizer | None = None, **options: Any) -> Trainer:
        """The trainer of this rank, inside torchrun or a Ray Train worker.

        A tiny step is compared with a single process first, unless `verify=False`.
        """
        return build(self.recipe, optimizer, **options)

    def save(self, path: str | Path) -> Path:
        """Writes the choice, and what it was made for, as JSON."""
        data = {
            "version": _VERSION,
            "choice": vars(self.choice),
            "global_batch": self.recipe.global_rows,
            "kept": [[pattern, dict(what)] for pattern, what in self.module.kept],
            "devices": len(self.topology),
        }
        text = json.dumps(data, indent=1) + "\n"
        return write_file(
            path_of("plan.save(…)", path), text, "The plan is incomplete: free some space"
        )


def load(path: str | Path, model: Any, batch: Any, *, loss: Loss, **more: Any) -> Plan:
    """A plan that was saved, for the same module; nothing is measured."""
    file = path_of("train.load(…)", path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            raise PlanError(
                f"{file} has the format {data['version']}, and this silva reads {_VERSION}"
            )
        choice = Choice(**data["choice"])
        kept = tuple((str(p), dict(what)) for p, what in data["kept"])
        rows = int(data["global_batch"])
    except OSError as error:
        raise PlanError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{file} is no plan: {type(error).__name__}: {error}") from error
    module = replace(look(model, batch, **more), kept=kept)
    topology = more.get("on") or Topology.here(choice.world)
    return Plan(Recipe(choice, with_groups(module, choice.tp), loss, rows), topology)


def plan(
    model: nn.Module | Callable[[], nn.Module],
    batch: Any,
    *,
    loss: Loss,
    on: Topology | None = None,
    memory: int | str | None = None,
    global_batch: int | None = None,
    inputs: Mapping[str, str] | None = None,
    call: Caller | None = None,
) -> Plan:
    """Plans how to train a module on a topology.

    `batch` is an example: the rows of one step over all devices, unless `global_batch` says how
    many there are. `loss(output, batch)` gives the sum of the losses and their count. `model` is a
    module, or a function without arguments that makes one. Its `forward` gets the columns that are
    named after its parameters; `inputs={"x": "image"}` or `call=lambda model, batch: …` says
    otherwise. `memory` is what a device may hold, where the topology does not say.
    """
    topology = on if on is not None else Topology.here()
    if not isinstance(topology, Topology):
        raise PlanError(f"plan(on=…) takes an sv.Topology, not {type(topology).__name__}")
    if not callable(loss):
        raise PlanError("plan(loss=…) takes a function loss(output, batch) -> (sum, count)")
    rows = global_batch if global_batch is not None else rows_of(batch)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PlanError(f"plan(global_batch=…) takes a whole number from 1 on, not {rows!r}")
    limit = None if memory is None else parse_bytes(memory)
    module = look(model, batch, inputs=inputs, call=call)
    return _planned(Recipe(Choice(), module, loss, rows), topology, limit, {})


def _planned(
    recipe: Recipe, topology: Topology, memory: int | None, required: Mapping[str, Any]
) -> Plan:
    """The best plan for what a recipe says of module, loss and rows."""
    found = choose(recipe.module, topology, recipe.global_rows, memory, required)
    choice = agreed(found.best.choice, len(topology))
    made = replace(recipe, choice=choice, module=with_groups(found.module, choice.tp))
    return Plan(
        made,
        topology,
        found.prices,
        found.defaults,
        found.refused,
        required,
        memory,
        found.decision,
    )
