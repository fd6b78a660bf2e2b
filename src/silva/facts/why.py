"""Everything that concerns one column, step, operator or stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError
from silva.facts.formatting import percent, seconds, tidy, wrapped
from silva.facts.model import READ, RunFacts
from silva.facts.names import (
    Written,
    all_work,
    function_of,
    nothing_called,
    operators_of,
    short_names,
    verbs_called,
    written_steps,
)
from silva.facts.plans import Segment, segments, steps_of
from silva.facts.text import decision_line, forecast_line, now_text, place
from silva.physical.plan import ChunkedFeed
from silva.physical.stage.stage import Stage
from silva.physical.stage.steps import RowStep
from silva.plan.decision import Decision
from silva.plan.function import describe
from silva.plan.node import Derive, Filter, Node, Source, walk
from silva.plan.schema import columns, step_is_random
from silva.plan.show import show_node


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
    reads: bool = False
    """It is the reading of the sources."""
    verbs: tuple[Node, ...] = ()
    """Steps that have no name but that of their verb, such as `batch`."""
    decides: bool = False
    """It is a rule or a choice of the planner."""

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
    found = _subject(facts, stages, name)
    lines = [
        *_written(found),
        *_where(found, stages, facts),
        *_decided(found, facts.decisions),
        *_measured(found, facts),
    ]
    return Why("\n".join(piece for line in lines for piece in wrapped(tidy(line))))


def _subject(facts: RunFacts, segments: list[Segment], name: str | Callable[..., Any]) -> _Subject:
    if not isinstance(name, str):
        if not callable(name):
            raise PlanError(
                f"why takes the name of a column, step, operator or stage, not {name!r}"
            )
        name = describe(name)
    steps = written_steps(facts.written)
    sources = [n for n in walk(facts.written) if isinstance(n, Source)]
    stages = [segment.name for segment in segments]
    if name in stages:
        return _Subject(name, stage=name)
    by_id = [n for n in steps if n.id == name]
    nodes = by_id or [n for n in steps if name in n.writes]
    nodes = nodes or [n for n in steps if name in operators_of(n)]
    nodes = nodes or [n for n in steps if name == function_of(n)]
    having = [] if by_id else [s for s in sources if name in columns(s)]
    if not nodes and not having and name == READ:
        return _Subject(name, sources=tuple(sources), reads=True)
    if not nodes and not having:
        verbs = verbs_called(name, facts.written)
        if not verbs and any(made.name == name for made in facts.decisions):
            return _Subject(name, decides=True)
        if not verbs:
            raise nothing_called(name, facts)
        return _Subject(name, verbs=verbs)
    return _Subject(name, tuple(nodes), tuple(having))


def _written(found: _Subject) -> Iterator[str]:
    for source in found.sources:
        what = "the reading of" if found.reads else "a column of"
        yield f"`{found.name}` is {what} {show_node(source)}."
    for verb in found.verbs:
        yield f"`{found.name}` is the step `{show_node(verb)}`; explain() shows where it runs."
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
    for source in () if found.reads else found.sources:
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
            yield "It is read in units." if used else "It is not read, because no step needs it."


def _decided(found: _Subject, made: Iterable[Decision]) -> Iterator[str]:
    for decision in made:
        is_it = found.decides and decision.name == found.name
        notes = [note for note in decision.notes if is_it or _mentions(note, found)]
        if notes or is_it:
            yield f"{decision.kind.capitalize()} {decision_line(decision)}."
            yield from (f"  · {note}" for note in notes)


def _mentions(note: str, found: _Subject) -> bool:
    """Whether a note is about it: by its name, as it was written, or by its chain of operators."""
    words, (what, colon, _) = {found.name, *found.ids}, note.partition(": ")
    if any(re.search(rf"(?<![\w.#]){re.escape(word)}(?![\w#(])", what) for word in words):
        return True
    steps = [tidy(show_node(node)).partition(" ")[2] for node in found.nodes]
    if any(step and (step in note or (colon and what in step)) for step in steps):
        return True
    chain = set(re.findall(r"\.(\w+)\(", note.partition(" → ")[0]))
    own = {name for node in found.nodes for name in operators_of(node)}
    by_operator = found.name not in own or found.name in chain
    return note.startswith("…") and bool(chain) and chain <= own and by_operator


def _measured(found: _Subject, facts: RunFacts) -> Iterator[str]:
    for stage in facts.stages:
        if stage.name == found.stage:
            spent = seconds(stage.load.seconds)
            yield f"A row takes {spent}; {forecast_line(stage.forecast)}."
            yield from (f"The trainer gets {now}." for now in now_text(facts))
    for work in all_work(facts.stages):
        step, share = work.step, f"{percent(work.share)} of {work.stage.name}"
        own = step.id == READ if found.reads else step.id in found.ids
        whole = work.operator is None and own
        if whole and found.name in (step.id, *step.writes):
            yield f"It takes {seconds(step.seconds)} per row, {share}."
        elif work.operator is not None and found.name in short_names(work.operator.name):
            yield f"It takes {share}, in {step.id}."
        if whole and step.rows_in > step.rows_out:
            yield f"It keeps {percent(step.selectivity)} of the rows."
