"""The ways to spread a module over a number of devices: a plain grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from silva.errors import PlanError
from silva.train.choice import Choice

_MICROBATCHES = (1, 2, 4, 8, 16, 32)
_ROUNDS = (1, 2)


@dataclass(frozen=True)
class Limits:
    """What a module and its batch allow."""

    rows: int
    """Rows of a global batch."""
    stages: int
    """Parts that the module can be cut into."""
    parts: frozenset[int]
    """Degrees of tensor parallelism for which a group of weights was found."""
    in_graph: bool
    """Whether the module has a graph; without one, only data parallelism is possible."""
    required: Mapping[str, int | str | bool]
    """What the user requires of a plan."""


def divisors(number: int) -> list[int]:
    """
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [n for n in range(1, number + 1) if number % n == 0]


def candidates(world: int, limits: Limits) -> Iterator[Choice]:
    """All choices for so many devices."""
    for pp in divisors(world):
        for tp in divisors(world // pp):
            for fsdp in divisors(world // pp // tp):
                dp = world // pp // tp // fsdp
                yield from _with_microbatches(dp, fsdp, tp, pp, limits)


def _with_microbatches(dp: int, fsdp: int, tp: int, pp: int, limits: Limits) -> Iterator[Choice]:
    if ((tp > 1 or pp > 1) and not limits.in_graph) or (tp > 1 and tp not in limits.parts):
        return
    share, left = divmod(limits.rows, dp * fsdp)
    if left:
        return
    for count in _MICROBATCHES:
        if share % count or (pp == 1 and count > 1 and count > share):
            continue
        if pp == 1:
            ways: Iterable[tuple[str, int]] = [("1f1b", 1)]
        else:
            ways = [("gpipe", 1), ("1f1b", 1)]
            if count % pp == 0:
                ways = [*ways, *(("interleaved", r) for r in _ROUNDS if r > 1)]
        for schedule, rounds in ways:
            if pp * rounds > limits.stages or (pp > 1 and count < 2):
                continue
            for recompute in (False, True) if limits.in_graph else (False,):
                one = Choice(dp, fsdp, tp, pp, count, schedule, rounds, recompute)
                if all(getattr(one, name) == value for name, value in limits.required.items()):
                    yield one


def defaults(world: int, limits: Limits) -> list[Choice]:
    """What people use without a plan: replicas, then shared parameters."""
    if limits.rows % world:
        return []
    plain = [Choice(dp=world), Choice(fsdp=world)] if world > 1 else [Choice()]
    return plain


def check_required(required: Mapping[str, int | str | bool]) -> None:
    """Refuses requirements that are no parts of a choice."""
    known = {"dp", "fsdp", "tp", "pp", "microbatches", "schedule", "rounds", "recompute"}
    for name in required:
        if name not in known:
            raise PlanError(f"require({name}=…) is not known; there are {', '.join(sorted(known))}")
