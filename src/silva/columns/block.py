"""Blocks: contiguous runs of rows in logical order, held as columns. Joins them, and columns of any
kinds, end to end."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from silva.columns.allocation import empty, join_adjacent
from silva.columns.column import Array, Column, Parts, Strings
from silva.columns.dictionary import Dictionary, expanded
from silva.columns.lists import Lists
from silva.columns.union import Union, rows_show_types, typed_rows, union
from silva.columns.values import Values


@dataclass(frozen=True, eq=False)
class Block:
    """Rows with their columns and their identities."""

    columns: dict[str, Column]
    ids: np.ndarray
    """uint64: which source (high 8 bits) and which row of it; never the place in the order."""
    places: np.ndarray | None = None
    """uint64: the place within an exploded row, from 1 up, and 0 of a row that was never exploded;
    None where all are 0."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self.columns.values()) + int(self.ids.nbytes)

    def take(self, indices: np.ndarray) -> Block:
        return Block(
            {name: c.take(indices) for name, c in self.columns.items()},
            self.ids[indices],
            None if self.places is None else self.places[indices],
        )

    def slice(self, start: int, stop: int) -> Block:
        if start == 0 and stop >= len(self):
            return self
        return Block(
            {name: c.slice(start, stop) for name, c in self.columns.items()},
            self.ids[start:stop],
            None if self.places is None else self.places[start:stop],
        )

    def with_columns(self, columns: dict[str, Column]) -> Block:
        return replace(self, columns=columns)

    @staticmethod
    def concat(blocks: list[Block]) -> Block:
        """The rows of all blocks; the first block says which columns there are."""
        if len(blocks) == 1:
            return blocks[0]
        full = [b for b in blocks if len(b)] or blocks[:1]
        if len(full) == 1:
            return full[0]
        places = None
        if any(b.places is not None for b in full):
            places = np.concatenate(
                [np.zeros(len(b), np.uint64) if b.places is None else b.places for b in full]
            )
        return Block(
            {name: concat([b.columns[name] for b in full]) for name in full[0].columns},
            np.concatenate([b.ids for b in full]),
            places,
        )


def concat(columns: Sequence[Column]) -> Column:
    """One column with the rows of all. Every row keeps its type, whatever it is joined with, so any
    part of the result equals what its own rows alone would give."""
    columns = [c for c in columns if len(c)] or list(columns[:1])
    if len(columns) == 1:
        return columns[0]
    if all(isinstance(c, Array) for c in columns):
        return _concat_arrays([c for c in columns if isinstance(c, Array)])
    if all(isinstance(c, Strings) for c in columns):
        return _concat_strings([c for c in columns if isinstance(c, Strings)])
    if all(isinstance(c, Lists) for c in columns):
        return _concat_lists([c for c in columns if isinstance(c, Lists)])
    if all(isinstance(c, Parts) for c in columns):
        parts = zip(*(c.columns for c in columns if isinstance(c, Parts)), strict=True)
        return Parts(tuple(concat(part) for part in parts))
    if all(isinstance(c, Dictionary) for c in columns):
        return _concat_grouped([c for c in columns if isinstance(c, Dictionary)])
    if any(isinstance(c, Dictionary) for c in columns):
        return concat(list(map(expanded, columns)))
    return _concat_unlike(columns)


def _concat_unlike(columns: Sequence[Column]) -> Column:
    if all(isinstance(c, Values) for c in columns):
        return Values([item for c in columns if isinstance(c, Values) for item in c.items])
    if all(map(rows_show_types, columns)):
        return Values([item for c in columns for item in typed_rows(c)])
    parts: dict[Hashable, list[Column]] = {}
    which: list[np.ndarray] = []
    for column in columns:
        number = []
        for part in column.parts if isinstance(column, Union) else (column,):
            kind = _type_of(part)
            parts.setdefault(kind, []).append(part)
            number.append(list(parts).index(kind))
        within = column.which if isinstance(column, Union) else np.zeros(len(column), np.int32)
        which.append(np.array(number, dtype=np.int32)[within])
    return union([concat(part) for part in parts.values()], np.concatenate(which))


def _type_of(column: Column) -> Hashable:
    """A key that is equal for columns that can be joined as they are, with or without nulls."""
    if isinstance(column, Array):
        return (Array, column.data.dtype, column.data.shape[1:])
    if isinstance(column, Lists):
        return (Lists, _type_of(column.values))
    if isinstance(column, Strings):
        return (Strings, _is_text(column))
    return _type_of(column.unique) if isinstance(column, Dictionary) else type(column)


def _concat_arrays(columns: list[Array]) -> Column:
    first = columns[0].data
    if any(c.data.dtype != first.dtype or c.data.shape[1:] != first.shape[1:] for c in columns):
        return _concat_unlike(columns)
    whole = join_adjacent([c.data for c in columns])
    if whole is not None:
        return Array(whole, _concat_valid(columns))
    out = empty((sum(len(c) for c in columns), *first.shape[1:]), first.dtype)
    return Array(np.concatenate([c.data for c in columns], out=out), _concat_valid(columns))


def _concat_strings(columns: list[Strings]) -> Column:
    import pyarrow as pa

    kinds = {c.data.type for c in columns}
    if len(kinds) == 1:
        return Strings(pa.concat_arrays([c.data for c in columns]))
    if len({_is_text(c) for c in columns}) > 1:
        return _concat_unlike(columns)
    wide = pa.large_string() if _is_text(columns[0]) else pa.large_binary()
    return Strings(pa.concat_arrays([c.data.cast(wide) for c in columns]))


def _is_text(column: Strings) -> bool:
    import pyarrow as pa

    kind = column.data.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _concat_lists(columns: list[Lists]) -> Column:
    kind = _type_of(columns[0])
    if any(_type_of(c) != kind for c in columns[1:]):
        return _concat_unlike(columns)
    inner = concat([c.values.slice(int(c.offsets[0]), int(c.offsets[-1])) for c in columns])
    offsets = [columns[0].offsets - columns[0].offsets[0]]
    for c in columns[1:]:
        offsets.append(c.offsets[1:] - c.offsets[0] + offsets[-1][-1])
    return Lists(inner, np.concatenate(offsets), _concat_valid(columns))


def _concat_grouped(columns: list[Dictionary]) -> Dictionary:
    inverses, base = [], 0
    for c in columns:
        inverses.append(c.inverse.astype(np.int64) + base)
        base += len(c.unique)
    return Dictionary(concat([c.unique for c in columns]), np.concatenate(inverses))


def _concat_valid(columns: Sequence[Array | Lists]) -> np.ndarray | None:
    if all(c.valid is None for c in columns):
        return None
    return np.concatenate(
        [np.ones(len(c), dtype=bool) if c.valid is None else c.valid for c in columns]
    )
