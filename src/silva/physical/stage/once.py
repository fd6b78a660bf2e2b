"""Runs a step once per distinct value, on columns whose values repeat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from silva.columns import Dictionary
from silva.columns.codes import joined
from silva.physical.stage.call import Worker
from silva.physical.stage.rows import Rows
from silva.plan.function import Function, Step
from silva.plan.traits import step_is_random, step_reads

_WORTHWHILE = 0.8
"""The share of distinct values above which nothing is gained."""


def once_each(
    what: Step,
    into: tuple[str, ...],
    apply: Callable[[Rows, Worker], None],
    rows: Rows,
    worker: Worker,
) -> bool:
    """Runs a step that derives columns once for each distinct value of what it reads, where all
    of that is grouped (in different ways: once for each combination). False where it must be run
    on every row: it draws random numbers; or it failed, and must be asked on which rows."""
    names = step_reads(what)
    groups = [c for name in names if isinstance(c := rows.columns[name], Dictionary)]
    if not groups or len(groups) < len(names) or not _may_repeat(what):
        return False
    alike = all(_alike(group, groups[0]) for group in groups[1:])
    first, inverse = _first(groups[0]) if alike else joined(group.inverse for group in groups)
    count = len(first)
    if count >= _WORTHWHILE * len(rows):
        return False
    places = None if rows.places is None else rows.places[first]
    values = [group.unique if alike else group.at(first) for group in groups]
    unique = dict(zip(names, values, strict=True))
    distinct = Rows(rows.context, unique, rows.ids[first], places, count)
    apply(distinct, worker)
    drew = worker.moved or (isinstance(what, Function) and bool(worker.seeded(what)))
    if distinct.failures or drew or len(distinct) < count:
        return False
    made = {name: Dictionary(distinct.columns[name], inverse) for name in into}
    rows.columns = {**rows.columns, **made}
    return True


def _first(group: Dictionary) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each value, and the number of each row's value."""
    first = np.zeros(len(group.unique), dtype=np.int64)
    first[group.inverse[::-1]] = np.arange(len(group))[::-1]
    return first, group.inverse


def _may_repeat(what: Step) -> bool:
    """Whether equal inputs give equal results, by the marks of the step."""
    if isinstance(what, Function) and (what.marks.batch_size is not None or what.marks.impure):
        return False
    return not step_is_random(what)


def _alike(a: Dictionary, b: Dictionary) -> bool:
    if a.inverse is b.inverse:
        return True
    return len(a.unique) == len(b.unique) and np.array_equal(a.inverse, b.inverse)
