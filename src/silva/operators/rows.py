"""Operators that work on one row at a time, chained: a row goes through all of them while it is in
the CPU's cache, and the last one writes its result straight into the array of the whole block.

A kernel is bound to its parameters and to the block's random numbers once; what it returns, a
`Link`, is then called for each row. Two neighbours may have a fused kernel: one call for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from silva.columns import Array, Column, Parts, Values, empty_rows
from silva.operators.meter import is_metering, note

Params = dict[str, Any]


class Draw(Protocol):
    def uniform(self, count: int) -> np.ndarray:
        """Returns (rows, count) numbers in [0, 1); those of a row depend on that row alone."""


Link = Callable[[int, Any, np.ndarray | None], Any]
"""`link(row, value, out)`: the result for a row that is not null. It is written into `out` (and
`out` returned) where that has the shape and dtype of the result; otherwise it is a new value."""

Bind = Callable[[Params, Draw], Link]
Fuse = Callable[[Params, Draw, Params, Draw], Link | None]
"""Binds two neighbours at once (the first one's parameters and draws, then the second one's); None
where these parameters have no fused form."""


class RowKernel:
    """A kernel of `silva.plan.operator`, made from a function of one row."""

    def __init__(self, bind: Bind, after: Mapping[str, Fuse] | None = None) -> None:
        self.bind = bind
        self.after = dict(after or {})
        """By the name of the operator before this one: the two as one."""
        self.__module__ = bind.__module__

    def __call__(self, columns: Sequence[Column], params: Params, draw: Draw) -> Column:
        return run_rows(columns[0], [("", self.bind(params, draw))])


NamedLink = tuple[str, Link]
_METERED_ROWS = 4
"""Rows of each block whose steps are timed one by one."""

Step = tuple[str, RowKernel, Params, Draw]
"""A step of a chain: the operator's name, its kernel, and what to bind it to."""


def run_chain(column: Column, steps: Sequence[Step]) -> Column:
    """The column after all steps, in the order given."""
    return run_rows(column, fuse(steps))


def fuse(steps: Sequence[Step]) -> list[NamedLink]:
    """One link per step, or one for two neighbours that have a fused kernel."""
    links: list[NamedLink] = []
    at = 0
    while at < len(steps):
        name, kernel, params, draw = steps[at]
        link = None
        if at + 1 < len(steps) and name in steps[at + 1][1].after:
            second, following, next_params, next_draw = steps[at + 1]
            link = following.after[name](params, draw, next_params, next_draw)
        if link is None:
            links.append((name, kernel.bind(params, draw)))
        else:
            links.append((f"{name} + {second.rpartition('.')[2]}", link))
        at += 1 if link is None else 2
    return links


def run_rows(column: Column, links: Sequence[NamedLink]) -> Column:
    """Takes every row through all links; returns one array where all results have one shape.
    Nulls stay null.

    A result with `is_bundle` has several parts, the first of which is what links write into `out`;
    the others become columns of their own.
    """
    values = column.rows()
    results = _Results(len(values))
    others: list[Any] = []
    metered = _METERED_ROWS if is_metering() else 0
    run = [link for _, link in links]
    for row, value in enumerate(values):
        made: Any = None
        if value is not None and row < metered:
            made = _run_metered(links, row, value, results.out(row))
        elif value is not None:
            made = _run(run, row, value, results.out(row))
        if getattr(made, "is_bundle", False):
            made, *rest = made
            others.append(rest)
        results.put(row, made, value)
    if not others:
        return results.column()
    given = iter(others)
    nothing = [None] * len(others[0])
    by_row = [nothing if value is None else next(given) for value in values]
    return Parts((results.column(), *(Values(list(part)) for part in zip(*by_row, strict=True))))


class _Results:
    """The results: one array while all have one shape and dtype, then a list."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._whole: np.ndarray | None = None
        self._made: list[Any] = []

    def out(self, row: int) -> np.ndarray | None:
        """The place for the row's result in the array, where there is one."""
        return None if self._whole is None else self._whole[row]

    def put(self, row: int, result: Any, value: Any) -> None:
        if row == 0 and type(result) is np.ndarray and not result.dtype.hasobject:
            self._whole = empty_rows(self._count, result.shape, result.dtype)
        whole = self._whole
        if whole is not None and _alike(result, whole):
            if not _is_row(result, whole, row):
                whole[row] = result
            return
        if whole is not None:
            self._made = [x.copy() for x in whole[:row]]  # lets the large array go
            self._whole = None
        self._made.append(_private(result, value))

    def column(self) -> Column:
        return Values(self._made) if self._whole is None else Array(self._whole)


def _run(links: Sequence[Link], row: int, value: Any, out: np.ndarray | None) -> Any:
    for link in links[:-1]:
        value = link(row, value, None)
    return links[-1](row, value, out)


def _run_metered(links: Sequence[NamedLink], row: int, value: Any, out: np.ndarray | None) -> Any:
    last = len(links) - 1
    for i, (name, link) in enumerate(links):
        began = perf_counter()
        value = link(row, value, out if i == last else None)
        spent = perf_counter() - began
        note(name, spent, 1, value.nbytes if type(value) is np.ndarray else 0)
    return value


def _alike(result: Any, whole: np.ndarray) -> bool:
    return (
        type(result) is np.ndarray
        and result.shape == whole.shape[1:]
        and result.dtype == whole.dtype
    )


def _is_row(result: np.ndarray, whole: np.ndarray, row: int) -> bool:
    """Whether the result was already written into its row of the array."""
    place: int = whole[row].__array_interface__["data"][0]
    return bool(result.__array_interface__["data"][0] == place)


def _private(result: Any, value: Any) -> Any:
    """A copy of the result where it shares memory with its input, or is a part of an array."""
    if type(result) is not np.ndarray:
        return result
    seen = type(value) is np.ndarray and np.may_share_memory(result, value)
    return result.copy() if seen or not result.flags.c_contiguous else result


def room(out: np.ndarray | None, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Returns `out` if it has that shape and dtype, else a new array."""
    if out is not None and out.shape == shape and out.dtype == dtype:
        return out
    return np.empty(shape, dtype)
