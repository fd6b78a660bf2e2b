"""Chooses among the ways to train a module: the fastest that fits, or the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from silva.errors import PlanError
from silva.fabric.here import flops_here
from silva.fabric.topology import Topology
from silva.plan.decision import Decision, Quantity
from silva.train.batches import rows_of
from silva.train.choice import Choice
from silva.train.graph.pieces import operators, spans
from silva.train.graph.values import bytes_of, differentiable, work_of
from silva.train.planning.candidates import Limits, candidates, defaults, divisors
from silva.train.planning.measure import measure
from silva.train.planning.module import Module, cuts_of, with_groups
from silva.train.planning.price import Facts, Price, price

GAIN = 1.1
"""A way that is not so many times as fast as the default is not used."""
_OF_EACH = 2
"""Choices of the same degrees that are simulated: those with the smallest bounds."""
_SIMULATED = 192
"""Choices that are simulated at most."""


@dataclass(frozen=True)
class Chosen:
    """What was chosen, and what else there was."""

    module: Module
    best: Price
    prices: tuple[Price, ...]
    """The candidates that were simulated and fit, the fastest first."""
    defaults: tuple[Price, ...]
    refused: Mapping[str, str]
    """Why a choice is not possible."""
    decision: Decision


def choose(
    module: Module,
    topology: Topology,
    rows: int,
    memory: int | None,
    required: Mapping[str, Any],
) -> Chosen:
    """The fastest choice that fits, or the default if nothing is a tenth faster."""
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
    ready = with_groups(module, best.choice.tp)
    shown = tuple(fitting or found)
    return Chosen(ready, best, shown, tuple(plain), refused, _decision(best, default))


def _within(one: Price, memory: int | None) -> Price:
    return one if memory is None else replace(one, limit=min(memory, one.limit or memory))


def _allowed(one: Price, required: Mapping[str, Any]) -> bool:
    return all(getattr(one.choice, name) == value for name, value in required.items())


def _decision(best: Price, default: Price | None) -> Decision:
    seconds = Quantity(best.seconds, "s a step", higher_is_better=False)
    without = None if default is None else replace(seconds, value=default.seconds)
    why = "nothing else is a tenth faster" if best is default else "the fastest that fits"
    return Decision(
        str(best.choice), why, seconds, default=without, bound=replace(seconds, value=best.compute)
    )


def _nothing_fits(
    found: Sequence[Price],
    plain: Sequence[Price],
    world: int,
    rows: int,
    refused: Mapping[str, str],
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
        trained / total if total else 1.0, rows_of(module.batch), len(parts),
    )  # fmt: skip


def _speed(topology: Topology) -> float:
    """How many times as fast as one core here the devices of a topology compute."""
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
    for one in _shortlist(choices, bound):
        try:
            found.append(
                price(one, replace(facts, cuts=cuts_of(module, one.tp)), topology, rows, speed)
            )
        except PlanError as error:
            refused[str(one)] = str(error)
    return found


def _shortlist(choices: Sequence[Choice], bound: Callable[[Choice], float]) -> list[Choice]:
    """The most promising choices: of all degrees, since a bound knows nothing of links."""
    taken: dict[tuple[int, ...], int] = {}
    found = []
    for one in sorted(choices, key=bound):
        degrees = one.dp, one.fsdp, one.tp, one.pp
        taken[degrees] = taken.get(degrees, 0) + 1
        if taken[degrees] <= _OF_EACH:
            found.append(one)
    return found[:_SIMULATED]


def _without_graph(choice: Choice, module: Module, topology: Topology) -> Price:
    """A module without a graph is not timed: replicas come before shared parameters."""
    held = sum(p.numel() * p.element_size() for p in module.model.parameters()) * 4
    memory = held // choice.fsdp
    limit = min((d.memory for d in topology.devices if d.memory is not None), default=None)
    return Price(choice, 1.0 + 0.2 * (choice.fsdp > 1), memory, limit, 1.0, 0.0)
