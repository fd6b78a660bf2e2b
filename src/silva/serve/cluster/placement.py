"""Which steps become deployments, and how many replicas each has: a pure function of their costs.

A request passes through all steps, so the step with the most computing per replica bounds how many
requests the cluster answers. Each further core goes to that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What one request costs in a step."""

    step: int
    """Its number."""
    label: str
    computes: float | None
    """Seconds of computing; None where nobody has measured it."""


@dataclass(frozen=True)
class Deployment:
    """A step that runs on replicas, of one core each."""

    step: int
    label: str
    replicas: int

    def __str__(self) -> str:
        return f"{self.replicas} × {self.label}"


def place(costs: Sequence[Cost], *, cores: int, hop: float) -> tuple[Deployment, ...]:
    """The deployments of the steps that are worth one, on so many cores.

    `hop`: seconds that it takes to send a request to a replica and back; a step that computes for
    less stays on the front. With more such steps than cores, the costliest get a core each. Steps
    of unknown cost count like the costliest one.

    >>> costs = [Cost(0, "read", 0.0001), Cost(1, "parse", 0.03), Cost(2, "rank", 0.09)]
    >>> [str(one) for one in place(costs, cores=8, hop=0.002)]
    ['2 × parse', '6 × rank']
    """
    most = max((one.computes for one in costs if one.computes is not None), default=1.0)
    weights = {one: most if one.computes is None else one.computes for one in costs}
    worth = [one for one in costs if one.computes is None or one.computes > hop]
    placed = sorted(worth, key=lambda one: (-weights[one], one.step))[: max(cores, 0)]
    replicas = dict.fromkeys(placed, 1)
    for _ in range(cores - len(placed) if placed else 0):
        slowest = max(placed, key=lambda one: (weights[one] / replicas[one], -one.step))
        replicas[slowest] += 1
    return tuple(
        Deployment(one.step, one.label, replicas[one])
        for one in sorted(placed, key=lambda one: one.step)
    )
