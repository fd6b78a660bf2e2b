"""How the results of a step become columns, and which rows fail on the way.

A step is tried on all rows at once, and row by row if that fails, so that each bad row is known by
its key. On columns whose values repeat, it runs once per distinct value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import numpy as np

from silva.columns import Array, Column, Dictionary, Parts, Values, concat
from silva.columns.codes import joined
from silva.columns.column import Strings
from silva.columns.owned import is_fixed
from silva.columns.union import Union
from silva.columns.values import PLAIN
from silva.errors import ColumnError, StepError
from silva.physical.stage.call import Worker
from silva.physical.stage.checks import InputsChanged
from silva.physical.stage.context import Context
from silva.physical.stage.raised import in_words, user_traceback
from silva.physical.stage.rows import Rows, concat_each
from silva.plan.function import Function, Step
from silva.plan.operator import RowErrors
from silva.plan.schema import step_is_random, step_reads

_READ_ONCE = (
    "the function returned a {kind}, which can be read only once and cannot be sent to another "
    "process: return a value, such as a list (for one row per item, explode the list)"
)
_WORTHWHILE = 0.8
"""The share of distinct values above which nothing is gained."""
_FEW, _MANY = 64, 1000
"""Rows of a block below which distinct values are not looked for, and from which it shows that they
do not repeat."""
_COSTLY = 1e-6
"""Seconds a row from which a function is worth finding the distinct values of a plain column, which
takes 0.15 µs a row."""
_PLAIN_KINDS: tuple[frozenset[type], ...] = (frozenset({str}), frozenset({int}))
"""The types of Python values whose equality means that functions cannot tell them apart."""

Made = tuple[dict[str, Column], np.ndarray | None]
"""Columns, and a mask of the rows that are in them (None: all are)."""


def settle(rows: Rows, made: Made) -> dict[str, Column]:
    """Drops the rows that failed."""
    columns, good = made
    if good is not None:
        rows.keep(good)
    return columns


def try_rows(
    rows: Rows,
    label: str,
    names: tuple[str, ...],
    run: Callable[[int, int], dict[str, Column]],
    each: bool = False,
) -> Made:
    """Calls `run` on all rows at once or, if that fails or `each` is true, on each row alone. The
    rows are not changed; failures are noted."""
    if not len(rows):  # many functions fail on no rows
        return {n: Values([]) for n in names}, None
    whole_error: BaseException | None = None
    if not each or len(rows) == 1:
        try:
            return run(0, len(rows)), None
        except (KeyboardInterrupt, InputsChanged):
            raise
        except RowErrors as error:
            return _without_failed(rows, label, names[0], error)
        except BaseException as error:  # noqa: BLE001  asked again row by row
            whole_error = error
    failed_before = len(rows.failures)
    of_step = (KeyboardInterrupt, InputsChanged)
    parts, good = rows.each(label, lambda i: run(i, i + 1), names, of_step)
    if whole_error is not None and len(rows.failures) == failed_before:
        raise StepError(
            f"`{label}` fails on a block of {len(rows)} rows, but on none of them alone: "
            f"{in_words(whole_error)}\n{user_traceback(whole_error).rstrip()}"
        ) from whole_error
    return concat_each(parts, names), good


def _without_failed(rows: Rows, label: str, name: str, found: RowErrors) -> Made:
    """The rows that an operator has made, where it says which have failed."""
    good = np.ones(len(rows), dtype=bool)
    items = list(found.made.rows())
    for row, error in sorted(found.errors.items()):
        rows.fail(row, label, error)
        if rows.context.on_error == "substitute":
            items[row] = rows.context.substituted()
            continue
        good[row] = False
        if rows.context.on_error == "raise":  # no row after this one is asked for
            good[row:] = False
            break
    return {name: Values(items).keep(good.tolist())}, good


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
    if isinstance(what, Function) and _once_per_plain_value(what, into, apply, rows, worker):
        return True
    groups = [c for name in names if isinstance(c := rows.columns[name], Dictionary)]
    if not groups or len(groups) < len(names) or not may_repeat(what):
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


def _once_per_plain_value(
    what: Function,
    into: tuple[str, ...],
    apply: Callable[[Rows, Worker], None],
    rows: Rows,
    worker: Worker,
) -> bool:
    """Runs a function of one plain column of texts or whole numbers once per distinct value, where
    the last block has shown that it takes long, and no large block that values do not repeat. The
    results are one value per row, as without."""
    owner = id(what.fn)
    if (
        len(what.reads) != 1
        or len(rows) < _FEW
        or what.marks.batched
        or worker.seconds_per_row.get(owner, 0.0) < _COSTLY
        or owner in worker.never_once
        or not may_repeat(what)
        or worker.seeded(what)
    ):
        return False
    column = rows.columns[what.reads[0]]
    values = _plain_values(column)
    if values is None:
        return False
    codes: dict[Any, int] = {}
    inverse = np.fromiter((codes.setdefault(v, len(codes)) for v in values), np.int64, len(values))
    if len(codes) >= _WORTHWHILE * len(rows):
        if len(rows) >= _MANY:
            worker.never_once.add(owner)
        return False
    first = np.unique(inverse, return_index=True)[1]
    unique = {what.reads[0]: column.take(first)}
    places = None if rows.places is None else rows.places[first]
    distinct = Rows(rows.context, unique, rows.ids[first], places, len(first))
    apply(distinct, worker)
    drew = worker.moved or bool(worker.seeded(what))
    made = {name: distinct.columns.get(name) for name in into}
    if (
        distinct.failures
        or drew
        or len(distinct) < len(first)
        or not all(map(_is_fixed, made.values()))
    ):
        worker.never_once.add(owner)
        return False
    spread_out = {name: found.take(inverse) for name, found in made.items() if found is not None}
    rows.columns = {**rows.columns, **spread_out}
    return True


def _plain_values(column: Column) -> list[Any] | None:
    """The texts or whole numbers of a column; None for other columns, and for one with nulls."""
    if isinstance(column, Array):
        plain = column.data.ndim == 1 and column.data.dtype.kind in "iu" and column.valid is None
        return column.data.tolist() if plain else None
    if isinstance(column, Strings):
        values = column.rows()
        return values if None not in values else None
    if isinstance(column, Values) and column.kinds in _PLAIN_KINDS:
        return column.items
    return None


def _is_fixed(column: Column | None) -> bool:
    """Whether rows may share the values of a column, since nobody can change them."""
    return isinstance(column, Values) and all(map(is_fixed, column.kinds))


def _first(group: Dictionary) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each value, and the number of each row's value."""
    first = np.zeros(len(group.unique), dtype=np.int64)
    first[group.inverse[::-1]] = np.arange(len(group))[::-1]
    return first, group.inverse


def may_repeat(what: Step) -> bool:
    """Whether equal inputs give equal results, by the marks of the step."""
    if isinstance(what, Function) and (what.marks.batch_size is not None or what.marks.impure):
        return False
    return not step_is_random(what)


def _alike(a: Dictionary, b: Dictionary) -> bool:
    if a.inverse is b.inverse:
        return True
    return len(a.unique) == len(b.unique) and np.array_equal(a.inverse, b.inverse)


def as_columns(result: Any, names: tuple[str, ...], count: int) -> dict[str, Column]:
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


def without_iterators(made: Values, rows: Rows, label: str) -> Values:
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
                items[i] = rows.context.substituted()
            else:
                good[i] = False
    rows.keep(good)
    return Values(items).keep(good.tolist())


def spread(
    results: list[Any], names: tuple[str, ...], rows: Rows, label: str, since: int
) -> dict[str, Column]:
    """One column per name, for a function that returns several values per row. A row on which the
    function itself failed is noted already, after the first `since` failures."""
    good = np.ones(len(results), dtype=bool)
    noted = {(failure.row, failure.parts) for failure in rows.failures[since:]}
    parts: list[tuple[Any, ...]] = []
    for i, result in enumerate(results):
        try:
            parts.append(_parts(result, names))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the result may be an object of the user's
            if rows.comes_from(i) not in noted:
                rows.fail(i, label, error)
            if rows.context.on_error == "substitute":
                parts.append(tuple(rows.context.substituted() for _ in names))
            else:
                good[i] = False
    rows.keep(good)
    return {name: Values([p[i] for p in parts]) for i, name in enumerate(names)}


def parts_of(column: Column, names: tuple[str, ...], context: Context) -> dict[str, Column]:
    """One column per name, for an expression whose rows have parts; they keep their types. A row
    that has none is null, or a substitute."""
    if isinstance(column, Parts):
        return dict(zip(names, column.columns, strict=True))
    if isinstance(column, Union):
        found = [parts_of(part, names, context) for part in column.parts]
        order = np.argsort(np.concatenate(column.places()))
        return {name: concat([one[name] for one in found]).take(order) for name in names}
    rows = [_parts_or_substitutes(row, names, context) for row in column.rows()]
    return {name: Values([row[i] for row in rows]) for i, name in enumerate(names)}


def _parts_or_substitutes(row: Any, names: tuple[str, ...], context: Context) -> tuple[Any, ...]:
    if row is None:
        return (None,) * len(names)
    try:
        return _parts(row, names)
    except KeyboardInterrupt:
        raise
    except BaseException:  # the substitute may be an object of the user's
        if context.on_error != "substitute":
            raise
        return tuple(context.substituted() for _ in names)


def _parts(result: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(result, dict):
        return tuple(result[name] for name in names)
    values = tuple(result)
    if len(values) != len(names):
        raise ValueError(f"returned {len(values)} values for the {len(names)} columns {names}")
    return values


def keep_true(rows: Rows, results: list[Any], label: str) -> None:
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


def _is_read_once(kind: type) -> bool:
    """Python's own iterators; objects of other libraries may be pickled and read again."""
    own = kind.__module__ in ("builtins", "itertools")
    return own and issubclass(kind, Iterator | AsyncIterator | Awaitable)
