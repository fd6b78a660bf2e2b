"""The steps of a stage: each changes the rows that pass through it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Lists, Values, concat
from silva.columns.codes import rows_by_type
from silva.columns.union import row_items
from silva.errors import ColumnError
from silva.physical.stage.attempts import (
    Made,
    as_columns,
    keep_true,
    once_each,
    parts_of,
    settle,
    spread,
    try_rows,
    without_iterators,
)
from silva.physical.stage.call import Worker, call_columns, call_rows, watched
from silva.physical.stage.checks import Trial, as_argument, ignores_neighbours
from silva.physical.stage.evaluate import evaluate
from silva.physical.stage.global_generators import seeding
from silva.physical.stage.raised import shown
from silva.physical.stage.rows import Rows, row_dicts
from silva.plan import expr
from silva.plan.function import Function, show_step
from silva.plan.schema import step_reads


class RowStep:
    """What every step of a stage declares."""

    id: str = ""
    """The id of the node that it was written as; empty for steps that the user did not write."""
    written: str | None = None
    """What it runs, as text, where the user wrote it with other names of columns."""
    planned: expr.Term | Function | None = None
    """The step of the plan; it runs another form of it if that finds rows in tables."""

    def __getstate__(self) -> dict[str, Any]:
        """Without the plan of a table: a worker needs only what runs."""
        return {name: value for name, value in vars(self).items() if name != "planned"}

    @property
    def label(self) -> str:
        """The step as `explain()` shows it; empty for one that is not shown."""
        return ""

    @functools.cached_property
    def name(self) -> str:
        """The step as errors name it: as it was written."""
        if self.written is None or self.runs is None:
            return self.label
        return self.label.replace(show_step(self.runs), self.written)

    @property
    def runs(self) -> expr.Term | Function | None:
        """The expression or function that it runs."""
        return None

    @functools.cached_property
    def reads(self) -> frozenset[str] | None:
        """The columns that it reads; None if it needs all of them."""
        return None if self.runs is None else frozenset(step_reads(self.runs))

    @property
    def writes(self) -> tuple[str, ...]:
        """The columns that it derives."""
        return ()

    def apply(self, rows: Rows, worker: Worker) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class _CallsFunction(RowStep):
    """A step that derives columns by a function."""

    function: Function
    into: tuple[str, ...]
    id: str
    written: str | None = None

    @property
    def runs(self) -> Function:
        return self.function

    @property
    def planned(self) -> Function:  # type: ignore[override]
        return self.function

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into

    @functools.cached_property
    def label(self) -> str:
        return f"{', '.join(self.into)} = {show_step(self.function)}"


@dataclass(frozen=True)
class Call(_CallsFunction):
    """Derives columns by a function of one row."""

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.function, self.into, self.apply, rows, worker):
            return
        made: dict[str, Column]
        failed = len(rows.failures)
        results = call_rows(self.function, rows, worker, self.id, self.name)
        if len(self.into) == 1:  # both may drop rows
            made = {self.into[0]: without_iterators(Values(results), rows, self.name)}
        else:
            made = spread(results, self.into, rows, self.name, failed)
        rows.columns = {**rows.columns, **made}


@dataclass(frozen=True)
class CallColumns(_CallsFunction):
    """Derives columns by a function of whole columns (`@sv.batched`); for a filter, one column
    without a name."""

    @functools.cached_property
    def label(self) -> str:
        made = "filter" if self.into == ("",) else f"{', '.join(self.into)} ="
        return f"{made} {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.function, self.into, self.apply, rows, worker):
            return
        fn = worker.callable(self.function)
        fixed = self.function.marks.batch_size is not None
        draw = rows.draw(self.id)
        failed = len(rows.failures)
        trial = worker.trial(self.function) if len(rows) else None

        def run(start: int, stop: int) -> dict[str, Column]:
            columns = [rows.columns[n].slice(start, stop) for n in self.function.reads]
            places = None if fixed else rows_by_type(columns, ragged=True)
            if places is None:
                return call(columns, start, stop - start)
            parts = [call([c.take(p) for c in columns], start, len(p)) for p in places]
            order = np.argsort(np.concatenate(places))
            return {n: concat([part[n] for part in parts]).take(order) for n in self.into}

        def call(columns: list[Column], start: int, count: int) -> dict[str, Column]:
            given = [
                as_argument(n, column.batch(), self.function, trial)
                for n, column in zip(self.function.reads, columns, strict=True)
            ]
            result = call_columns(fn, self.function, given, draw.slice(start, start + 1))
            if trial is not None:
                trial.check()
            return as_columns(result, self.into, count)

        def attempt(seeded: frozenset[str]) -> Made:
            def run_seeded(start: int, stop: int) -> dict[str, Column]:
                next(seeding(seeded, draw.slice(start, start + 1).seeds().tolist()), None)
                return run(start, stop)

            # random numbers are a row's own (a fixed chunk's: its first row's), in any block
            each = not fixed and (self.function.takes_rng or bool(seeded))
            del rows.failures[failed:]
            return try_rows(rows, self.name, self.into, run_seeded if seeded else run, each)

        made = settle(rows, watched(self.function.fn, worker, attempt))
        drew = self.function.takes_rng or worker.moved or worker.seeded(self.function)
        alone = len(rows.failures) > failed  # then each row was done by itself
        if (
            not fixed
            and not drew
            and len(rows) > 1
            and (not alone or rows.context.on_error == "skip")  # else bad rows are among them
            and worker.may_check(self.function)
            and ignores_neighbours(self.function, run, made, len(rows), alone)
        ):
            worker.note_checked(self.function)
        rows.columns = {**rows.columns, **made}


@dataclass(frozen=True)
class Evaluate(RowStep):
    """Derives a column by an expression; or several, of one whose rows have parts."""

    term: expr.Term
    into: tuple[str, ...]
    id: str
    written: str | None = None
    planned: expr.Term | Function | None = field(default=None, repr=False, compare=False)

    @property
    def runs(self) -> expr.Term:
        return self.term

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into

    @functools.cached_property
    def label(self) -> str:
        return f"{', '.join(self.into)} = {show_step(self.term)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.term, self.into, self.apply, rows, worker):
            return
        run = _evaluation(rows, self.term, self.id, self.into[0])
        made = settle(rows, try_rows(rows, self.name, self.into[:1], run))
        if len(self.into) > 1:
            made = parts_of(made[self.into[0]], self.into, rows.context)
        rows.columns = {**rows.columns, **made}


@dataclass(frozen=True)
class Keep(RowStep):
    """Keeps the rows for which a function or an expression is true."""

    step: expr.Term | Function
    id: str
    written: str | None = None
    planned: expr.Term | Function | None = field(default=None, repr=False, compare=False)

    @property
    def runs(self) -> expr.Term | Function:
        return self.step

    @functools.cached_property
    def label(self) -> str:
        return f"filter {show_step(self.step)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        """Drops a row on which the filter fails: a substitute replaces a value, not a decision."""
        given = rows.context
        if given.on_error == "substitute":
            rows.context = replace(given, on_error="skip")
        self._apply(rows, worker)
        rows.context = given

    def _apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.step, ("",), self._results, rows, worker):
            self._keep(rows, rows.columns.pop(""))
        elif isinstance(self.step, Function) and not self.step.marks.batched:
            results = call_rows(self.step, rows, worker, self.id, self.name)
            keep_true(rows, results, self.name)
        else:
            self._results(rows, worker)
            self._keep(rows, rows.columns.pop(""))

    def _results(self, rows: Rows, worker: Worker) -> None:
        """The result of the step for each row, as a column without a name."""
        if not isinstance(self.step, Function):
            run = _evaluation(rows, self.step, self.id, "")
            made = settle(rows, try_rows(rows, self.name, ("",), run))
            rows.columns = {**rows.columns, **made}
        elif self.step.marks.batched:
            CallColumns(self.step, ("",), self.id, self.written).apply(rows, worker)
        else:
            results = call_rows(self.step, rows, worker, self.id, self.name)
            rows.columns = {**rows.columns, "": Values(results)}

    def _keep(self, rows: Rows, column: Column) -> None:
        column = column.settled()
        if isinstance(column, Dictionary):
            column = column.expand()
        if not isinstance(column, Array) or column.data.ndim != 1:
            keep_true(rows, column.rows(), self.name)
        else:
            flags = column.data.astype(bool, copy=False)
            rows.keep(flags if column.valid is None else flags & column.valid)


@dataclass(frozen=True)
class Project(RowStep):
    """Keeps these columns, under these names, and drops the rest."""

    names: tuple[tuple[str, str], ...]
    """Pairs (old, new)."""

    @staticmethod
    def of(names: tuple[str, ...]) -> Project:
        """Keeps these columns under their own names."""
        return Project(tuple((name, name) for name in names))

    def apply(self, rows: Rows, worker: Worker) -> None:
        rows.columns = {new: rows.columns[old] for old, new in self.names}


@dataclass(frozen=True)
class Spread(RowStep):
    """One row per item of a list column; rows without items are dropped."""

    column: str

    @functools.cached_property
    def label(self) -> str:
        return f"explode {self.column}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        column = rows.columns[self.column]
        if isinstance(column, Dictionary):
            column = column.expand()
        if isinstance(column, Lists) and column.valid is None:
            first, last = int(column.offsets[0]), int(column.offsets[-1])
            counts, items = np.diff(column.offsets), column.values.slice(first, last)
        else:
            counts, items = self._from_rows(column, rows)
        names = list(rows.columns)
        rows.columns = {n: c for n, c in rows.columns.items() if n != self.column}
        rows.repeat(counts)
        rows.columns = {n: items if n == self.column else rows.columns[n] for n in names}

    def _from_rows(self, column: Column, rows: Rows) -> tuple[np.ndarray, Column]:
        if isinstance(column, Values) and column.kinds <= {list, tuple}:
            counts = np.fromiter(map(len, column.items), np.int64, len(column))
            return counts, Values(list(chain.from_iterable(column.items)))
        good = np.ones(len(column), dtype=bool)
        kept: list[Column] = []
        for i in range(len(column)):
            try:
                kept.append(_items(column.slice(i, i + 1)))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  whatever it is, it is that row's
                rows.fail(i, self.label, error)
                good[i] = False
        rows.keep(good)
        counts = np.array([len(items) for items in kept], dtype=np.int64)
        return counts, concat(kept) if kept else Values([])


def _items(row: Column) -> Column:
    """The items of a column's one row."""
    (items,) = row_items(row)
    if items is None:
        raise TypeError(f"explode needs a list, not {shown(row.rows()[0])}")
    return items


@dataclass(frozen=True)
class MapWhole(_CallsFunction):
    """Replaces each row by what a function of the whole row returns."""

    @property
    def reads(self) -> None:
        return None

    @functools.cached_property
    def label(self) -> str:
        return f"map_rows {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        def arguments(trial: Trial | None) -> list[list[Any]]:
            return [row_dicts(self.function, rows.columns, len(rows), trial)]

        failed = len(rows.failures)
        results = call_rows(self.function, rows, worker, self.id, self.label, arguments)
        rows.columns = spread(results, self.into, rows, self.label, failed)


Step = Call | CallColumns | Evaluate | Keep | Project | Spread | MapWhole


def _evaluation(
    rows: Rows, term: expr.Term, step_id: str, name: str
) -> Callable[[int, int], dict[str, Column]]:
    needed = expr.columns_read(term)

    def run(start: int, stop: int) -> dict[str, Column]:
        whole = start == 0 and stop == len(rows)
        columns = {
            n: rows.columns[n] if whole else rows.columns[n].slice(start, stop) for n in needed
        }
        places = None if rows.places is None else rows.places[start:stop]
        key = (rows.context.seed, rows.context.epoch, step_id)
        made = evaluate(term, columns, rows.ids[start:stop], places, key)
        if len(made) != stop - start:
            raise ColumnError(f"an operator gave {len(made)} rows for {stop - start}")
        return {name: made}

    return run
