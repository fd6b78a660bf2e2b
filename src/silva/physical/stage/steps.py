"""The steps of a stage: each changes the rows that pass through it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Lists, Parts, Values, concat
from silva.columns.codes import rows_by_type
from silva.columns.union import row_items
from silva.columns.values import PLAIN
from silva.errors import ColumnError, StepError
from silva.order.draws import Draw
from silva.physical.stage.call import Worker, call_rows, watched
from silva.physical.stage.changed_inputs import InputsChanged, Trial, as_argument
from silva.physical.stage.evaluate import evaluate
from silva.physical.stage.global_generators import seeding
from silva.physical.stage.neighbours import ignores_neighbours
from silva.physical.stage.once import once_each
from silva.physical.stage.raised import in_words, shown, user_traceback
from silva.physical.stage.rows import Rows, row_dicts
from silva.plan import expr
from silva.plan.function import Function, show_step
from silva.plan.traits import step_reads

Key = tuple[int | str, ...]
_NEVER = object()
_READ_ONCE = (
    "the function returned a {kind}, which can be read only once and cannot be sent to another "
    "process: return a value, such as a list (for one row per item, explode the list)"
)


class RowStep:
    """What every step of a stage declares."""

    id: str = ""
    """The id of the node that it was written as; empty for steps that the user did not write."""

    @property
    def label(self) -> str:
        """The step as `explain()` shows it; empty for one that is not shown."""
        return ""

    @property
    def runs(self) -> expr.Term | Function | None:
        """The expression or function that it runs."""
        return None

    @property
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
class Call(RowStep):
    """Derives columns by a function of one row."""

    function: Function
    into: tuple[str, ...]
    id: str

    @property
    def runs(self) -> Function:
        return self.function

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into

    @functools.cached_property
    def label(self) -> str:
        return f"{', '.join(self.into)} = {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.function, self.into, self.apply, rows, worker):
            return
        results, good = call_rows(self.function, rows, worker, _key(rows, self.id), self.label)
        if good is not None:
            rows.keep(good)
            results = list(compress(results, good.tolist()))
        if len(self.into) == 1:
            made = _without_iterators(Values(results), rows, self.label)  # may drop rows
            rows.columns = {**rows.columns, self.into[0]: made}
        else:
            parts = _spread(results, self.into, rows, self.label)  # may drop rows
            rows.columns = {**rows.columns, **parts}


def _without_iterators(made: Values, rows: Rows, label: str) -> Values:
    """The results, where none can be read only once (as what a function with `yield` in it, or an
    `async` one, returns): such a result fails its row."""
    bad = {kind for kind in made.kinds - PLAIN if _is_read_once(kind)}
    if not bad:
        return made
    good = np.ones(len(made), dtype=bool)
    items = list(made.items)
    for i, item in enumerate(items):
        if type(item) in bad:
            rows.fail(i, label, TypeError(_READ_ONCE.format(kind=type(item).__name__)))
            if rows.context.on_error == "substitute":
                items[i] = rows.context.substitute
            else:
                good[i] = False
    rows.keep(good)
    return Values(items).keep(good.tolist())


def _is_read_once(kind: type) -> bool:
    """Python's own iterators; objects of other libraries may be pickled and read again."""
    own = kind.__module__ in ("builtins", "itertools")
    return own and issubclass(kind, Iterator | AsyncIterator | Awaitable)


def _spread(
    results: list[Any], names: tuple[str, ...], rows: Rows, label: str
) -> dict[str, Column]:
    """One column per name, for a function that returns several values per row."""
    good = np.ones(len(results), dtype=bool)
    parts: list[tuple[Any, ...]] = []
    substitute = rows.context.substitute if rows.context.on_error == "substitute" else _NEVER
    for i, result in enumerate(results):
        try:
            parts.append(_parts(result, names))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the result may be an object of the user's
            if result is not substitute:  # else the function itself failed, and was noted
                rows.fail(i, label, error)
            if substitute is not _NEVER:
                parts.append((substitute,) * len(names))
            else:
                good[i] = False
    rows.keep(good)
    return {name: Values([p[i] for p in parts]) for i, name in enumerate(names)}


def _parts(result: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(result, dict):
        return tuple(result[name] for name in names)
    values = tuple(result)
    if len(values) != len(names):
        raise ValueError(f"returned {len(values)} values for the {len(names)} columns {names}")
    return values


@dataclass(frozen=True)
class CallColumns(RowStep):
    """Derives columns by a function of whole columns (`@sv.batched`)."""

    function: Function
    into: tuple[str, ...]
    """For a filter: one column without a name."""
    id: str

    @property
    def runs(self) -> Function:
        return self.function

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into

    @functools.cached_property
    def label(self) -> str:
        made = "filter" if self.into == ("",) else f"{', '.join(self.into)} ="
        return f"{made} {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.function, self.into, self.apply, rows, worker):
            return
        fn = worker.callable(self.function)
        fixed = self.function.marks.batch_size is not None
        draw = _draw(rows, self.id)
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
            plain = given[: len(given) - len(self.function.keywords)]
            named = dict(zip(self.function.keywords, given[len(plain) :], strict=True))
            if self.function.takes_rng:
                named["rng"] = next(draw.slice(start, start + 1).generators())
            result = fn(*plain, **named)
            if trial is not None:
                trial.check()
            return _as_columns(result, self.into, count)

        def attempt(seeded: frozenset[str]) -> _Made:
            def run_seeded(start: int, stop: int) -> dict[str, Column]:
                next(seeding(seeded, draw.slice(start, start + 1).seeds().tolist()), None)
                return run(start, stop)

            # random numbers are a row's own (a fixed chunk's: its first row's), in any block
            each = not fixed and (self.function.takes_rng or bool(seeded))
            del rows.failures[failed:]
            return _try(rows, self.label, self.into, run_seeded if seeded else run, each)

        made = _settle(rows, watched(self.function.fn, worker, attempt))
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
        made = _settle(rows, _try(rows, self.label, self.into[:1], run))
        whole = made[self.into[0]]
        if isinstance(whole, Parts):
            made = dict(zip(self.into, whole.columns, strict=True))
        elif len(self.into) > 1:  # some row was done alone, or there is none that is not null
            nothing = (None,) * len(self.into)
            parts = [nothing if row is None else row for row in whole.rows()]
            made = _spread(parts, self.into, rows, self.label)
        rows.columns = {**rows.columns, **made}


@dataclass(frozen=True)
class Keep(RowStep):
    """Keeps the rows for which a function or an expression is true."""

    step: expr.Term | Function
    id: str

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
            _keep_true(rows, self._called(self.step, rows, worker), self.label)
        else:
            self._results(rows, worker)
            self._keep(rows, rows.columns.pop(""))

    def _results(self, rows: Rows, worker: Worker) -> None:
        """The result of the step for each row, as a column without a name."""
        if not isinstance(self.step, Function):
            run = _evaluation(rows, self.step, self.id, "")
            made = _settle(rows, _try(rows, self.label, ("",), run))
            rows.columns = {**rows.columns, **made}
        elif self.step.marks.batched:
            CallColumns(self.step, ("",), self.id).apply(rows, worker)
        else:
            results = self._called(self.step, rows, worker)
            rows.columns = {**rows.columns, "": Values(results)}

    def _called(self, function: Function, rows: Rows, worker: Worker) -> list[Any]:
        results, good = call_rows(function, rows, worker, _key(rows, self.id), self.label)
        if good is None:
            return results
        rows.keep(good)
        return list(compress(results, good.tolist()))

    def _keep(self, rows: Rows, column: Column) -> None:
        column = column.settled()
        if isinstance(column, Dictionary):
            column = column.expand()
        if not isinstance(column, Array) or column.data.ndim != 1:
            _keep_true(rows, column.rows(), self.label)
        else:
            flags = column.data.astype(bool, copy=False)
            rows.keep(flags if column.valid is None else flags & column.valid)


def _keep_true(rows: Rows, results: list[Any], label: str) -> None:
    """Keeps rows whose result is true; a result without a truth value fails its row."""
    try:
        if results and _is_read_once(type(results[0])):  # it would be true on every row
            raise TypeError
        rows.keep_true(results)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  asked again row by row
        rows.keep(_truths(rows, results, label))


def _truths(rows: Rows, results: list[Any], label: str) -> np.ndarray:
    """Which results are true; results without a truth value are noted as failures."""
    truths = np.zeros(len(results), dtype=bool)
    for i, result in enumerate(results):
        try:
            if _is_read_once(type(result)):
                raise TypeError(_READ_ONCE.format(kind=type(result).__name__))
            truths[i] = bool(result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is that row's
            rows.fail(i, label, error)
            if rows.context.on_error == "raise":
                break
    return truths


@dataclass(frozen=True)
class Project(RowStep):
    """Keeps these columns, under these names, and drops the rest."""

    names: tuple[tuple[str, str], ...]
    """Pairs (old, new)."""

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
class MapWhole(RowStep):
    """Replaces each row by what a function of the whole row returns."""

    function: Function
    into: tuple[str, ...]
    id: str

    @property
    def runs(self) -> Function:
        return self.function

    @property
    def reads(self) -> None:
        return None

    @property
    def writes(self) -> tuple[str, ...]:
        return self.into

    @functools.cached_property
    def label(self) -> str:
        return f"map_rows {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        def arguments(trial: Trial | None) -> list[list[Any]]:
            return [row_dicts(self.function, rows.columns, len(rows), trial)]

        key = _key(rows, self.id)
        results, good = call_rows(self.function, rows, worker, key, self.label, arguments)
        if good is not None:
            rows.keep(good)
            results = list(compress(results, good.tolist()))
        rows.columns = _spread(results, self.into, rows, self.label)


Step = Call | CallColumns | Evaluate | Keep | Project | Spread | MapWhole


def _key(rows: Rows, step_id: str) -> Key:
    return (rows.context.seed, rows.context.epoch, step_id)


def _draw(rows: Rows, step_id: str) -> Draw:
    from silva.order.draws import stream_key

    return Draw(stream_key(*_key(rows, step_id)), rows.ids, rows.places)


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
        made = evaluate(term, columns, rows.ids[start:stop], places, _key(rows, step_id))
        if len(made) != stop - start:
            raise ColumnError(f"an operator gave {len(made)} rows for {stop - start}")
        return {name: made}

    return run


_Made = tuple[dict[str, Column], np.ndarray | None]
"""Columns, and a mask of the rows that are in them (None: all are)."""


def _settle(rows: Rows, made: _Made) -> dict[str, Column]:
    """Drops the rows that failed."""
    columns, good = made
    if good is not None:
        rows.keep(good)
    return columns


def _try(
    rows: Rows,
    label: str,
    names: tuple[str, ...],
    run: Callable[[int, int], dict[str, Column]],
    each: bool = False,
) -> _Made:
    """Calls `run` on all rows at once or, if that fails or `each` is true, on each row alone. The
    rows are not changed; failures are noted."""
    if not len(rows):  # many a function cannot do without a row
        return {n: Values([]) for n in names}, None
    whole_error: BaseException | None = None
    if not each or len(rows) == 1:
        try:
            return run(0, len(rows)), None
        except (KeyboardInterrupt, InputsChanged):
            raise
        except BaseException as error:  # noqa: BLE001  asked again row by row
            whole_error = error
    good = np.ones(len(rows), dtype=bool)
    parts: list[dict[str, Column]] = []
    context = rows.context
    failed_before = len(rows.failures)
    for i in range(len(rows)):
        try:
            parts.append(run(i, i + 1))
        except (KeyboardInterrupt, InputsChanged):
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is, it is that row's
            rows.fail(i, label, error)
            good[i] = False
            if context.on_error == "raise":
                good[i:] = False
                break
    if len(rows.failures) == failed_before:
        if whole_error is not None:
            raise StepError(
                f"`{label}` fails on a block of {len(rows)} rows, but on none of them alone: "
                f"{in_words(whole_error)}\n{user_traceback(whole_error).rstrip()}"
            ) from whole_error
        return {n: concat([p[n] for p in parts]) for n in names}, None
    if context.on_error == "substitute":
        filled = iter(parts)
        parts = [
            next(filled) if ok else {n: Values([context.substitute]) for n in names}
            for ok in good.tolist()
        ]
        good[:] = True
    if not parts:
        return {n: Values([]) for n in names}, good
    return {n: concat([p[n] for p in parts]) for n in names}, good


def _as_columns(result: Any, names: tuple[str, ...], count: int) -> dict[str, Column]:
    from silva.io.arrays.memory import as_column

    if len(names) == 1:
        results = result if isinstance(result, dict) and names[0] in result else {names[0]: result}
    elif isinstance(result, dict):
        results = result
    else:
        results = dict(zip(names, result, strict=True))
    out: dict[str, Column] = {}
    for name in names:
        column = as_column(name, results[name])
        if len(column) != count:
            raise ColumnError(
                f"a @batched function returned {len(column)} rows for {name!r}, given {count}"
            )
        out[name] = column
    return out
