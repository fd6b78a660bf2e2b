"""Columns joined end to end, whatever their kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from silva.columns.array import Array
from silva.columns.bed import joined
from silva.columns.column import Column
from silva.columns.grouped import Grouped
from silva.columns.lists import Lists
from silva.columns.parts import Parts
from silva.columns.recycle import empty
from silva.columns.strings import Strings
from silva.columns.values import Values


def concat(columns: Sequence[Column]) -> Column:
    """One column with the rows of all; columns of unlike kinds or types fall back to rows, so
    that the result is what the rows alone would give."""
    columns = [c for c in columns if len(c)] or list(columns[:1])
    if len(columns) == 1:
        return columns[0]
    if all(isinstance(c, Array) for c in columns):
        return _concat_arrays([c for c in columns if isinstance(c, Array)])
    if all(isinstance(c, Strings) for c in columns):
        joined = _concat_strings([c for c in columns if isinstance(c, Strings)])
        if joined is not None:
            return joined
    if all(isinstance(c, Lists) for c in columns):
        return _concat_lists([c for c in columns if isinstance(c, Lists)])
    if all(isinstance(c, Parts) for c in columns):
        parts = zip(*(c.columns for c in columns if isinstance(c, Parts)), strict=True)
        return Parts(tuple(concat(part) for part in parts))
    if all(isinstance(c, Grouped) for c in columns):
        return _concat_grouped([c for c in columns if isinstance(c, Grouped)])
    if any(isinstance(c, Grouped) for c in columns):
        return concat([c.expand() if isinstance(c, Grouped) else c for c in columns])
    return Values([item for c in columns for item in _typed_rows(c)])


def _concat_arrays(columns: list[Array]) -> Column:
    first = columns[0].data
    if any(c.data.dtype != first.dtype or c.data.shape[1:] != first.shape[1:] for c in columns):
        return Values([item for c in columns for item in _typed_rows(c)])
    whole = joined([c.data for c in columns])
    if whole is not None:
        return Array(whole, _concat_valid(columns))
    out = empty((sum(len(c) for c in columns), *first.shape[1:]), first.dtype)
    return Array(np.concatenate([c.data for c in columns], out=out), _concat_valid(columns))


def _typed_rows(column: Column) -> list[object]:
    """Rows that keep their dtype: a float32 next to an int64 is not a Python float."""
    if isinstance(column, Values):
        return column.items
    if (
        not isinstance(column, Array)
        or column.data.ndim > 1
        or column.data.dtype.kind not in "biufc"
    ):
        return column.rows()
    if column.data.dtype in (np.int64, np.float64, np.bool_):
        return column.rows()
    if column.valid is None:
        return list(column.data)
    return [x if ok else None for x, ok in zip(column.data, column.valid, strict=True)]


def _concat_strings(columns: list[Strings]) -> Strings | None:
    import pyarrow as pa

    kinds = {c.data.type for c in columns}
    if len(kinds) > 1:
        text = all(pa.types.is_string(t) or pa.types.is_large_string(t) for t in kinds)
        blob = all(pa.types.is_binary(t) or pa.types.is_large_binary(t) for t in kinds)
        if not (text or blob):
            return None
        wide = pa.large_string() if text else pa.large_binary()
        return Strings(pa.concat_arrays([c.data.cast(wide) for c in columns]))
    return Strings(pa.concat_arrays([c.data for c in columns]))


def _concat_lists(columns: list[Lists]) -> Column:
    inner = concat([c.values.slice(int(c.offsets[0]), int(c.offsets[-1])) for c in columns])
    if isinstance(inner, Values) and not all(isinstance(c.values, Values) for c in columns):
        return Values([item for c in columns for item in c.rows()])
    offsets = [columns[0].offsets - columns[0].offsets[0]]
    for c in columns[1:]:
        offsets.append(c.offsets[1:] - c.offsets[0] + offsets[-1][-1])
    return Lists(inner, np.concatenate(offsets), _concat_valid(columns))


def _concat_grouped(columns: list[Grouped]) -> Grouped:
    inverses, base = [], 0
    for c in columns:
        inverses.append(c.inverse.astype(np.int64) + base)
        base += len(c.unique)
    return Grouped(concat([c.unique for c in columns]), np.concatenate(inverses))


def _concat_valid(columns: Sequence[Array | Lists]) -> np.ndarray | None:
    if all(c.valid is None for c in columns):
        return None
    return np.concatenate(
        [np.ones(len(c), dtype=bool) if c.valid is None else c.valid for c in columns]
    )
