"""Rows that are already in memory: lists of dicts, arrays."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Array, Column, Lists, Ragged, Values
from silva.errors import PlanError

_FEW = 8
"""Rows by which a source is recognised."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Columns in memory, read by position."""

    access: ClassVar[Literal["indexed"]] = "indexed"
    data: dict[str, Column]
    name: str
    count: int

    def columns(self) -> tuple[str, ...]:
        return tuple(self.data)

    def types(self) -> dict[str, str]:
        return {
            name: column.data.dtype.name
            for name, column in self.data.items()
            if isinstance(column, Array) and column.data.ndim == 1
        }

    def describe(self) -> str:
        return f"{self.name} of {self.count:,} rows"

    def fingerprint(self) -> str:
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        from silva.plan.fingerprint import digest

        contents = [(name, _hashable(column)) for name, column in self.data.items()]
        return digest((self.count, contents))

    def sketch(self) -> str:
        """An identity by which costs are remembered: a mistake would only cost time, and reading
        all rows for it, before the first one is handed out, would cost more."""
        from silva.plan.fingerprint import digest

        first = [(name, _hashable(c.slice(0, _FEW))) for name, c in self.data.items()]
        return digest((self.count, first))

    def length(self) -> int:
        return self.count

    def row_bytes(self) -> dict[str, float]:
        """Bytes of a row, by column."""
        return {name: column.nbytes / max(self.count, 1) for name, column in self.data.items()}

    def read_run(self, start: int, stop: int, columns: tuple[str, ...]) -> dict[str, Column]:
        """Consecutive rows, without a copy."""
        return {name: self.data[name].slice(start, stop) for name in columns}

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        run = as_run(rows)
        if run is not None:
            return self.read_run(*run, columns)
        return {name: self.data[name].take(rows) for name in columns}


def _hashable(column: Column) -> Any:
    return column.data if isinstance(column, Array) else column.rows()


def as_run(rows: np.ndarray) -> tuple[int, int] | None:
    """(start, stop) where the rows are consecutive: then no copy is needed."""
    count = len(rows)
    if not count or int(rows[-1]) - int(rows[0]) != count - 1:
        return None
    start = int(rows[0])
    return (start, start + count) if np.array_equal(rows, np.arange(start, start + count)) else None


def from_items(items: Sequence[Mapping[str, Any]]) -> Memory:
    rows = list(items)
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise PlanError(
                f"from_items takes dicts; item {i} is {type(row).__name__}: {row!r:.80}"
            )
    names = tuple(rows[0]) if rows else ()
    for i, row in enumerate(rows):
        if set(row) != set(names):
            missing, extra = set(names) - set(row), set(row) - set(names)
            raise PlanError(
                f"from_items: item {i} has other columns than item 0 "
                f"(missing: {sorted(missing)}, extra: {sorted(extra)})"
            )
    _check_names(names)
    columns = {name: Values([row[name] for row in rows]).settled() for name in names}
    return Memory(columns, "items", len(rows))


def from_columns(columns: Mapping[str, Any]) -> Memory:
    data = {name: as_column(name, values) for name, values in columns.items()}
    _check_names(tuple(data))
    lengths = {name: len(column) for name, column in data.items()}
    if len(set(lengths.values())) > 1:
        raise PlanError(f"from_columns: columns of different lengths: {lengths}")
    return Memory(data, "columns", next(iter(lengths.values()), 0))


def _check_names(names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise PlanError(f"a column's name is a non-empty string, not {name!r}")


def as_column(name: str, values: Any, verb: str = "from_columns") -> Column:
    """Values as a column; mistakes are told in the name of the verb that was given them."""
    if isinstance(values, Ragged):
        if not isinstance(values.values, np.ndarray):
            raise PlanError(f"{verb}: {name!r} has more than one ragged level")
        return Lists(Array(values.values), np.asarray(values.offsets, dtype=np.int64))
    if isinstance(values, np.ma.MaskedArray):
        return Array(values.filled(0), ~np.ma.getmaskarray(values))
    if isinstance(values, list | tuple | range):
        return Values(list(values)).settled()
    if type(values).__module__.partition(".")[0] == "torch":
        values = values.detach().cpu().numpy()
    array = np.asarray(values).view()
    array.flags.writeable = False  # batches are writable; the caller's array must not change
    if array.ndim == 0:
        raise PlanError(f"{verb}: {name!r} is a single value, not a column")
    return Values(array.tolist()) if array.dtype.kind in "OUS" else Array(array)
