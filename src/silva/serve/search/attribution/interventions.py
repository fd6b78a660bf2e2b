"""Answers rows with known answers, and answers them again with a step made perfect or left out.

The rows go through the steps as they are written, and what each step made of each row is kept. A
run in which a step gives something else goes on from there, with the rows that differ alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from silva.loader import Loader
from silva.options import LoaderOptions
from silva.physical.stage.call import Worker
from silva.physical.stage.context import Context
from silva.physical.stage.steps import Keep
from silva.plan.node import Node, Options, option
from silva.plan.schema import columns
from silva.serve.engine.units import Part, Unit, run_unit, units_of
from silva.serve.requests import identity_of, source_of
from silva.serve.search.rows import request_of

Row = Mapping[str, Any]
Values = Mapping[str, Any]
"""Values of columns."""
Edit = Callable[[int, Row, "Row | None"], "Values | None"]
"""What a step shall give for the row of this number, by the row before it and after it (None where
it failed or dropped the row); None leaves that as it is."""


@dataclass(frozen=True, eq=False)
class Written:
    """A step as it is written."""

    id: str
    """The columns that it writes, with a number if they were written before: `hits`, `hits#1`."""
    unit: Unit
    ancestors: frozenset[int]
    """The numbers of the steps whose columns it reads, or that these depend on."""

    @property
    def number(self) -> int:
        return self.unit.number

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(self.unit.step.writes)

    @property
    def is_filter(self) -> bool:
        return isinstance(self.unit.step, Keep)


@dataclass(eq=False)
class Answered:
    """The rows after each step."""

    stages: list[list[Part]] = field(default_factory=list)
    """For each step, the rows before it; at last, the rows at the end."""

    def row(self, stage: int, number: int) -> Row | None:
        """A row before a step; None if it has failed or was dropped."""
        return row_of(self.stages[stage][number])


class Pipeline:
    """The steps of a pipeline, and rows with known answers."""

    def __init__(self, plan: Node, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.wanted = columns(plan)
        names = source_of(plan).names
        self._given = [request_of(names, row, number) for number, row in enumerate(rows)]
        self._identities = [identity_of(names, row) for row in self._given]
        as_written = Options(plan, (("optimize", False),))
        with Loader(as_written, LoaderOptions(backend="inline")) as loader:
            self._units = units_of(loader.facts().plan)
        self.steps = tuple(_written(self._units))
        self._context = Context(int(option(plan, "seed", 0)), 0, "skip")
        self._worker = Worker(shares_generators=False)
        self.base = self._run({}, None)

    def run(self, edits: Mapping[int, Edit]) -> Answered:
        """Answers the rows with other results of the steps with these numbers."""
        return self._run(edits, self.base)

    def answers(self, run: Answered) -> list[dict[str, Any] | None]:
        """The columns of the pipeline; None for a row that failed or was dropped."""
        last = len(self._units)
        rows = (run.row(last, number) for number in range(len(self.rows)))
        return [None if row is None else {name: row[name] for name in self.wanted} for row in rows]

    def _run(self, edits: Mapping[int, Edit], base: Answered | None) -> Answered:
        pairs = zip(self._identities, self._given, strict=True)
        now = [Part(identity, [dict(row)]) for identity, row in pairs]
        changed = [base is None] * len(now)
        made = Answered()
        for unit in self._units:
            made.stages.append(now)
            after = list(now) if base is None else list(base.stages[unit.number + 1])
            todo = [n for n, part in enumerate(now) if changed[n]]
            for n in todo:
                after[n] = now[n].copy()
            alive = [after[n] for n in todo if row_of(after[n]) is not None]
            if alive:
                run_unit(unit, alive, self._context, self._worker)
            if unit.number in edits:
                for n, part in enumerate(now):
                    if (new := _edited(edits[unit.number], n, part, after[n])) is not None:
                        after[n], changed[n] = new, True
            now = after
        made.stages.append(now)
        return made


def _edited(edit: Edit, number: int, before: Part, after: Part) -> Part | None:
    """A row with what a step shall give; None if that is what it gives."""
    first = row_of(before)
    values = None if first is None else edit(number, first, row_of(after))
    if values is None or first is None:
        return None
    found = row_of(after)
    made = (before if found is None else after).copy()
    made.rows = [{**row, **values} for row in made.rows]
    return made


def row_of(part: Part) -> dict[str, Any] | None:
    """The row of a request that is still on its way."""
    return part.rows[0] if part.rows and not part.failures else None


def names_of(units: Sequence[Unit]) -> list[str]:
    """The name of each step: the columns that it writes, with a number if they were written before;
    of a step that writes none, its label."""
    counts: dict[str, int] = {}
    found = []
    for unit in units:
        writes = tuple(unit.step.writes)
        words = (f"{one}#{counts[one]}" if one in counts else one for one in writes)
        found.append(", ".join(words) or unit.label)
        for one in writes:
            counts[one] = counts.get(one, 0) + 1
    return found


def _written(units: Sequence[Unit]) -> Iterator[Written]:
    """The steps with their names, and what they depend on."""
    wrote: dict[str, int] = {}
    """The step that wrote each column last."""
    before: list[frozenset[int]] = []
    for unit, name in zip(units, names_of(units), strict=True):
        reads = wrote if unit.step.reads is None else unit.step.reads
        direct = {wrote[one] for one in reads if one in wrote}
        before.append(frozenset(direct.union(*(before[number] for number in direct))))
        wrote |= dict.fromkeys(unit.step.writes, unit.number)
        if unit.step.writes or isinstance(unit.step, Keep):
            yield Written(name, unit, before[-1])
