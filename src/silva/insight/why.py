"""Why one column, step, operator or stage is as it is: everything that concerns it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from silva.errors import PlanError
from silva.insight.decisions import Decision
from silva.insight.explain import lane_place
from silva.insight.explanation import decisions_of
from silva.insight.measured_lines import forecast_line
from silva.insight.names import offer, parts, short_names, stage_parts
from silva.insight.overall import lanes_of
from silva.insight.stages import stage_facts
from silva.insight.words import percent, seconds, tidy, wrapped
from silva.physical import plan as physical
from silva.physical.stage import Stage
from silva.plan import expr
from silva.plan.node import Derive, Filter, MapRows, Node, Source, walk
from silva.plan.schema import columns
from silva.plan.show import show_node
from silva.plan.traits import step_is_random


class Why(str):
    """A few sentences, a line each."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class _Subject:
    """What a name stands for."""

    name: str
    nodes: tuple[Derive | Filter | MapRows, ...] = ()
    """Steps as written."""
    sources: tuple[Source, ...] = ()
    """That have a column of that name."""
    stage: str | None = None

    @property
    def words(self) -> set[str]:
        """What decisions may call it."""
        return {self.name, *(node.id for node in self.nodes)}


def why(loader: Any, name: str) -> Why:
    """Sentences about whatever has this name in a loader's pipeline.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(4)}).derive(y=lambda x: x, z=lambda x: -x).select("y")
    >>> print(numbers.why("z"))
    `z` is written by derive z = lambda(x)...
    No stage runs it by itself.
    Rule drop_unread: nobody reads what these steps write.
      · z
    """
    plan, executor = loader._lowered(), loader._executor
    found = _subject(loader._logical, plan, name)
    segments = list(_segments(plan))
    lines = [
        *_written(found),
        *_where(found, segments, executor.lanes),
        *_decided(found, decisions_of(loader)),
        *_measured(found, lanes_of(plan, executor)),
    ]
    return Why("\n".join(piece for line in lines for piece in wrapped(tidy(line))))


def _subject(written: Node, plan: Any, name: str) -> _Subject:
    steps = [n for n in walk(written) if isinstance(n, Derive | Filter | MapRows)]
    sources = [n for n in walk(written) if isinstance(n, Source)]
    stages = [segment.name for segment in _segments(plan)]
    if name in stages:
        return _Subject(name, stage=name)
    by_id = [n for n in steps if n.id == name]
    mine = by_id or [n for n in steps if name in getattr(n, "into", ())]
    mine = mine or [n for n in steps if name in _operators(n)]
    having = [] if by_id else [s for s in sources if name in columns(s)]
    if not mine and not having:
        there = {i for n in steps for i in (*getattr(n, "into", ()), n.id, *_operators(n))}
        there |= {c for s in sources for c in columns(s)} | set(stages)
        raise PlanError(f"there is nothing called {name!r} here; {offer(name, sorted(there))}")
    return _Subject(name, tuple(mine), tuple(having))


def _operators(node: Derive | Filter | MapRows) -> set[str]:
    if not isinstance(node, Derive | Filter) or not isinstance(node.step, expr.Call):
        return set()
    calls = [part.op for part in expr.walk(node.step) if isinstance(part, expr.Call)]
    return {name for op in calls for name in short_names(op)}


def _segments(plan: Any) -> Iterator[Any]:
    """Stages from the sources up."""
    for child in physical.inputs(plan):
        yield from _segments(child)
    if isinstance(plan, physical.Segment | physical.BatchSegment):
        yield plan


def _written(found: _Subject) -> Iterator[str]:
    for source in found.sources:
        yield f"`{found.name}` is a column of {show_node(source)}."
    for node in found.nodes:
        yield f"`{found.name}` {_verb(found.name, node)} {show_node(node)}."
        if isinstance(node, Derive | Filter) and step_is_random(node.step):
            yield "The step is random: drawn anew in every epoch, so that no cache can hold it."


def _verb(name: str, node: Derive | Filter | MapRows) -> str:
    if name in getattr(node, "into", ()):
        return "is written by"
    return "is" if name == node.id else "is used by"


def _where(found: _Subject, segments: list[Any], lanes: Any) -> Iterator[str]:
    """The stages that run it, and what has changed places with it."""
    ids = {node.id for node in found.nodes}
    runs = False
    for segment in segments:
        lane = lanes.get(segment.name)
        steps = stage_parts(segment.stage)
        mine = [step for step in steps if getattr(step, "id", None) in ids]
        if not mine and segment.name != found.stage:
            continue
        runs = True
        known = lane is not None and lane.stats.blocks
        place = f" {lane_place(lane)}" if known and lane is not None else ""
        yield f"It runs in {segment.name}{place}." if mine else f"{segment.name}{place}."
        yield from _moved(found, [getattr(step, "id", "") for step in steps], mine)
    if found.nodes and not runs:
        yield "No stage runs it by itself."
    for source in found.sources:
        yield from _read(found.name, source, segments)


def _moved(found: _Subject, order: list[str], mine: list[Any]) -> Iterator[str]:
    """Steps that were written on the other side of it."""
    for step in mine:
        node = next(n for n in found.nodes if n.id == step.id)
        below = {getattr(n, "id", "") for n in walk(node) if n is not node}
        at = order.index(step.id)
        overtaken = [i for i in order[at + 1 :] if i and i in below]
        if overtaken:
            yield f"It comes before {', '.join(overtaken)}, which was written before it."


def _read(name: str, source: Source, segments: list[Any]) -> Iterator[str]:
    """Whether a column of a source is read, and when."""
    for segment in segments:
        stage = segment.stage
        if not isinstance(stage, Stage):
            continue
        below, read = segment.input, stage.read
        if read is not None and read.source is source.source:
            if name not in read.columns:
                yield "It is not read: nothing needs it."
            elif name in stage.late:
                yield f"It is read in {segment.name}, only for rows that its filters keep."
            else:
                yield f"It is read in {segment.name}."
        elif isinstance(below, physical.ChunkedFeed) and below.read.source is source.source:
            used = name in below.read.columns
            yield "It is read in chunks." if used else "It is not read: nothing needs it."


def _decided(found: _Subject, made: Iterable[Decision]) -> Iterator[str]:
    for decision in made:
        notes = [note for note in decision.notes if _mentions(note, found)]
        if notes:
            yield f"{decision.kind.capitalize()} {decision.line}."
            yield from (f"  · {note}" for note in notes)


def _mentions(note: str, found: _Subject) -> bool:
    """Whether a note speaks of it: by name, as it was written, or of the operators of its chain."""
    if any(re.search(rf"(?<![\w.#]){re.escape(word)}(?![\w#(])", note) for word in found.words):
        return True
    steps = [tidy(show_node(node)).partition(" ")[2] for node in found.nodes]
    if any(step and step in note for step in steps):
        return True
    chain = set(re.findall(r"\.(\w+)\(", note.partition(" → ")[0]))
    own = {name for node in found.nodes for name in _operators(node)}
    by_operator = found.name not in own or found.name in chain
    return note.startswith("…") and bool(chain) and chain <= own and by_operator


def _measured(found: _Subject, lanes: Any) -> Iterator[str]:
    for lane in lanes:
        if lane.name == found.stage:
            facts = stage_facts(lane)
            yield f"A row takes {seconds(facts.seconds)}; {forecast_line(facts.forecast)}."
    ids = {node.id for node in found.nodes}
    for part in parts(lanes):
        whole = part.operator is None and part.id in ids
        if whole and (found.name in (part.id, *part.columns)):
            per_row = seconds(part.cost.seconds_a_row)
            yield f"It takes {per_row} a row, {percent(part.share)} of {part.lane.name}."
        elif part.operator is not None and found.name in short_names(part.operator):
            yield f"It takes {percent(part.share)} of {part.lane.name}, in {part.id}."
        if whole and part.cost.rows > part.cost.kept:
            yield f"It keeps {percent(part.cost.selectivity)} of the rows."
