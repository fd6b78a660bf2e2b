"""The steps of a stage: each changes the rows that pass through it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from silva.columns import Array, Column, Grouped, Lists, Parts, Values
from silva.errors import ColumnError
from silva.order.draws import Draw
from silva.physical.call import Worker, call_rows, watched
from silva.physical.evaluate import evaluate
from silva.physical.globals import seeding
from silva.physical.once import once_each
from silva.physical.rows import Rows
from silva.plan import expr
from silva.plan.function import Function
from silva.plan.show_steps import show_step

Key = tuple[int | str, ...]
_NEVER = object()


@dataclass(frozen=True)
class Call:
    """Derives columns by a function of one row."""

    function: Function
    into: tuple[str, ...]
    id: str

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
            rows.columns = {**rows.columns, self.into[0]: Values(results)}
        else:
            made = _spread(results, self.into, rows, self.label)  # may drop rows
            rows.columns = {**rows.columns, **made}


def _spread(
    results: list[Any], names: tuple[str, ...], rows: Rows, label: str
) -> dict[str, Column]:
    """One column a name, of a function that returns several values a row."""
    good = np.ones(len(results), dtype=bool)
    parts: list[tuple[Any, ...]] = []
    substitute = rows.context.substitute if rows.context.on_error == "substitute" else _NEVER
    for i, result in enumerate(results):
        try:
            parts.append(_parts(result, names))
        except (TypeError, ValueError, KeyError) as error:
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
class CallColumns:
    """Derives columns by a function of whole columns (`@sv.batched`)."""

    function: Function
    into: tuple[str, ...]
    id: str

    @functools.cached_property
    def label(self) -> str:
        return f"{', '.join(self.into)} = {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.function, self.into, self.apply, rows, worker):
            return
        fn = worker.callable(self.function)
        fixed = self.function.marks.batch_size is not None
        draw = _draw(rows, self.id)
        failed = len(rows.failures)

        def run(start: int, stop: int) -> dict[str, Column]:
            given = [
                _read_only(
                    rows.columns[n].slice(start, stop).batch(), n in self.function.marks.owns
                )
                for n in self.function.reads
            ]
            plain = given[: len(given) - len(self.function.keywords)]
            named = dict(zip(self.function.keywords, given[len(plain) :], strict=True))
            if self.function.takes_rng:
                named["rng"] = next(draw.slice(start, start + 1).generators())
            return _as_columns(fn(*plain, **named), self.into, stop - start)

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
        whole = len(rows.failures) == failed  # where a row failed, its block cannot be run again
        if not fixed and not drew and whole and worker.is_first(self.function):
            self._check_neighbours(run, made, len(rows))
        rows.columns = {**rows.columns, **made}

    def _check_neighbours(
        self,
        run: Callable[[int, int], dict[str, Column]],
        made: dict[str, Column],
        count: int,
    ) -> None:
        """On the first block of a worker: do the rows come out the same when it is cut in two?"""
        if count < 2:
            return
        halves = run(0, count // 2), run(count // 2, count)
        for name in self.into:
            whole = made[name].rows()
            parts = [x for half in halves for x in half[name].rows()]
            for row, part in zip(whole, parts, strict=True):
                if not _alike(row, part):
                    raise ColumnError(
                        f"@sv.batched {self.function.name} ({self.function.where}): a row's result "
                        f"depends on its neighbours ({row!r:.40} in a block, {part!r:.40} in half "
                        "of it); use @sv.batched(size=n) for fixed chunks"
                    )


@dataclass(frozen=True)
class Evaluate:
    """Derives a column by an expression; or several, of one whose rows have parts."""

    term: expr.Term
    into: tuple[str, ...]
    id: str

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
class Keep:
    """Keeps the rows for which a function or an expression is true."""

    step: expr.Term | Function
    id: str

    @functools.cached_property
    def label(self) -> str:
        return f"filter {show_step(self.step)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        if once_each(self.step, ("",), self._results, rows, worker):
            self._keep(rows, rows.columns.pop(""))
        elif isinstance(self.step, Function) and not self.step.marks.batched:
            _keep_true(rows, self._called(self.step, rows, worker), self.label)
        else:
            self._results(rows, worker)
            self._keep(rows, rows.columns.pop(""))

    def _results(self, rows: Rows, worker: Worker) -> None:
        """What the step gives for each row, as a column without a name."""
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
        if isinstance(column, Grouped):
            column = column.expand()
        if not isinstance(column, Array) or column.data.ndim != 1:
            _keep_true(rows, column.rows(), self.label)
        else:
            flags = column.data.astype(bool, copy=False)
            rows.keep(flags if column.valid is None else flags & column.valid)


def _keep_true(rows: Rows, results: list[Any], label: str) -> None:
    """Keeps rows whose result is true; a result without a truth value fails its row."""
    try:
        rows.keep_true(results)
        return
    except (ValueError, TypeError):
        good = np.ones(len(results), dtype=bool)
    for i, result in enumerate(results):
        try:
            bool(result)
        except (ValueError, TypeError) as error:
            rows.fail(i, label, error)
            good[i] = False
            if rows.context.on_error == "raise":
                good[i:] = False
                break
    rows.keep(good)
    rows.keep_true(list(compress(results, good.tolist())))


@dataclass(frozen=True)
class Project:
    """Keeps these columns, under these names, and forgets the rest."""

    names: tuple[tuple[str, str], ...]
    """Pairs (old, new)."""
    label = ""

    def apply(self, rows: Rows, worker: Worker) -> None:
        rows.columns = {new: rows.columns[old] for old, new in self.names}


@dataclass(frozen=True)
class Spread:
    """One row for each item of a list column; rows with no items go."""

    column: str

    @functools.cached_property
    def label(self) -> str:
        return f"explode {self.column}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        column = rows.columns[self.column]
        if isinstance(column, Grouped):
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
        good = np.ones(len(column), dtype=bool)
        kept: list[list[Any]] = []
        for i, item in enumerate(column.rows()):
            if item is None:
                kept.append([])
            elif isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim):
                kept.append(list(item))
            else:
                rows.fail(i, self.label, TypeError(f"explode needs a list, not {item!r:.80}"))
                good[i] = False
        rows.keep(good)
        counts = np.array([len(x) for x in kept], dtype=np.int64)
        return counts, Values([x for row in kept for x in row])


@dataclass(frozen=True)
class MapWhole:
    """Replaces each row by what a function of the whole row returns."""

    function: Function
    into: tuple[str, ...]
    id: str

    @functools.cached_property
    def label(self) -> str:
        return f"map_rows {show_step(self.function)}"

    def apply(self, rows: Rows, worker: Worker) -> None:
        names = list(rows.columns)
        whole = zip(*(rows.columns[n].rows() for n in names), strict=True) if names else None
        dicts = [dict(zip(names, r, strict=True)) for r in whole] if whole else [{}] * len(rows)
        rows.columns = {**rows.columns, "row": Values(dicts)}
        results, good = call_rows(self.function, rows, worker, _key(rows, self.id), self.label)
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
    """`run` on all rows at once or, where that fails or `each` is true, on each alone. The rows
    stay as they are; failures are noted."""
    from silva.columns import concat

    if not len(rows):
        return run(0, 0), None
    whole_error: BaseException | None = None
    if not each or len(rows) == 1:
        try:
            return run(0, len(rows)), None
        except (Exception, SystemExit) as error:  # noqa: BLE001  asked again row by row
            whole_error = error
    good = np.ones(len(rows), dtype=bool)
    parts: list[dict[str, Column]] = []
    context = rows.context
    failed_before = len(rows.failures)
    for i in range(len(rows)):
        try:
            parts.append(run(i, i + 1))
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever it is, it is that row's
            rows.fail(i, label, error)
            good[i] = False
            if context.on_error == "raise":
                good[i:] = False
                break
    if len(rows.failures) == failed_before:
        if whole_error is not None:
            raise whole_error  # each row alone is fine: not a matter of one row
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


def _alike(a: Any, b: Any) -> bool:
    """Equal, but for the last bits that a matrix product may change."""
    if isinstance(a, float | np.ndarray) and isinstance(b, float | np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind in "fc":
            return bool(np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True))
        return bool(np.array_equal(a, b))
    return type(a) is type(b) and bool(a == b)


def _read_only(value: Any, owned: bool) -> Any:
    if isinstance(value, np.ndarray):
        if owned:
            return value.copy()
        value = value.view()
        value.flags.writeable = False
    return value


def _as_columns(result: Any, names: tuple[str, ...], count: int) -> dict[str, Column]:
    from silva.io.memory import as_column

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
