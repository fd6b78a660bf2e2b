"""Plans: which way to train a module was chosen, and what else there was."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from silva.cost.trace import Trace
from silva.errors import PlanError
from silva.fabric.topology import Topology
from silva.folders import write_file
from silva.plan.arguments import path_of
from silva.plan.decision import Decision, Quantity
from silva.train.choice import Choice
from silva.train.graph.cuts import Cut, natural_cuts, possible_cuts
from silva.train.graph.divide import Part, divide
from silva.train.graph.groups import Found, Group, find_groups
from silva.train.graph.pieces import operators, spans
from silva.train.graph.trace import Caller, CannotTrace, Traced, caller, trace
from silva.train.graph.values import bytes_of, differentiable, work_of
from silva.train.planning.candidates import Limits, candidates, check_required, defaults, divisors
from silva.train.planning.measure import Timing, measure
from silva.train.planning.price import Facts, Price, price
from silva.train.running.batches import rows_of

if TYPE_CHECKING:
    from silva.train.running.trainer import Loss, MakeOptimizer, Trainer

GAIN = 1.1
"""A way that is not so many times as fast as the default is not used."""
_MOST_UNITS = 64
"""Parts of a module that are timed, gathered or recomputed one by one, at most."""
_SIMULATED = 48
"""Choices that are simulated: those with the smallest bounds."""
_VERSION = 1


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
class Plan:
    """How to train a module on a topology, and why so.

    `explain()` shows the candidates, `simulate()` the trace of a step, `build()` makes the trainer of
    this rank, `keep` and `require` change the plan.
    """

    choice: Choice
    module: Module
    topology: Topology
    loss: Loss
    global_rows: int
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
        from silva.train.planning.explain import explain

        return explain(self)

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
            raise PlanError("a plan that was loaded has no measurements: make it anew to simulate it")
        return found.trace

    def require(self, **required: int | str | bool) -> Plan:
        """The best plan with parts of the choice as given: `plan.require(pp=2)`."""
        check_required(required)
        return _choose(
            self.module, self.topology, self.loss, self.global_rows, self.memory,
            {**self.required, **required},
        )  # fmt: skip

    def keep(self, pattern: str, *, tp: bool) -> Plan:
        """The best plan in which the weights whose names match are not sharded by `tp`:
        `plan.keep("blocks.*.attn", tp=False)`."""
        if tp:
            raise PlanError("keep(…, tp=False) keeps weights whole; tp=True is what a plan does anyway")
        names = [name for name, _ in self.module.model.named_parameters()]
        if not any(_matches(name, pattern) for name in names):
            raise PlanError(f"no parameter matches {pattern!r}; there are {', '.join(names[:5])}, …")
        kept = (*self.module.kept, (pattern, {"tp": False}))
        module = replace(self.module, kept=kept, groups={})
        return _choose(
            module, self.topology, self.loss, self.global_rows, self.memory, self.required
        )

    def build(self, optimizer: MakeOptimizer | None = None, **options: Any) -> Trainer:
        """The trainer of this rank, inside torchrun or a Ray Train worker.

        A tiny step is compared with a single process first, unless `verify=False`.
        """
        from silva.train.running.build import build

        return build(self, optimizer, **options)

    def save(self, path: str | Path) -> Path:
        """Writes the choice, and what it was made for, as JSON."""
        data = {
            "version": _VERSION,
            "choice": vars(self.choice),
            "global_batch": self.global_rows,
            "kept": [[pattern, dict(what)] for pattern, what in self.module.kept],
            "devices": len(self.topology),
        }
        text = json.dumps(data, indent=1) + "\n"
        return write_file(path_of("plan.save(…)", path), text, "The plan is incomplete: free some space")


def load(path: str | Path, model: Any, batch: Any, *, loss: Loss, **more: Any) -> Plan:
    """A plan that was saved, for the same module; nothing is measured."""
    file = path_of("train.load(…)", path)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            raise PlanError(f"{file} has the format {data['version']}, and this silva reads {_VERSION}")
        choice = Choice(**data["choice"])
        kept = tuple((str(p), dict(what)) for p, what in data["kept"])
        rows = int(data["global_batch"])
    except OSError as error:
        raise PlanError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{file} is no plan: {type(error).__name__}: {error}") from error
    module = replace(look(model, batch, **more), kept=kept)
    topology = more.get("on") or Topology.here(choice.world)
    return Plan(choice, with_groups(module, choice.tp), topology, loss, rows)


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
    from silva.cost.machine import parse_bytes

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
    return _choose(module, topology, loss, rows, limit, {})


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
    return any(_matches(name, pattern) for name in names for pattern, _ in module.kept)


def _matches(name: str, pattern: str) -> bool:
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


def _choose(
    module: Module,
    topology: Topology,
    loss: Loss,
    rows: int,
    memory: int | None,
    required: Mapping[str, Any],
) -> Plan:
    """The fastest choice that fits, or the default if nothing is much faster."""
    world = len(topology)
    degrees = [n for n in divisors(world) if n > 1] if module.traced is not None else []
    for parts in degrees:
        if required.get("tp", parts) == parts:
            module = with_groups(module, parts)
    possible = frozenset(n for n in degrees if n in module.groups and module.groups[n].groups)
    limits = Limits(rows, len(module.cuts) + 1, possible | {1}, module.traced is not None, required)
    facts = _facts(module)
    speed = _speed(topology)
    refused: dict[str, str] = {}
    found = _prices(list(candidates(world, limits)), facts, module, topology, rows, speed, refused)
    plain = _prices(defaults(world, limits), facts, module, topology, rows, speed, refused)
    found, plain = [_within(one, memory) for one in found], [_within(one, memory) for one in plain]
    fitting = sorted((one for one in found if one.fits), key=lambda one: one.seconds)
    default = next((one for one in plain if one.fits and _allowed(one, required)), None)
    if not fitting and default is None:
        raise PlanError(_nothing_fits(found, plain, world, rows, refused))
    best = fitting[0] if fitting else default
    assert best is not None
    if default is not None and default.seconds <= best.seconds * GAIN:
        best = default
    return Plan(
        best.choice, with_groups(module, best.choice.tp), topology, loss, rows, tuple(fitting or found),
        tuple(plain), refused, required, memory, _decision(best, default),
    )  # fmt: skip


def _within(one: Price, memory: int | None) -> Price:
    return one if memory is None else replace(one, limit=min(memory, one.limit or memory))


def _allowed(one: Price, required: Mapping[str, Any]) -> bool:
    return all(getattr(one.choice, name) == value for name, value in required.items())


def _decision(best: Price, default: Price | None) -> Decision:
    seconds = Quantity(best.seconds, "s a step", higher_is_better=False)
    without = None if default is None else replace(seconds, value=default.seconds)
    why = "nothing else is a tenth faster" if best is default else "the fastest that fits"
    return Decision(str(best.choice), why, seconds, default=without, bound=replace(seconds, value=best.compute))


def _nothing_fits(
    found: Sequence[Price], plain: Sequence[Price], world: int, rows: int, refused: Mapping[str, str]
) -> str:
    every = [*found, *plain]
    if not every:
        said = "; ".join(dict.fromkeys(refused.values())) or (
            f"{rows} rows do not divide among {world} devices"
        )
        return f"there is no way to train the module on {world} devices: {said}"
    least = min(every, key=lambda one: one.memory)
    return (
        f"no way to train the module on {world} devices fits: the smallest ({least.choice}) needs "
        f"{least.memory / 1e9:.3g} GB of {(least.limit or 0) / 1e9:.3g} GB a device"
    )


def _facts(module: Module) -> Facts | None:
    """What the simulator needs; parts are timed here, on real tensors."""
    traced = module.traced
    if traced is None:
        return None
    trainable = {n for n, p in module.model.named_parameters() if p.requires_grad}
    flows = differentiable(traced, trainable)
    parts = spans(traced, [cut.position for cut in module.natural], flows)
    timings = measure(traced, parts, work_of(traced), module.batch, module.model)
    owner: dict[Any, int] = {}
    seen: set[str] = set()
    total = trained = 0
    for node in operators(traced):
        for arg in node.all_input_nodes:
            name = traced.states.get(arg.name)
            if name is not None and name not in seen:
                seen.add(name)
                owner[node] = owner.get(node, 0) + bytes_of(arg)
                total += bytes_of(arg)
                trained += bytes_of(arg) if name in trainable else 0
    return Facts(
        operators(traced), timings, flows, module.cuts, module.groups, owner,
        trained / total if total else 1.0, rows_of(module.batch),
    )  # fmt: skip


def _speed(topology: Topology) -> float:
    """How many times as fast as one core here the devices of a topology compute."""
    from silva.fabric.here import flops_here

    device = topology.devices[0]
    there = device.flops.get("float32")
    if device.kind == "cpu" or there is None:
        return 1.0
    return there / flops_here()


def _prices(
    choices: Sequence[Choice],
    facts: Facts | None,
    module: Module,
    topology: Topology,
    rows: int,
    speed: float,
    refused: dict[str, str],
) -> list[Price]:
    """The prices of the choices with the smallest lower bounds."""
    if facts is None:
        return [_without_graph(one, module, topology) for one in choices]
    total = sum(t.forward.per_row + t.backward.per_row for t in facts.timings.values()) * rows
    calls = sum(t.forward.constant + t.backward.constant for t in facts.timings.values())

    def bound(one: Choice) -> float:
        """Seconds of the busiest device if nothing had to be sent."""
        idle = 1 + (one.pp - 1) / (one.microbatches * one.rounds)
        again = 4 / 3 if one.recompute else 1.0
        each = total / one.world + calls * one.microbatches / one.pp
        return each * idle * again

    found = []
    for one in sorted(choices, key=bound)[:_SIMULATED]:
        try:
            found.append(price(one, replace(facts, cuts=cuts_of(module, one.tp)), topology, rows, speed))
        except PlanError as error:
            refused[str(one)] = str(error)
    return found


def _without_graph(choice: Choice, module: Module, topology: Topology) -> Price:
    """A module without a graph is not timed: replicas come before shared parameters."""
    held = sum(p.numel() * p.element_size() for p in module.model.parameters()) * 4
    memory = held // choice.fsdp
    limit = min((d.memory for d in topology.devices if d.memory is not None), default=None)
    return Price(choice, 1.0 + 0.2 * (choice.fsdp > 1), memory, limit, 1.0, 0.0)


__all__ = ["Plan", "Timing", "load", "plan"]
