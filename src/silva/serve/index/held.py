"""What a version of an index is made of: rows, vectors, and the additions that it holds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from silva.errors import ColumnError, PlanError
from silva.serve.index import vectors
from silva.serve.index.version import IndexFolder, Roles, Span, Version

_REMEMBERED = 1000
"""Additions of which a version knows the rows, which takes 60 kB of its file at most; of those
before, nobody can tell whether they are made again."""


@dataclass(frozen=True)
class Held:
    """What a version is made of."""

    table: Any
    """All columns but the vectors, as Arrow."""
    unit: Any
    """The vectors, of length 1; None where there are none."""
    next_id: int
    added: dict[str, Span] = field(default_factory=dict)
    """The numbers of the rows of each pipeline, where rows are numbered."""

    def noting(self, content: str, first: int) -> Held:
        """With a note that a pipeline has given the rows from a number on."""
        if not self.next_id:
            return self
        added = {**self.added, content: (first, self.next_id)}
        return replace(self, added=dict(list(added.items())[-_REMEMBERED:]))

    def where(self, kept: Any) -> Held:
        """Only the rows of which a column of booleans is true."""
        unit = self.unit
        if unit is not None:
            unit = unit[kept.to_numpy(zero_copy_only=False)]
        return replace(self, table=self.table.filter(kept), unit=unit)

    def forgetting(self, numbers: Sequence[int]) -> Held:
        """Without the notes on pipelines of which a row is gone: they may be added again."""
        gone = sorted(numbers) if self.added else []
        left = {
            content: (first, end)
            for content, (first, end) in self.added.items()
            if bisect_left(gone, first) == bisect_left(gone, end)
        }
        return replace(self, added=left)


def read_held(folder: IndexFolder, version: Version) -> Held:
    """What a version was made of."""
    from silva.serve.index.contents import Contents

    found = Contents(folder, version)
    unit = found.vectors if version.roles.vector is not None and version.rows else None
    return Held(found.rows, unit, version.next_id, version.added)


def held(rows: Any, roles: Roles, next_id: int) -> Held:
    """The rows of a pipeline as an index holds them, checked."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = None
    if roles.vector is not None:
        unit = vectors.vectors_of(rows.column(roles.vector), roles.vector)
        rows = rows.drop_columns([roles.vector])
    if roles.numbered:
        ids = pa.array(np.arange(next_id, next_id + rows.num_rows))
        rows = rows.add_column(0, roles.id, ids)
    ids = rows.column(roles.id)
    if ids.null_count:
        raise ColumnError(f"to_index(id={roles.id!r}): {ids.null_count} rows have no id")
    if pa.types.is_integer(ids.type):
        kind = pa.int64()
    elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
        kind = pa.string()
    else:
        raise ColumnError(f"to_index(id={roles.id!r}): ids are numbers or text, not {ids.type}")
    rows = rows.set_column(rows.schema.get_field_index(roles.id), roles.id, ids.cast(kind))
    counts = pc.value_counts(ids.combine_chunks())
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise ColumnError(f"to_index(id={roles.id!r}): the id {twice[0]['values']} is there twice")
    for name in {roles.text, roles.keyword} - {None}:
        texts = rows.column(name)
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            raise ColumnError(f"to_index: column {name!r} holds {texts.type}, not text")
        if texts.null_count:
            raise ColumnError(f"to_index: {texts.null_count} rows have no text in {name!r}")
    return Held(rows, unit, next_id + rows.num_rows if roles.numbered else 0)


def joined(old: Held, new: Held, roles: Roles) -> Held:
    """The rows of both; a new one with an id that is there replaces the old one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    _check_same_columns(old.table, new.table)
    ids = new.table.column(roles.id).combine_chunks()
    left = old.where(pc.invert(pc.is_in(old.table.column(roles.id), value_set=ids)))
    unit = None
    if left.unit is not None:
        if left.unit.shape[1:] != new.unit.shape[1:]:
            raise ColumnError(
                f"add: the vectors have {new.unit.shape[1]} numbers, and those of the index "
                f"{left.unit.shape[1]}"
            )
        unit = np.concatenate([left.unit, new.unit])
    schema = left.table.schema
    table = pa.concat_tables([left.table, new.table.select(schema.names).cast(schema)])
    return Held(table, unit, new.next_id, old.added)


def _check_same_columns(old: Any, new: Any) -> None:
    missing = sorted(set(old.schema.names) ^ set(new.schema.names))
    if missing:
        raise PlanError(f"add: the rows and the index do not both have the column {missing[0]!r}")
    for column in old.schema:
        found = new.schema.field(column.name).type
        if found != column.type:
            raise PlanError(
                f"add: column {column.name!r} is {found}, and {column.type} in the index: "
                "cast(…) it"
            )
