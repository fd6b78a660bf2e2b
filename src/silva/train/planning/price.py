"""What a way to train costs: its time, memory and traffic, by the simulator.

One pipeline is simulated, the slowest of its kind: its stages compute, send activations and
gradients, and reduce at the end. A link between stages is the slowest of those of all replicas, and
a group reduces over its slowest link. Collectives take the time of their devices: they do not
overlap with computing. That is so for cores that copy their own messages, and pessimistic for GPUs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import fx

from silva.cost.simulate import Task, simulate
from silva.cost.trace import Trace
from silva.fabric.routes import Routes
from silva.fabric.topology import Device, Link, Topology
from silva.train.choice import Choice
from silva.train.graph.cuts import Cut, choose_cuts
from silva.train.graph.groups import Found, Group
from silva.train.graph.values import bytes_of
from silva.train.planning.measure import NO_TIME, Line, Timing, activations
from silva.train.planning.schedule import Action, most_in_flight, schedule

_STATES = 2
"""Numbers that AdamW keeps for each parameter."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of a module, for a traced batch."""

    nodes: Sequence[fx.Node]
    timings: Mapping[fx.Node, Timing]
    flows: set[fx.Node]
    cuts: Sequence[Cut]
    groups: Mapping[int, Found]
    """By the number of parts."""
    parameters: Mapping[fx.Node, int]
    """Bytes of parameters by the operator that uses them first."""
    trained: float
    """The share of the parameters' bytes that is trained."""
    rows: int
    """Rows of the traced batch."""
    units: int
    """Parts of the module that are recomputed one by one."""
    overheads: Mapping[str, float] = field(default_factory=dict)
    """Seconds that torch itself takes: `action`, `step`."""


@dataclass(frozen=True)
class Price:
    """What a choice is predicted to take."""

    choice: Choice
    seconds: float
    """Seconds of a step."""
    memory: int
    """Bytes of the fullest device."""
    limit: int | None
    """Bytes that it has."""
    compute: float
    """Seconds in which the busiest device computes."""
    traffic: float
    """Bytes that a device sends in a step, at most."""
    trace: Trace | None = field(default=None, repr=False, compare=False)

    @property
    def fits(self) -> bool:
        return self.limit is None or self.memory <= self.limit

    @property
    def bubble(self) -> float:
        """The share of the step in which the busiest device does not compute."""
        return max(1.0 - self.compute / self.seconds, 0.0) if self.seconds else 0.0


@dataclass(frozen=True)
class Stage:
    """A part of the module on a device."""

    forward: float
    backward: float
    """Seconds for a microbatch."""
    parameters: float
    """Bytes that a device holds of its parameters, not divided by FSDP."""
    activations: float
    """Bytes that it keeps of a microbatch until its backward pass."""
    sends: float
    """Bytes that a microbatch sends to the next part."""
    exchanged: float
    """Bytes that a device exchanges within `tp` for a microbatch, in each direction."""


def price(
    choice: Choice, facts: Facts, topology: Topology, global_rows: int, speed: float
) -> Price:
    """The price of a choice. `speed`: how many times as fast as here its devices compute."""
    return _Pricing(choice, facts, topology, global_rows, speed).run()


class _Pricing:
    def __init__(
        self, choice: Choice, facts: Facts, topology: Topology, rows: int, speed: float
    ) -> None:
        self.choice, self.facts, self.topology, self.speed = choice, facts, topology, speed
        self.microbatch = rows / choice.readers / choice.microbatches
        self.devices = topology.devices[: choice.world]
        self.stages = self._stages()
        self.routes = Routes(topology)

    def _device(self, pp: int, dp: int = 0, fsdp: int = 0, tp: int = 0) -> Device:
        c = self.choice
        return self.devices[((pp * c.dp + dp) * c.fsdp + fsdp) * c.tp + tp]

    def _stages(self) -> list[Stage]:
        facts, c = self.facts, self.choice
        work = {
            n: t.forward.at(self.microbatch) + t.backward.at(self.microbatch)
            for n, t in facts.timings.items()
        }
        chosen = choose_cuts(facts.cuts, work, facts.nodes, c.stages) if c.stages > 1 else []
        edges = [0, *(cut.position for cut in chosen), len(facts.nodes)]
        found = facts.groups.get(c.tp)
        inside = {n for g in (found.groups if found else ()) for n in _nodes_of(g)}
        frontiers = {p.node for g in (found.groups if found else ()) for p in g.frontiers}
        scale = self.microbatch / facts.rows
        stages = []
        for number, (a, b) in enumerate(itertools.pairwise(edges)):
            nodes = facts.nodes[a:b]
            forward = self._seconds(nodes, inside, "forward")
            backward = self._seconds(nodes, inside, "backward")
            own = sum(
                facts.parameters.get(n, 0) / (c.tp if n in inside or n in frontiers else 1)
                for n in nodes
            )
            kept = activations(nodes, facts.flows) * scale
            kept -= (
                activations([n for n in nodes if n in inside], facts.flows) * scale * (1 - 1 / c.tp)
            )
            crossing = chosen[number].nbytes * scale if number < len(chosen) else 0.0
            if c.recompute:
                backward += forward
                units = max(facts.units / c.stages, 1.0)  # each keeps its input, one all of it
                least = min((cut.nbytes for cut in facts.cuts), default=0) * scale
                kept = min(kept, units * least + kept / units)
            exchanged = (
                sum(bytes_of(n) for n in nodes if n in frontiers) * scale if c.tp > 1 else 0.0
            )
            stages.append(Stage(forward, backward, own, kept, crossing, exchanged))
        return stages

    def _seconds(self, nodes: Sequence[fx.Node], inside: set[fx.Node], which: str) -> float:
        total: Line = NO_TIME
        divided: Line = NO_TIME
        for node in nodes:
            timing = self.facts.timings.get(node)
            if timing is not None:
                line: Line = getattr(timing, which)
                if node in inside:
                    divided += line
                else:
                    total += line
        of_parts = Line(divided.constant, divided.per_row / self.choice.tp)
        return (total + of_parts).at(self.microbatch) / self.speed

    def run(self) -> Price:
        c = self.choice
        orders = schedule(c)
        tasks: list[Task] = []
        for rank, order in enumerate(orders):
            tasks += self._of_rank(rank, order)
        tasks += self._reductions()
        trace = simulate(self.routes.resources, tasks)
        devices = {rank: self._device(rank).name for rank in range(c.pp)}
        compute = max(
            sum(t.amount for t in trace.spans if t.resource == name and t.name[0] in "FB")
            for name in devices.values()
        )
        memory = [self._memory(rank, order) for rank, order in enumerate(orders)]
        worst = max(range(c.pp), key=memory.__getitem__)
        limits = [d.memory for d in self.devices if d.memory is not None]
        seconds = trace.makespan + self.facts.overheads.get("step", 0.0)
        return Price(
            c,
            seconds,
            int(memory[worst]),
            min(limits, default=None),
            compute,
            self._traffic(),
            trace,
        )

    def _of_rank(self, rank: int, order: Sequence[Action]) -> list[Task]:
        """The passes of a rank, one after another, each after what it needs."""
        c = self.choice
        device = self._device(rank).name
        found: list[Task] = []
        previous: str | None = None
        for action in order:
            kind, stage, number = action
            name = f"{kind}{stage}.{number}"
            after = [previous] if previous else []
            part = self.stages[stage]
            spent = part.forward if kind == "F" else part.backward
            spent += self.facts.overheads.get("action", 0.0) if c.pp > 1 else 0.0
            source = stage - 1 if kind == "F" else stage + 1
            if kind == "B" and stage == c.stages - 1:
                after.append(f"F{stage}.{number}")
            if 0 <= source < c.stages:
                after.append(self._send(found, kind, source, stage, number))
            uses = [self.routes.compute(device, spent)]
            exchanged = self._exchange(part)
            if exchanged:
                uses.append(self.routes.compute(device, exchanged))
            gathered = self._gather(part, kind)
            if gathered:
                uses.insert(0, self.routes.compute(device, gathered))
            found.append(Task(name, uses, after=after))
            previous = name
        return found

    def _send(self, found: list[Task], kind: str, source: int, stage: int, number: int) -> str:
        """A message from the stage before, or with gradients from the one after."""
        c = self.choice
        a, b = self._device(source % c.pp), self._device(stage % c.pp)
        name = f"send {kind}{source}.{number}"
        done = f"{kind}{source}.{number}"
        if a is b:
            return done
        nbytes = self.stages[min(source, stage)].sends
        uses = [self.routes.send(a.name, b.name, nbytes)]
        found.append(Task(name, uses, after=[done]))
        return name

    def _exchange(self, stage: Stage) -> float:
        """Seconds of the sums within `tp`, of a pass."""
        c = self.choice
        if c.tp == 1 or not stage.exchanged:
            return 0.0
        group = [self._device(0, tp=i).name for i in range(c.tp)]
        return self._all_reduce(group, stage.exchanged)

    def _gather(self, stage: Stage, kind: str) -> float:
        """Seconds in which FSDP gathers parameters before a pass, where they do not overlap."""
        c = self.choice
        if c.fsdp == 1:
            return 0.0
        group = [self._device(0, fsdp=i).name for i in range(c.fsdp)]
        return self._collective("all_gather", group, stage.parameters, 1)

    def _reductions(self) -> list[Task]:
        """What is reduced over replicas at the end of a step, stage by stage."""
        c = self.choice
        found: list[Task] = []
        for rank in range(c.pp):
            parts = [self.stages[i] for i in range(rank, c.stages, c.pp)]
            nbytes = sum(part.parameters for part in parts) * self.facts.trained
            seconds = 0.0
            if c.fsdp > 1:
                group = [self._device(rank, fsdp=i).name for i in range(c.fsdp)]
                seconds += self._collective("reduce_scatter", group, nbytes, 1)
            if c.dp > 1:
                group = [self._device(rank, dp=i).name for i in range(c.dp)]
                seconds += self._all_reduce(group, nbytes / c.fsdp)
            if seconds:
                last = f"B{rank}.{c.microbatches - 1}"
                device = self._device(rank).name
                uses = [self.routes.compute(device, seconds)]
                found.append(Task(f"reduce {rank}", uses, after=[last]))
        return found

    def _all_reduce(self, group: Sequence[str], nbytes: float) -> float:
        return self._collective("all_reduce", group, nbytes, 2)

    def _collective(self, kind: str, group: Sequence[str], nbytes: float, rounds: int) -> float:
        """Seconds of a collective: as measured, or in a ring over the slowest of its links."""
        for one in self.topology.collectives:
            if one.kind == kind and one.ranks == len(group):
                return one.latency + nbytes / one.bandwidth
        slowest = self._slowest(tuple(group))
        steps = len(group) - 1
        return rounds * steps * (slowest.latency + nbytes / len(group) / slowest.bandwidth)

    @functools.cache  # noqa: B019 - a pricing lives for one choice
    def _slowest(self, group: tuple[str, ...]) -> Link:
        ring = zip(group, (*group[1:], group[0]), strict=True)
        links = [self.topology.link(a, b) for a, b in ring]
        return max(links, key=lambda link: link.seconds(1e6))

    def _memory(self, rank: int, order: Sequence[Action]) -> float:
        """Bytes of a device: parameters, gradients and optimiser states, and what is kept of the
        microbatches in flight."""
        c = self.choice
        own = sum(self.stages[i].parameters for i in range(rank, c.stages, c.pp)) / c.fsdp
        whole = (
            max(self.stages[i].parameters for i in range(rank, c.stages, c.pp))
            if c.fsdp > 1
            else 0.0
        )
        held = own * (1 + self.facts.trained * (1 + _STATES)) + whole
        kept = sum(
            n * self.stages[stage].activations for stage, n in most_in_flight(list(order)).items()
        )
        return held + kept

    def _traffic(self) -> float:
        """Bytes that the busiest device sends in a step."""
        c = self.choice
        found = []
        for rank in range(c.pp):
            parts = [self.stages[i] for i in range(rank, c.stages, c.pp)]
            nbytes = sum(part.parameters for part in parts) * self.facts.trained
            sent = 2 * nbytes * (c.dp - 1) / c.dp / c.fsdp + 3 * nbytes * (c.fsdp - 1) / c.fsdp
            sent += sum(2 * part.sends * c.microbatches for part in parts)
            sent += sum(4 * part.exchanged * c.microbatches * (c.tp - 1) / c.tp for part in parts)
            found.append(sent)
        return max(found)


def _nodes_of(group: Group) -> list[fx.Node]:
    """The operators of which a device runs its part."""
    return [*group.steps, *(one.node for one in (*group.producers, *group.frontiers))]
