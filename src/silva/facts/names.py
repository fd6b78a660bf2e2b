"""Finds what a name stands for in a run: a column, a step's id, an operator, or reading."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from silva.errors import PlanError
from silva.facts.model import OperatorFacts, StageFacts, StepFacts


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


def find_work(stages: Iterable[StageFacts], name: str) -> list[NamedWork]:
    """What a name stands for: one step, or one operator wherever it is used. Raises an error that
    lists the possible meanings of an ambiguous name."""
    there = list(all_work(stages))
    steps = [work for work in there if work.operator is None]
    by_id = [work for work in steps if work.step.id == name]
    if by_id:
        return by_id
    by_column = [work for work in steps if name in work.step.writes]
    by_operator = [
        work for work in there if work.operator and name in short_names(work.operator.name)
    ]
    several = len({(work.stage.name, work.step.id) for work in by_column}) > 1
    if several or (by_column and by_operator):
        meanings = sorted({work.text for work in [*by_column, *by_operator]})
        raise PlanError(f"{name!r} could be any of {', '.join(meanings)}: name one by its id")
    if by_column or by_operator:
        return by_column or by_operator
    raise PlanError(
        f"there is no step, column or operator {name!r} here; {suggest(name, _names(there))}"
    )


def short_names(operator: str) -> set[str]:
    """The names of an operator: in full, without its kind, and each that was merged into it.

    >>> sorted(short_names("image.normalize + to_chw"))
    ['image.normalize + to_chw', 'normalize', 'to_chw']
    """
    return {operator, *(part.rpartition(".")[2] for part in operator.split(" + "))}


def _names(there: Iterable[NamedWork]) -> list[str]:
    """All names that can be found, each once."""
    names: dict[str, None] = {}
    for work in there:
        if work.operator is None:
            names.update(dict.fromkeys((*work.step.writes, work.step.id)))
        else:
            names[work.operator.name.rpartition(".")[2]] = None
    return list(names)


def suggest(name: str, known: list[str]) -> str:
    """Similar names, or all names where none is similar."""
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"the names are {', '.join(map(repr, known)) or '(nothing was measured)'}"
