"""Pipelines in bad orders, drawn by a seed, and the best order of their steps.

A pipeline is a few steps over rows: derivations, filters, renames and joins, with an explode, a
concat or a cache among them, and a selection before or after batch. Each function has a cost a
call and counts its calls. What a step does with a row does not depend on the order, so the cost of
an order is known without running it: the rows that are left, counted at each function. The best
order is the cheapest of all that keep what each step reads before it.

Steps stay on their side of a cache, which holds what it was written to hold; derivations also stay
on their side of an explode: random draws belong to a row before it, and to a part after it.
Functions read two columns, or one twice: what silva computes once per distinct value of one column
is not a matter of order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from random import Random
from typing import Any

import silva as sv
from silva.cost.costs import Cost
from silva.plan.node import Derive, Filter, walk
from silva.planner.known_costs import Effort, Measured
from silva.planner.movable_runs import StepRun

KINDS = ("plain", "concat", "explode", "cache")
COSTS = (1, 5, 50)
PARTS = 3
"""The column that is exploded."""
_KEYS = 1000
_BATCH = 16
_MOST_ROWS = 200_000
_STEPS = Derive | Filter


@dataclass(frozen=True)
class Step:
    """A verb. Columns are numbers: renames change their names, and nothing else."""

    number: int
    verb: str
    reads: tuple[int, ...]
    writes: int | None = None
    cost: int = 0
    """Of a call; 0 for what is no function."""
    keeps: int = 1
    """A filter keeps one in so many rows."""

    @property
    def drops(self) -> bool:
        return self.keeps > 1


class Work:
    """The function of a step."""

    def __init__(self, number: int, loops: int, keeps: int, fails: int = 0) -> None:
        """`fails`: it fails on one in so many rows; 0 for never."""
        self.number, self.loops, self.keeps, self.fails = number, loops, keeps, fails

    def __call__(self, *values: int) -> int | bool:
        count_call(self.number)
        for _ in range(self.loops):
            pass
        found = result(self.number, values)
        if self.fails and found // 7 % self.fails == 0:  # whether or not a filter keeps the row
            raise ValueError(f"step {self.number} cannot use {values}")
        return found if self.keeps == 1 else found % self.keeps == 0


def count_call(number: int) -> None:
    """Counts a call of a step's function; on this function, since a global variable would be part
    of the fingerprint of what reads it."""
    calls = count_call.calls  # type: ignore[attr-defined]
    calls[number] = calls.get(number, 0) + 1


count_call.calls = {}  # type: ignore[attr-defined]


def result(number: int, values: Sequence[int]) -> int:
    """What step `number` computes of these values."""
    found = number + 1
    for value in values:
        found = (found * 7919 + value * 104_729 + 13) % 1_000_003
    return found


@dataclass(frozen=True)
class BadOrder:
    """A pipeline as written: its steps in order, and what is left of its columns in the end."""

    seed: int
    kind: str
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    late: bool
    """The columns are selected after batch."""
    rows: int

    @property
    def branches(self) -> int:
        """The pipelines that are concatenated."""
        return 2 if self.kind == "concat" else 1


def draw(seed: int, rows: int = 600) -> BadOrder:
    """A pipeline in an order that is legal, and bad more often than not."""
    rng = Random(seed)
    kind = KINDS[seed % len(KINDS)]
    columns, steps = [0, 1, 2], []
    middle = rng.randint(1, 3)
    for number in range(rng.randint(4, 6)):
        if number == middle and kind in ("explode", "cache"):
            steps.append(Step(number, kind, ()))
            columns += [PARTS] if kind == "explode" else []
            continue
        verb = rng.choice(["derive", "derive", "derive", "filter", "filter", "rename", "join"])
        read = rng.choice(columns)
        made = number + 10
        if verb == "derive":
            reads = (read, rng.choice(columns) if rng.random() < 0.3 else read)
            steps.append(Step(number, verb, reads, made, rng.choice(COSTS)))
            columns.append(made)
        elif verb == "join":
            base = rng.choice([0, 1, 2])
            steps.append(Step(number, verb, (base,), made, keeps=rng.choice([1, 2])))
            columns.append(made)
        elif verb == "rename":
            steps.append(Step(number, verb, (read,)))
        else:
            cost = rng.choice([0, 0, 1, 5])
            reads = (read, read) if cost else (read,)
            steps.append(Step(number, verb, reads, cost=cost, keeps=rng.choice([2, 3, 5])))
    steps.append(Step(9, "filter", (rng.choice([0, 1, 2]),), keeps=3))
    kept = tuple(sorted(rng.sample(columns, max(1, len(columns) // 2))))
    return BadOrder(seed, kind, tuple(steps), kept, rng.random() < 0.5, rows)


# The rows, and what every step computes of them.


def source_values(case: BadOrder, branch: int) -> dict[int, list[int]]:
    """The columns of a source; 3 is the number of parts of a row."""
    rng = Random(case.seed * 2 + branch)
    columns = {n: [rng.randrange(_KEYS) for _ in range(case.rows)] for n in (0, 1, 2)}
    return columns | {PARTS: [rng.randrange(4) for _ in range(case.rows)]}


def right_side(step: Step) -> dict[int, int]:
    """The table of a join, by its keys: all of them, or one in `keeps`."""
    return {key: result(step.number, [key]) for key in range(0, _KEYS, step.keeps)}


@dataclass
class Rows:
    """All rows, or all parts of rows: their values, and those that each filter keeps."""

    values: dict[int, list[int]]
    origin: list[int]
    """The row that each part belongs to."""
    kept: dict[int, int] = field(default_factory=dict)
    """By the number of the filter; rows as bits."""

    def compute(self, step: Step) -> None:
        """Adds what a step derives, and the rows that it keeps."""
        read = list(zip(*(self.values[n] for n in step.reads), strict=True))
        if step.verb == "join":
            found = [result(step.number, values) for values in read]
            flags = [key % step.keeps == 0 for (key,) in read]
        else:
            found = [result(step.number, v) if step.cost else v[0] for v in read]
            flags = [value % step.keeps == 0 for value in found]
        if step.writes is not None:
            self.values[step.writes] = found
        if step.drops:
            self.kept[step.number] = as_bits(flags)


def as_bits(flags: Iterable[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


@lru_cache(maxsize=8)
def all_rows(case: BadOrder, branch: int) -> tuple[Rows, Rows]:
    """The rows of a branch, and their parts; the rows again where nothing is exploded."""
    source = source_values(case, branch)
    counts = source.pop(PARTS)
    rows = now = Rows(source, list(range(case.rows)))
    for step in case.steps:
        if step.verb == "explode":
            origin = [row for row in range(case.rows) for _ in range(counts[row])]
            values = {n: [column[row] for row in origin] for n, column in rows.values.items()}
            values[PARTS] = [part for count in counts for part in range(count)]
            now = Rows(values, origin)
        elif step.writes is not None or step.drops:
            now.compute(step)
    if now is not rows:  # filters may go before the explode
        for step in case.steps:
            if step.drops and step.number not in rows.kept and set(step.reads) <= set(rows.values):
                rows.compute(step)
    return rows, now


# Orders and their costs.


def needed(case: BadOrder) -> frozenset[int]:
    """The steps that something needs: a filter, what is selected, or a cache after them."""
    columns, found = set(case.kept), set()
    cached = False
    for step in reversed(case.steps):
        cached |= step.verb == "cache"
        if step.verb == "rename":
            continue
        if cached or step.writes in columns or step.drops or step.writes is None:
            found.add(step.number)
            columns |= set(step.reads)
    return frozenset(found)


def orders(case: BadOrder) -> Iterator[tuple[Step, ...]]:
    """All legal orders of the steps that are needed, without the renames, which cost nothing."""
    there = needed(case)
    steps = [step for step in case.steps if step.number in there]
    before = {
        second.number: {first.number for first in steps[:i] if _must_precede(first, second)}
        for i, second in enumerate(steps)
    }

    def extend(done: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
        if len(done) == len(steps):
            yield done
        numbers = {step.number for step in done}
        for step in steps:
            if step.number not in numbers and before[step.number] <= numbers:
                yield from extend((*done, step))

    yield from extend(())


def _must_precede(first: Step, second: Step) -> bool:
    """Whether two steps must stay in this order."""
    if "cache" in (first.verb, second.verb) or second.verb == "explode":
        return True
    if first.verb == "explode":  # a filter may go before it
        return second.writes is not None or PARTS in second.reads
    return first.writes is not None and first.writes in second.reads


def cost_of(case: BadOrder, order: Sequence[Step], epochs: int = 1) -> int:
    """Calls × cost of an order, over some epochs: what is before a cache is computed once."""
    spent = 0
    cached = any(step.verb == "cache" for step in order)
    for branch in range(case.branches):
        now, parts = all_rows(case, branch)
        left = (1 << case.rows) - 1
        times = 1 if cached else epochs
        for step in order:
            if step.verb == "cache":
                times = epochs
            elif step.verb == "explode":
                left = as_bits(bool(left >> row & 1) for row in parts.origin)
                now = parts
            spent += times * step.cost * left.bit_count()
            if step.drops:
                left &= now.kept[step.number]
    return spent


def best(case: BadOrder, epochs: int = 1) -> tuple[int, tuple[Step, ...]]:
    """The cost of the best order, and that order."""
    return min(((cost_of(case, o, epochs), o) for o in orders(case)), key=itemgetter(0))


def rows_for(seed: int, cost: float) -> int:
    """The rows of which an epoch in the best order costs about so much, within reason."""
    case = draw(seed)
    rows = case.rows * cost / max(best(case)[0], 1)
    return round(min(max(rows, case.rows), _MOST_ROWS))


# Pipelines.


@dataclass
class Built:
    """A pipeline of steps in some order."""

    pipeline: sv.Pipeline
    steps: dict[str, Step]
    """By the id of the node in the plan."""


def build(case: BadOrder, order: Sequence[Step], loops: int = 0, fails: int = 0) -> Built:
    """The pipeline of these steps; `loops`: rounds of a loop for a cost of 1; `fails`: each
    function fails on one in so many rows."""
    made_by = {step.writes for step in order} | {0, 1, 2, PARTS}
    renames = [s for s in case.steps if s.verb == "rename" and s not in order]
    order = [*order, *(step for step in renames if step.reads[0] in made_by)]
    cut = len(order) // 2 if case.branches > 1 else len(order)
    made = [_Builder(case, branch, loops, fails) for branch in range(case.branches)]
    for builder in made:
        builder.add(order[:cut])
    first = made[0]
    if case.branches > 1:
        first.pipeline = sv.concat([builder.pipeline for builder in made])
        first.add(order[cut:])
    names = [first.names[n] for n in case.kept]
    pipeline = first.pipeline
    pipeline = (
        pipeline.batch(_BATCH).select(*names)
        if case.late
        else (pipeline.select(*names).batch(_BATCH))
    )
    return Built(pipeline, first.steps)


class _Builder:
    """Adds steps to a pipeline, and knows the names that its columns have."""

    def __init__(self, case: BadOrder, branch: int, loops: int, fails: int) -> None:
        source = source_values(case, branch)
        self.names = {0: "a", 1: "b", 2: "c"}
        columns: dict[str, Any] = {name: source[n] for n, name in self.names.items()}
        if any(step.verb == "explode" for step in case.steps):
            columns["parts"] = [list(range(count)) for count in source[PARTS]]
        self.pipeline = sv.from_columns(columns)
        self.steps: dict[str, Step] = {}
        self._loops, self._fails = loops, fails

    def add(self, steps: Iterable[Step]) -> None:
        for step in steps:
            before = {node.id for node in walk(self.pipeline.plan) if isinstance(node, _STEPS)}
            self._add(step)
            nodes = [node for node in walk(self.pipeline.plan) if isinstance(node, _STEPS)]
            self.steps |= {node.id: step for node in nodes if node.id not in before}

    def _add(self, step: Step) -> None:
        pipeline, read = self.pipeline, [self.names[n] for n in step.reads]
        into = f"d{step.number}"
        work = Work(step.number, self._loops * step.cost, step.keeps, self._fails)
        match step.verb:
            case "derive":
                pipeline = pipeline.derive(work, into=into, reads=read)
            case "filter" if step.cost:
                pipeline = pipeline.filter(work, reads=read)
            case "filter":
                pipeline = pipeline.filter(sv.col(read[0]) % step.keeps == 0)
            case "rename":
                into = f"r{step.number}"
                pipeline = pipeline.rename(**{read[0]: into})
                self.names[step.reads[0]] = into
            case "join":
                table = right_side(step)
                right = {"key": list(table), into: list(table.values())}
                how: Any = "inner" if step.drops else "left"
                pipeline = pipeline.join(right, on={read[0]: "key"}, how=how)
            case "explode":
                pipeline = pipeline.explode("parts")
                self.names[PARTS] = "parts"
            case "cache":
                pipeline = pipeline.cache()
        if step.writes is not None:
            self.names[step.writes] = into
        self.pipeline = pipeline


class DeclaredCosts:
    """Tells the planner what steps cost, from the start: calls × cost, and the rows they keep."""

    def __init__(self, case: BadOrder, built: Built) -> None:
        self._steps = built.steps
        self._rows, self._parts = all_rows(case, 0)

    effort = Effort(math.inf, math.inf, math.inf)

    def before(self, run: StepRun) -> Measured:
        steps = {step.id: self._cost(step) for step in run.steps}
        exploded = _cost(len(self._rows.origin), len(self._parts.origin), 1e-6)
        explodes = {explode.column: exploded for _, explode in run.explodes}
        return Measured(_cost(1, 1, 1e-6), Cost(), steps, explodes=explodes)

    def _cost(self, node: Derive | Filter) -> Cost:
        step = self._steps.get(node.id)
        if step is None:  # what a rule made of several
            return _cost(1, 1, 1e-6)
        there = self._rows if step.number in self._rows.kept else self._parts
        rows = kept = len(there.origin)
        if isinstance(node, Filter):
            kept = there.kept[step.number].bit_count()
        return _cost(rows, kept, (step.cost or 1e-3) * 1e-3)

    def now(self, run: StepRun) -> Measured:
        return Measured()

    def keep(self, runs: Sequence[StepRun], known: Sequence[Measured]) -> None:
        pass


def _cost(rows: int, kept: int, seconds_a_row: float) -> Cost:
    return Cost(rows, kept, rows * seconds_a_row, rows * seconds_a_row)
