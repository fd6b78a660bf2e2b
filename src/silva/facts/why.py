"""What a name stands for, and everything that concerns it: a column, step, operator or stage."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError
from silva.facts.formatting import percent, seconds, tidy, wrapped
from silva.facts.model import Decision, OperatorFacts, RunFacts, StageFacts, StepFacts
from silva.facts.plans import Segment, segments, steps_of
from silva.facts.text import forecast_line, place
from silva.physical.plan import ChunkedFeed
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import RowStep
from silva.plan import expr
from silva.plan.function import Function, describe
from silva.plan.node import Derive, Filter, MapRows, Node, Source, walk
from silva.plan.schema import columns, step_is_random
from silva.plan.show import show_node

Written = Derive | Filter | MapRows
"""A step as written."""


class Why(str):
    """A few sentences, one per line."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class _Subject:
    """What a name stands for."""

    name: str
    nodes: tuple[Written, ...] = ()
    sources: tuple[Source, ...] = ()
    """Sources with a column of that name."""
    stage: str | None = None

    @property
    def ids(self) -> set[str]:
        return {node.id for node in self.nodes}


def why(facts: RunFacts, name: str | Callable[..., Any]) -> Why:
    """Sentences about the part of a pipeline that has this name.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(4)}).derive(y=lambda x: x, z=lambda x: -x).select("y")
    >>> print(numbers.why("z"))
    `z` is written by derive z = lambda(x)...
    No stage runs it as a step of its own.
    Rule drop_unread: nothing reads the columns that these steps write.
      · z
    """
    stages = list(segments(facts.plan))
    found = _subject(facts.written, stages, name)
    lines = [
        *_written(found),
        *_where(found, stages, facts),
        *_decided(found, facts.decisions),
        *_measured(found, facts.stages),
    ]
    return Why("\n".join(piece for line in lines for piece in wrapped(tidy(line))))


def _subject(written: Node, segments: list[Segment], name: str | Callable[..., Any]) -> _Subject:
    if not isinstance(name, str):
        if not callable(name):
            raise PlanError(
                f"why takes the name of a column, step, operator or stage, not {name!r}"
            )
        name = describe(name)
    steps = [n for n in walk(written) if isinstance(n, Written)]
    sources = [n for n in walk(written) if isinstance(n, Source)]
    stages = [segment.name for segment in segments]
    if name in stages:
        return _Subject(name, stage=name)
    by_id = [n for n in steps if n.id == name]
    nodes = by_id or [n for n in steps if name in n.writes]
    nodes = nodes or [n for n in steps if name in _operators(n)]
    nodes = nodes or [n for n in steps if name == _function(n)]
    having = [] if by_id else [s for s in sources if name in columns(s)]
    if not nodes and not having:
        known = {i for n in steps for i in (*n.writes, n.id, *_operators(n))}
        known |= {called for n in steps if (called := _function(n)) not in (None, "lambda")}
        known |= {c for s in sources for c in columns(s)} | set(stages)
        raise PlanError(f"nothing here is called {name!r}; {suggest(name, sorted(known))}")
    return _Subject(name, tuple(nodes), tuple(having))


def _function(node: Written) -> str | None:
    return node.step.name if isinstance(node.step, Function) else None


def _operators(node: Written) -> set[str]:
    if not isinstance(node, Derive | Filter) or not isinstance(node.step, expr.Call):
        return set()
    calls = [part.op for part in expr.walk(node.step) if isinstance(part, expr.Call)]
    return {name for op in calls for name in short_names(op)}


def _written(found: _Subject) -> Iterator[str]:
    for source in found.sources:
        yield f"`{found.name}` is a column of {show_node(source)}."
    for node in found.nodes:
        yield f"`{found.name}` {_verb(found.name, node)} {show_node(node)}."
        if isinstance(node, Derive | Filter) and step_is_random(node.step):
            yield "The step is random: it draws new numbers in every epoch, so it cannot be cached."


def _verb(name: str, node: Written) -> str:
    if name in node.writes:
        return "is written by"
    return "is" if name == node.id else "is used by"


def _where(found: _Subject, stages: list[Segment], facts: RunFacts) -> Iterator[str]:
    """The stages that run it, and the steps that have changed places with it."""
    runs = False
    for segment in stages:
        order = [_id(step) for step in steps_of(segment.stage)]
        own = [i for i in order if i in found.ids]
        if not own and segment.name != found.stage:
            continue
        runs = True
        stage = facts.stage(segment.name)
        where = segment.name if stage is None else f"{segment.name} {place(stage)}"
        yield f"It runs in {where}." if own else f"{where}."
        yield from _moved(found, order, own)
    if found.nodes and not runs:
        yield "No stage runs it as a step of its own."
    for source in found.sources:
        yield from _read(found.name, source, stages)


def _id(step: RowStep | Node) -> str:
    return step.id if isinstance(step, RowStep | Written) else ""


def _moved(found: _Subject, order: list[str], own: list[str]) -> Iterator[str]:
    """Steps that were written before it and run after it."""
    for step_id in own:
        node = next(n for n in found.nodes if n.id == step_id)
        below = {n.id for n in walk(node) if n is not node and isinstance(n, Written)}
        overtaken = [i for i in order[order.index(step_id) + 1 :] if i in below]
        if overtaken:
            yield f"It runs before {', '.join(overtaken)}, although it was written after."


def _read(name: str, source: Source, stages: list[Segment]) -> Iterator[str]:
    """Whether a column of a source is read, and when."""
    for segment in stages:
        stage = segment.stage
        if not isinstance(stage, Stage):
            continue
        below, read = segment.input, stage.read
        if read is not None and read.source is source.source:
            if name not in read.columns:
                yield "It is not read, because no step needs it."
            elif name in stage.late:
                yield f"It is read in {segment.name}, only for rows that its filters keep."
            else:
                yield f"It is read in {segment.name}."
        elif isinstance(below, ChunkedFeed) and below.read.source is source.source:
            used = name in below.read.columns
            yield "It is read in chunks." if used else "It is not read, because no step needs it."


def _decided(found: _Subject, made: Iterable[Decision]) -> Iterator[str]:
    for decision in made:
        notes = [note for note in decision.notes if _mentions(note, found)]
        if notes:
            yield f"{decision.kind.capitalize()} {decision.line}."
            yield from (f"  · {note}" for note in notes)


def _mentions(note: str, found: _Subject) -> bool:
    """Whether a note is about it: by its name, as it was written, or by its chain of operators."""
    words = {found.name, *found.ids}
    if any(re.search(rf"(?<![\w.#]){re.escape(word)}(?![\w#(])", note) for word in words):
        return True
    steps = [tidy(show_node(node)).partition(" ")[2] for node in found.nodes]
    if any(step and step in note for step in steps):
        return True
    chain = set(re.findall(r"\.(\w+)\(", note.partition(" → ")[0]))
    own = {name for node in found.nodes for name in _operators(node)}
    by_operator = found.name not in own or found.name in chain
    return note.startswith("…") and bool(chain) and chain <= own and by_operator


def _measured(found: _Subject, stages: Iterable[StageFacts]) -> Iterator[str]:
    for stage in stages:
        if stage.name == found.stage:
            spent = seconds(stage.load.seconds)
            yield f"A row takes {spent}; {forecast_line(stage.forecast)}."
    for work in all_work(stages):
        step, share = work.step, f"{percent(work.share)} of {work.stage.name}"
        whole = work.operator is None and step.id in found.ids
        if whole and found.name in (step.id, *step.writes):
            yield f"It takes {seconds(step.seconds)} per row, {share}."
        elif work.operator is not None and found.name in short_names(work.operator.name):
            yield f"It takes {share}, in {step.id}."
        if whole and step.rows_in > step.rows_out:
            yield f"It keeps {percent(step.selectivity)} of the rows."


# What a name stands for in a run.


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
