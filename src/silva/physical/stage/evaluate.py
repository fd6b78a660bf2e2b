"""Expressions over the columns of a block: one kernel call an operator, for all rows at once;
operators that work row by row are chained, and the chain is run when its result is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, cast

import numpy as np

from silva.columns import Array, Column, Constant, Dictionary, Values, concat
from silva.columns.codes import rows_by_type
from silva.operators.masked import refuse_masks
from silva.operators.meter import note
from silva.operators.rows import RowKernel, Step, run_chain
from silva.order.draws import Draw, stream_key
from silva.plan import expr
from silva.plan.operator import Operator, RowErrors, operator


def evaluate(
    term: expr.Term,
    columns: Mapping[str, Column],
    ids: np.ndarray,
    places: np.ndarray | None,
    key: tuple[int | str, ...],
) -> Column:
    """The column that `term` derives. Random operators draw by `key` (seed, epoch, step) and their
    place in the term, or by the step and place that they are pinned to. A part that stands in
    several places of the term is one value, computed once."""
    made: dict[int, Column] = {}
    waiting: dict[int, tuple[Column, list[Step]]] = {}
    """Chains of row kernels that are not run yet: by their last term, the input and the steps."""

    def value(part: expr.Term) -> Column:
        if id(part) not in made:
            made[id(part)] = run_chain(*waiting[id(part)])
        return made[id(part)]

    def later(part: expr.Later, place: int) -> Callable[[np.ndarray], Column]:
        return partial(_on_rows, part.term, columns, ids, places, (*key[:-1], f"{key[-1]}.{place}"))

    for index, part in _parts(term):
        if id(part) in made or id(part) in waiting:
            continue
        match part:
            case expr.Col():
                column = columns[part.name]
                made[id(part)] = column.expand() if isinstance(column, Dictionary) else column
            case expr.Literal():
                made[id(part)] = _constant(part.value, len(ids))
            case expr.RowId():
                made[id(part)] = Array(ids)
            case expr.Call():
                found = operator(part.op)
                draws = (*key, index) if part.draw is None else (*key[:-1], *part.draw)
                draw = Draw(stream_key(*draws) if found.random else (0, 0), ids, places)
                params, first = dict(part.params), part.args[0] if part.args else None
                params |= {a.name: later(a, index) for a in part.args if isinstance(a, expr.Later)}
                if isinstance(found.kernel, RowKernel) and first is not None:
                    start, steps = waiting.get(id(first)) or (_given(found, value(first)), [])
                    step = (part.op, found.kernel, params, draw)
                    waiting[id(part)] = (start, [*steps, step])
                else:
                    args = [value(a) for a in part.args if not isinstance(a, expr.Later)]
                    began = perf_counter()
                    try:
                        result = made[id(part)] = _strong(_run(found, args, params, draw))
                    except RowErrors as failed:
                        if part is term:
                            raise
                        raise next(iter(failed.errors.values())) from None
                    note(part.op, perf_counter() - began, len(ids), result.nbytes)
    return _strong(value(term))


def _parts(term: expr.Term) -> Iterable[tuple[int, expr.Term]]:
    """The parts that are evaluated on every row, each with its place in the term."""
    every = list(enumerate(expr.walk(term)))
    if not any(isinstance(part, expr.Later) for _, part in every):
        return every
    always = {id(part) for part in expr.walk_always(term)}
    return [(index, part) for index, part in every if id(part) in always]


def _on_rows(
    term: expr.Term,
    columns: Mapping[str, Column],
    ids: np.ndarray,
    places: np.ndarray | None,
    key: tuple[int | str, ...],
    rows: np.ndarray,
) -> Column:
    """A term on some of the rows."""
    some = {name: columns[name].take(rows) for name in expr.columns_read(term)}
    return evaluate(term, some, ids[rows], None if places is None else places[rows], key)


def _run(operator: Operator, columns: list[Column], params: dict[str, Any], draw: Draw) -> Column:
    """The operator on rows of one type at a time: what it makes of a row does not depend on the
    types of its neighbours."""
    columns = [_given(operator, column) for column in columns]
    columns = [column.settled() if isinstance(column, Values) else column for column in columns]
    places = None if operator.by_row else rows_by_type(columns, operator.ragged)
    if places is None:
        return cast(Column, operator.kernel(columns, params, draw))
    results = [
        operator.kernel(
            [column.take(rows).settled() for column in columns], params, draw.take(rows)
        )
        for rows in places
    ]
    return concat(results).take(np.argsort(np.concatenate(places)))


def _given(operator: Operator, column: Column) -> Column:
    return refuse_masks(operator.name, column, keeps_masks=operator.keeps_masks)


def _strong(column: Column) -> Column:
    """The column as other steps see it: an array of its own instead of a literal."""
    return Array(column.data.copy(), column.valid) if isinstance(column, Constant) else column


def _constant(value: object, count: int) -> Column:
    if isinstance(value, bool | int | float | np.number | np.bool_):
        try:
            return Constant.of(value, count)
        except OverflowError:
            pass
    return Values([value] * count)
