"""Runs a function once where a stage derives its result twice.

Motive: two people each derive the length of the same text by the same function.

    derive b = f(x)             the column of the first step, copied
    derive a = f(x)        →    derive a = f(x)

Must not happen: for functions that are impure, random or of fixed chunks; where a column that is
read was written in between; across a rename, an explode or `map_rows`; where the first call failed
on a row (the second fails too, and both are counted) or drew from a global generator (the draws of
two steps differ); or where results are objects that two columns must not share.

Law: a pure function of the same columns has the same results. This is decided here and not by a
rule of plans, since only a run shows whether a function draws secretly and what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Values
from silva.columns.owned import is_fixed
from silva.physical.stage.attempts import may_repeat
from silva.physical.stage.call import Worker
from silva.physical.stage.rows import Rows
from silva.physical.stage.steps import Call, CallColumns, MapWhole, Project, Spread, Step


class _Hidden(str):
    """The name of a hidden column. It equals only itself, whatever columns of users are called."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


@dataclass(frozen=True)
class Repeat:
    """A step whose function runs more than once on the same columns."""

    names: tuple[str, ...]
    """The hidden columns that keep the result for the later steps."""
    last: bool


def find_repeats(steps: Sequence[Step]) -> dict[int, Repeat]:
    """The steps whose function runs more than once on the same columns, by their number."""
    written: dict[str, int] = {}
    alike: dict[Any, list[int]] = {}
    barriers = 0
    for number, step in enumerate(steps):
        if isinstance(step, Project | Spread | MapWhole):
            barriers += 1
        elif isinstance(step, Call | CallColumns) and may_repeat(step.function):
            made = step.function
            versions = tuple(written.get(name, 0) for name in made.reads)
            # `made` is compared too: it is equal only where the function is the same object
            key = (id(made.fn), made.reads, made.keywords, made.marks, versions, barriers)
            alike.setdefault((*key, len(step.into)), []).append(number)
        for name in step.writes:
            written[name] = written.get(name, 0) + 1
    found: dict[int, Repeat] = {}
    for numbers in alike.values():
        if len(numbers) > 1:
            width = len(steps[numbers[0]].writes)
            names = tuple(_Hidden(f"{numbers[0]}.{part}") for part in range(width))
            found |= {number: Repeat(names, number == numbers[-1]) for number in numbers}
    return found


def run_repeated(step: Step, repeat: Repeat, rows: Rows, worker: Worker) -> None:
    """Applies a step, or copies the result that an earlier step has kept."""
    if repeat.names[0] in rows.columns:
        made = {
            into: _copied(rows.columns[name])
            for into, name in zip(step.writes, repeat.names, strict=True)
        }
        kept = {n: c for n, c in rows.columns.items() if not (repeat.last and n in repeat.names)}
        rows.columns = {**kept, **made}
        return
    failed = len(rows.failures)
    step.apply(rows, worker)
    assert isinstance(step, Call | CallColumns)
    drew = worker.moved or bool(worker.seeded(step.function))
    if repeat.last or drew or len(rows.failures) > failed:
        return
    made = {name: rows.columns[into] for into, name in zip(step.writes, repeat.names, strict=True)}
    if all(map(_may_share, made.values())):
        rows.columns = {**rows.columns, **made}


def _may_share(column: Column) -> bool:
    """Whether a copy of the column shares nothing with it that anyone could change."""
    match column:
        case Array():
            return not column.data.dtype.hasobject
        case Dictionary():
            return _may_share(column.unique)
        case Values():
            if not all(map(is_fixed, column.kinds - {np.ndarray})):
                return False
            arrays = column.items if np.ndarray in column.kinds else []
            return not any(type(x) is np.ndarray and x.dtype.hasobject for x in arrays)
    return False


def _copied(column: Column) -> Column:
    match column:
        case Array():
            return Array(column.data.copy(order="K"), column.valid)
        case Dictionary():
            return Dictionary(_copied(column.unique), column.inverse, column.distinct)
        case Values() if np.ndarray in column.kinds:
            items = [x.copy(order="K") if type(x) is np.ndarray else x for x in column.items]
            return Values(items, column.kinds)
    return column
