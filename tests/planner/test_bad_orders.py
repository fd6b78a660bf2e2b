"""Pipelines in bad orders cost about as much as in the best order, and give the same stream.

Each pipeline is a few steps over rows, drawn by a seed: derivations, filters, renames, an explode
or a concat (a filter does not pass both), and a selection before or after batch. Each derivation
has a cost a call, and counts its calls. The best order is found by trying every order of the steps
that gives the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Any

import pytest

import silva as sv
from silva.testing import digest

ROWS = 30
WITHIN = 1.15
SEEDS = 200


@dataclass(frozen=True)
class Step:
    """One verb, with the columns that it reads and writes."""

    verb: str
    reads: frozenset[str]
    writes: frozenset[str]
    number: int
    cost: int = 0


class Work:
    """A function that counts its calls on the class: they are no part of its fingerprint."""

    def __init__(self, number: int, reads: str) -> None:
        self.number, self.reads = number, reads

    def __call__(self, value: int) -> int:
        CALLS[self.number] = CALLS.get(self.number, 0) + 1
        return (value * 31 + self.number) % 101

    def __reduce__(self) -> Any:
        return Work, (self.number, self.reads)


CALLS: dict[int, int] = {}


def draw_steps(rng: Random, explodes: bool) -> list[Step]:
    """A few steps in an order that is legal, and bad more often than not."""
    columns, steps = ["a", "b", "c"], []
    exploded = not explodes
    for number in range(rng.randint(3, 4)):
        kind = rng.choice(["derive", "derive", "derive", "filter", "rename", "explode"])
        if kind == "derive":
            name = f"d{number}"
            read = rng.choice(columns)
            steps.append(
                Step("derive", frozenset([read]), frozenset([name]), number, rng.choice([1, 5, 50]))
            )
            columns.append(name)
        elif kind == "rename":
            old, new = rng.choice(columns), f"r{number}"
            steps.append(Step("rename", frozenset([old]), frozenset([new]), number))
            columns[columns.index(old)] = new
        elif kind == "explode" and not exploded:
            exploded = True
            steps.append(Step("explode", frozenset(["parts"]), frozenset(["parts"]), number))
        else:
            steps.append(Step("filter", frozenset([rng.choice(columns)]), frozenset(), number))
    source = [name for name in ("a", "b", "c") if name in columns]
    if source:
        steps.append(Step("filter", frozenset([rng.choice(source)]), frozenset(), 9))
    return steps


def legal_orders(steps: list[Step]) -> Iterator[list[Step]]:
    """All orders in which each step finds its columns as it did. A filter may stand on either side
    of a renaming of the column that it reads: it reads it by the name that it has there."""
    for order in permutations(range(len(steps))):
        place = {number: at for at, number in enumerate(order)}
        if all(
            place[i] < place[j]
            for j in range(len(steps))
            for i in range(j)
            if _depends(steps[i], steps[j])
        ):
            yield [steps[number] for number in order]


def _depends(first: Step, second: Step) -> bool:
    if {first.verb, second.verb} == {"derive", "explode"}:
        return True  # before it, rows without parts would be computed in vain
    if first.verb == "rename" and second.verb != "derive":
        return bool(first.writes & second.reads) and second.verb == "rename"
    if second.verb == "rename" and first.verb == "filter":
        return False
    return bool(first.writes & second.reads or first.reads & second.writes) or (
        second.verb == "rename" and bool(first.reads & second.reads)
    )


def build(steps: list[Step], seed: int, *, written: list[Step]) -> sv.Pipeline:
    """The pipeline of these steps; `written` is the order as drawn, by which columns are named."""
    rng = Random(seed)
    columns = {name: [rng.randrange(100) for _ in range(ROWS)] for name in ("a", "b", "c")}
    base = sv.from_columns({**columns, "parts": [list(range(i % 4)) for i in range(ROWS)]})
    other = sv.from_columns({**columns, "parts": [list(range(i % 3)) for i in range(ROWS)]})
    pipelines = [base, other] if seed % 3 == 0 else [base]
    late = [step for step in steps if seed % 3 == 0 and step in steps[len(steps) // 2 :]]
    made = [_applied(p, [s for s in steps if s not in late], written) for p in pipelines]
    joined = made[0] if len(made) == 1 else sv.concat(made)
    return _applied(joined, late, written)


def _applied(pipeline: sv.Pipeline, steps: list[Step], written: list[Step]) -> sv.Pipeline:
    for step in steps:
        have = pipeline.columns
        read = next(iter(step.reads), "")
        read = read if read in have else _other_name(read, have, written)
        if step.verb == "derive":
            (into,) = step.writes
            pipeline = pipeline.derive(Work(step.number, read), into=into, reads=read)
        elif step.verb == "rename":
            pipeline = pipeline.rename(**{read: next(iter(step.writes))})
        elif step.verb == "explode":
            pipeline = pipeline.explode("parts")
        else:
            pipeline = pipeline.filter(sv.col(read) % 3 == 0)
    return pipeline


def _other_name(name: str, have: tuple[str, ...], written: list[Step]) -> str:
    """The name that a column has here, before or after it is renamed."""
    renames = {n: next(iter(s.reads)) for s in written if s.verb == "rename" for n in s.writes}
    back = name
    while back not in have and back in renames:
        back = renames[back]
    while back not in have:
        back = next(new for new, old in renames.items() if old == back)
    return back


def measured(pipeline: sv.Pipeline, steps: list[Step]) -> tuple[int, list[str], list[str]]:
    """The cost (calls × declared cost), the batches and the cursors."""
    CALLS.clear()
    loader = pipeline.loader(backend="inline")
    found, states = [], []
    for batch in loader:
        found.append(digest(batch))
        state = loader.state_dict()
        states.append(json.dumps([state["cursors"], state["failures"]]))
    cost = sum(step.cost * CALLS.get(step.number, 0) for step in steps)
    return cost, found, states


def check(seed: int) -> None:
    rng = Random(seed)
    steps = draw_steps(rng, explodes=seed % 3 != 0)
    final = build(steps, seed, written=steps).columns
    kept = rng.sample(final, max(1, len(final) // 2))
    late = seed % 2 == 0

    def finished(order: list[Step]) -> sv.Pipeline:
        made = build(order, seed, written=steps)
        return made.batch(7).select(*kept) if late else made.select(*kept).batch(7)

    cost, batches, states = measured(finished(steps), steps)
    _, plain, plain_states = measured(finished(steps).options(optimize=False), steps)
    assert (batches, states) == (plain, plain_states)
    best = cost
    for order in legal_orders(steps):
        try:
            pipeline = finished(order)
        except (sv.SilvaError, StopIteration):
            continue  # a column is not there in this order
        here, same, _ = measured(pipeline.options(optimize=False), steps)
        if same == batches:
            best = min(best, here)
    assert cost <= WITHIN * best, f"{cost} where {best} is possible: {steps}"


@pytest.mark.parametrize("seed", range(12))
def test_a_badly_ordered_pipeline_costs_little_more_than_the_best_order(seed: int) -> None:
    check(seed)


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(12, SEEDS + 12))
def test_badly_ordered_pipelines_cost_little_more_than_the_best_order(seed: int) -> None:
    check(seed)
