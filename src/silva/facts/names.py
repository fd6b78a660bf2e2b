"""Finds what a name stands for in a run: a column, a step's id, an operator, or reading."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from silva.errors import PlanError
from silva.facts.model import READ, OperatorFacts, RunFacts, StageFacts, StepFacts
from silva.facts.plans import segments
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.node import Derive, Filter, MapRows, Node, Source, walk
from silva.plan.schema import columns

Written = Derive | Filter | MapRows
"""A step as written."""


@dataclass(frozen=True)
class NamedWork:
    """A step that was measured, or one operator of it."""

    stage: StageFacts
    step: StepFacts
    operator: OperatorFacts | None = None

    @property
    def share(self) -> float:
        """Share of the stage's time."""
        return self.step.share * (1.0 if self.operator is None else self.operator.share)

    @property
    def text(self) -> str:
        own = self.step.id
        return own if self.operator is None else f"{self.operator.name} in {own}"


def all_work(stages: Iterable[StageFacts]) -> Iterator[NamedWork]:
    """Every step that can be named, and every operator of it."""
    for stage in stages:
        for step in stage.steps:
            if step.id and step.rows_in:
                yield NamedWork(stage, step)
                yield from (NamedWork(stage, step, operator) for operator in step.operators)


def find_work(facts: RunFacts, name: str) -> list[NamedWork]:
    """What a name stands for: one step, one operator wherever it is used, or all steps of a stage.
    Raises an error that lists the possible meanings of an ambiguous name."""
    there = list(all_work(facts.stages))
    steps = [work for work in there if work.operator is None]
    exact = [work for work in steps if name in (work.step.id, work.stage.name)]
    if exact:
        return exact
    called = {node.id for node in written_steps(facts.written) if function_of(node) == name}
    by_column = [work for work in steps if name in work.step.writes]
    by_column = by_column or [work for work in steps if work.step.id in called]
    by_operator = [
        work for work in there if work.operator and name in short_names(work.operator.name)
    ]
    several = len({work.step.id for work in by_column}) > 1
    if several or (by_column and by_operator):
        meanings = sorted({work.text for work in [*by_column, *by_operator]})
        raise PlanError(f"{name!r} could be any of {', '.join(meanings)}: name one by its id")
    if by_column or by_operator:
        return by_column or by_operator
    if name in known_names(facts):
        raise PlanError(
            f"nothing was measured of {name!r}: why({name!r}) says whether and where it runs"
        )
    raise nothing_called(name, facts)


def written_steps(plan: Node) -> list[Written]:
    """The steps of a plan as written."""
    return [node for node in walk(plan) if isinstance(node, Written)]


def verbs_called(verb: str, plan: Node) -> tuple[Node, ...]:
    """The steps as written that this verb added."""
    return tuple(node for node in walk(plan) if node.verb == verb)


def function_of(node: Written) -> str | None:
    """The name of a step's function."""
    return node.step.name if isinstance(node.step, Function) else None


def operators_of(node: Written) -> set[str]:
    """All names of the operators of a step."""
    if not isinstance(node, Derive | Filter) or not isinstance(node.step, expr.Call):
        return set()
    calls = [part.op for part in expr.walk(node.step) if isinstance(part, expr.Call)]
    return {name for op in calls for name in short_names(op)}


def known_names(facts: RunFacts) -> list[str]:
    """Every name that `why` and `what_if` take: columns, ids of steps, operators, functions, verbs,
    stages and `read`. (A lambda has no name of its own.)"""
    steps = written_steps(facts.written)
    known = {name for node in steps for name in (*node.writes, node.id, *operators_of(node))}
    known |= {called for node in steps if (called := function_of(node)) not in (None, "lambda")}
    known |= {c for node in walk(facts.written) if isinstance(node, Source) for c in columns(node)}
    known |= {node.verb for node in walk(facts.written)}
    return sorted(known | {READ} | {segment.name for segment in segments(facts.plan)})


def nothing_called(name: str, facts: RunFacts) -> PlanError:
    """The error for a name that means nothing."""
    known = known_names(facts)
    return PlanError(f"nothing here is called {name!r}; {suggest(name, known)}")


def short_names(operator: str) -> set[str]:
    """The names of an operator: in full, without its kind, and each that was merged into it.

    >>> sorted(short_names("image.normalize + to_chw"))
    ['image.normalize + to_chw', 'normalize', 'to_chw']
    """
    return {operator, *(part.rpartition(".")[2] for part in operator.split(" + "))}


def suggest(name: str, known: list[str]) -> str:
    """Similar names, or all names where none is similar."""
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"the names are {', '.join(map(repr, known)) or '(nothing has a name)'}"
