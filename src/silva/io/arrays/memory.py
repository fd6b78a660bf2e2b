"""Rows that are already in memory: lists of dicts, arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Array, Column, Lists, Ragged, Values, from_arrow
from silva.columns.column import is_masked_array
from silva.columns.owned import frozen, may_change, without_shared_containers
from silva.errors import PlanError
from silva.io.names import check_name
from silva.io.source import register_source

_FEW = 8
"""The number of rows in a sketch."""


@register_source("memory", tag="")
@dataclass(frozen=True, eq=False)
class MemorySource:
    """Columns in memory, read by position. Arrays are returned read-only; containers (lists, dicts,
    …) are copied, since steps may change them."""

    runs_user_code: ClassVar[bool] = False
    data: dict[str, Column]
    name: str
    count: int
    known_as: str | None = None
    """Its fingerprint, if it is known; otherwise the data is hashed."""

    def columns(self) -> tuple[str, ...]:
        return tuple(self.data)

    def types(self) -> dict[str, str]:
        return self._types

    @functools.cached_property
    def _types(self) -> dict[str, str]:
        found = {}
        for name, column in self.data.items():
            if isinstance(column, Array) and column.data.ndim == 1:
                found[name] = column.data.dtype.name
            elif isinstance(column, Values) and _is_text(column.rows()):
                found[name] = "str"
        return found

    def describe(self) -> str:
        return f"{self.name} of {self.count:,} rows"

    def fingerprint(self) -> str:
        return self.known_as or self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        from silva.plan.fingerprint import digest

        contents = [(name, _hashable(column)) for name, column in self.data.items()]
        return digest((self.count, contents))

    def sketch(self) -> str:
        """A hash of the first rows: hashing all of them would delay the first batch."""
        from silva.plan.fingerprint import digest

        first = [(name, _hashable(c.slice(0, _FEW))) for name, c in self.data.items()]
        return digest((self.count, first))

    def length(self) -> int:
        return self.count

    def row_bytes(self) -> dict[str, float]:
        """Average bytes per row and column."""
        return {name: column.nbytes / max(self.count, 1) for name, column in self.data.items()}

    def read_run(self, start: int, stop: int, columns: tuple[str, ...]) -> dict[str, Column]:
        """Consecutive rows, without a copy of arrays and strings."""
        return {name: self._lent(name, self.data[name].slice(start, stop)) for name in columns}

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        run = as_run(rows)
        if run is not None:
            return self.read_run(*run, columns)
        return {name: self._lent(name, self.data[name].take(rows)) for name in columns}

    @functools.cached_property
    def _changeable(self) -> frozenset[str]:
        """The columns whose rows may be containers."""
        return frozenset(name for name, column in self.data.items() if may_change(column))

    def _lent(self, name: str, column: Column) -> Column:
        return without_shared_containers(column) if name in self._changeable else column


def _is_text(rows: list[Any]) -> bool:
    """Whether all values are text or None."""
    kinds = set(map(type, rows))
    return str in kinds and kinds <= {str, type(None)}


def _hashable(column: Column) -> Any:
    if not isinstance(column, Array):
        return column.rows()
    if column.valid is None or column.valid.all():
        return column.data
    return column.data, column.valid  # a missing row is not a row of zeros


def as_run(rows: np.ndarray) -> tuple[int, int] | None:
    """(start, stop) if the rows are consecutive, so that no copy is needed; otherwise None."""
    count = len(rows)
    if not count or int(rows[-1]) - int(rows[0]) != count - 1:
        return None
    start = int(rows[0])
    return (start, start + count) if np.array_equal(rows, np.arange(start, start + count)) else None


def from_items(items: Sequence[Mapping[str, Any]]) -> MemorySource:
    if isinstance(items, Mapping) or not isinstance(items, Iterable):
        raise PlanError(
            f"from_items takes a list of dicts, one for each row, not {type(items).__name__}; a "
            "dict of columns goes to from_columns"
        )
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
    for name in names:
        check_name(name)
    columns = {name: frozen(Values([row[name] for row in rows]).settled()) for name in names}
    return MemorySource(columns, "items", len(rows))


def from_columns(columns: Mapping[str, Any]) -> MemorySource:
    if hasattr(columns, "__arrow_c_stream__") or hasattr(columns, "__dataframe__"):
        raise PlanError(
            f"from_columns takes a dict of columns, not {type(columns).__name__}, which goes to "
            "from_arrow"
        )
    if not isinstance(columns, Mapping):
        raise PlanError(
            f"from_columns takes a dict of columns, not {type(columns).__name__}; a list of dicts "
            "goes to from_items"
        )
    data = {name: frozen(as_column(name, values)) for name, values in columns.items()}
    for name in data:
        check_name(name)
    lengths = {name: len(column) for name, column in data.items()}
    if len(set(lengths.values())) > 1:
        raise PlanError(f"from_columns: columns of different lengths: {lengths}")
    return MemorySource(data, "columns", next(iter(lengths.values()), 0))


def as_column(name: str, values: Any, verb: str = "from_columns") -> Column:
    """Converts values to a column; errors name `verb`, the function that was called."""
    if isinstance(values, Ragged):
        if not isinstance(values.values, np.ndarray):
            raise PlanError(f"{verb}: {name!r} has more than one ragged level")
        offsets = np.array(values.offsets, dtype=np.int64)
        if is_masked_array(values.values):
            return Lists(_masked(name, values.values, verb), offsets)
        return Lists(Array(_read_only(values.values)), offsets)
    if is_masked_array(values) and values.ndim:
        return _masked(name, values, verb)
    if isinstance(values, list | tuple | range):
        return Values(list(values)).settled()
    if isinstance(values, Iterator):
        raise PlanError(
            f"{verb}: {name!r} is a {type(values).__name__}, which can be read only once, but a "
            "column is read in every epoch: pass list(…)"
        )
    if type(values).__module__.partition(".")[0] == "torch":
        values = values.detach().cpu().numpy()
    arrow = _as_arrow(values)
    if arrow is not None:
        found = from_arrow(arrow)
        return found if isinstance(found, Array) else Values(found.rows())
    array = _read_only(np.asarray(values))
    if array.ndim == 0:
        raise PlanError(f"{verb}: {name!r} is a single value, not a column")
    return Values(array.tolist()) if array.dtype.kind in "OUS" else Array(array)


def _as_arrow(values: Any) -> Any:
    """An array of pyarrow, polars or pandas that has nulls of its own, as an Arrow array: numpy
    would turn them into NaN, and whole numbers beside them into floats. None for other arrays, and
    for those of pandas that Arrow keeps as something else (periods, intervals, time zones)."""
    of_pandas = type(values).__module__.partition(".")[0] == "pandas"
    is_stream = hasattr(values, "__arrow_c_stream__") and not of_pandas
    if isinstance(getattr(values, "dtype", None), np.dtype):
        return None
    if not (of_pandas or is_stream or hasattr(values, "__arrow_c_array__")):
        return None
    import pyarrow as pa

    try:
        made = pa.chunked_array(values) if is_stream else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):
        return None
    differs = isinstance(made.type, pa.ExtensionType) or getattr(made.type, "tz", None) is not None
    return None if of_pandas and differs else made


def _read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view, so that the caller's array never changes."""
    view = array.view()
    view.flags.writeable = False
    return view


def missing_rows(values: np.ma.MaskedArray[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of which something is missing, and those of which something is present too."""
    mask, within = np.ma.getmaskarray(values), tuple(range(1, values.ndim))
    missing = np.asarray(mask.any(axis=within))
    return missing, missing & ~mask.all(axis=within)


def _masked(name: str, values: np.ma.MaskedArray[Any, Any], verb: str) -> Column:
    """The rows of a masked array: each is present or missing as a whole."""
    if values.dtype.kind in "OUS":
        return Values(values.tolist())
    if values.dtype.names is not None:
        raise PlanError(
            f"{verb}: {name!r} is a masked array of the fields {', '.join(values.dtype.names)}: "
            "pass each field as a column of its own"
        )
    missing, partly = missing_rows(values)
    if partly.any():
        row = int(np.flatnonzero(partly)[0])
        raise PlanError(
            f"{verb}: {name!r} is a masked array whose row {row} is missing in part, but a row is "
            "present or missing as a whole: fill it, or pass the mask as a column of its own"
        )
    return Array(values.filled(0), ~missing)
