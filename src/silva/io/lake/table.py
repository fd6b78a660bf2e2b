"""Lakehouse tables: the log lists the Parquet files of a version, and silva reads them.

A table has one schema, and some files may be older than it: a column that a file lacks is null or
the value of its partition, and a type that was widened is cast. Rows that are deleted but still in
their file are left out and not counted.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, Values, from_arrow
from silva.io.arrow_batches import empty_runs, leaf_types, short_types
from silva.io.conditions import Condition
from silva.io.file_source import files_at
from silva.io.lake.field_numbers import Convert, conversion, leaf_fields, names_by_number
from silva.io.lake.parquet import FOOTER_THREADS, Parquet
from silva.io.names import check_columns
from silva.io.source import Travels, register_source


@dataclass(frozen=True, eq=False)
class LakeFile:
    """One Parquet file of a version."""

    path: str
    name: str
    """The path within the table, which stays the same when the table is moved."""
    constants: dict[str, Any]
    """Values of columns that are in the log and not in the file."""
    deleted: np.ndarray | None = None
    """Rows that are not part of the version, ascending."""


@dataclass(frozen=True, eq=False)
class _Part:
    """A file with what its footer contains."""

    parquet: Parquet
    names: dict[str, str]
    """The name in the file of each column that the file has."""
    conversions: dict[str, Convert]
    """Conversions from the file's values to the table's, for columns with other fields."""
    kept: tuple[np.ndarray | None, ...]
    """The rows of each row group that are not deleted; None for all."""

    @property
    def rows(self) -> list[int]:
        counts = self.parquet.unit_rows().tolist()
        return [n if k is None else len(k) for n, k in zip(counts, self.kept, strict=True)]


@register_source("lake")
@dataclass(frozen=True, eq=False)
class Lake(Travels):
    runs_user_code: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ("_parts",)
    title: str
    """The kind of table, its location and its version."""
    schema: Any
    """The Arrow schema of the version."""
    files: tuple[LakeFile, ...]
    given: tuple[str, ...] | None
    mapped: dict[str, int]
    """Field ids by current and former names, for files without field ids."""

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        types = leaf_types(self.schema)
        if self.given is None:
            return types
        check_columns(self.given, types, self.title)
        return {name: types[name] for name in self.given}

    @functools.cached_property
    def _parts(self) -> tuple[_Part, ...]:
        if not self.files:
            return ()
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(self.files)), "silva-footers") as pool:
            return tuple(pool.map(self._part, self.files))

    def _part(self, file: LakeFile) -> _Part:
        parquet = Parquet(files_at([file.path], (".parquet",)), None)
        there = leaf_fields(parquet._footer(0).schema.to_arrow_schema())
        wanted = {n: field for n, field in leaf_fields(self.schema).items() if n in self._types}
        names = names_by_number(wanted, there, self.mapped)
        conversions = {
            name: convert
            for name, own in names.items()
            if (convert := conversion(there[own], wanted[name])) is not None
        }
        types = {own: self._types[n] for n, own in names.items() if n not in conversions}
        parquet = parquet.reading_as(types)
        return _Part(parquet, names, conversions, _kept(parquet.unit_rows(), file.deleted))

    @functools.cached_property
    def _units(self) -> list[tuple[int, int]]:
        """The file and the row group of each unit."""
        return [(i, g) for i, part in enumerate(self._parts) for g in range(part.parquet.units())]

    def columns(self) -> tuple[str, ...]:
        return tuple(self._types)

    def types(self) -> dict[str, str]:
        return short_types(self._types)

    def describe(self) -> str:
        return self.title

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(self.schema.to_string(show_schema_metadata=False).encode())
        for file in self.files:
            digest.update(f"\0{file.name}\0{sorted(file.constants.items())!r}".encode())
            digest.update(b"" if file.deleted is None else file.deleted.tobytes())
        return digest.hexdigest()

    def length(self) -> int:
        return int(self.unit_rows().sum())

    def units(self) -> int:
        return len(self._units)

    def unit_rows(self) -> np.ndarray:
        return np.array([n for part in self._parts for n in part.rows], dtype=np.int64)

    def may_hold(self, unit: int, conditions: tuple[Condition, ...]) -> bool:
        """Whether a row group can hold a row that meets all conditions: by its file's partition and
        its own statistics."""
        number, group = self._units[unit]
        part, constants = self._parts[number], self.files[number].constants
        inside: list[Condition] = []
        for condition in conditions:
            if condition.column in part.names:
                inside.append(replace(condition, column=part.names[condition.column]))
                continue
            value = constants.get(condition.column)
            if value is not None and not condition.may_hold(value, value):
                return False
        return part.parquet.may_hold(group, tuple(inside))

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        number, group = self._units[unit]
        part, kept = self._parts[number], self._parts[number].kept[group]
        count = part.rows[group]
        if not columns:
            yield from empty_runs(count - start)
            return
        if start >= count:
            return
        own = {name: part.names[name] for name in columns if name in part.names}
        at = start if kept is None else int(kept[start])
        for run in part.parquet.open(group, at, tuple(dict.fromkeys(own.values()))):
            size = len(next(iter(run.values())))
            picked = None
            if kept is not None:
                first, last = np.searchsorted(kept, (at, at + size))
                picked = kept[first:last] - at
            at += size
            if picked is None or len(picked):
                yield self._filled(number, own, run, columns, size, picked)

    def _filled(
        self,
        number: int,
        own: dict[str, str],
        run: dict[str, Column],
        columns: tuple[str, ...],
        size: int,
        picked: np.ndarray | None,
    ) -> dict[str, Column]:
        """A run with the columns that the file lacks, and without rows that were deleted."""
        count = size if picked is None else len(picked)
        conversions = self._parts[number].conversions
        made: dict[str, Column] = {}
        for name in columns:
            if name in own:
                column = run[own[name]]
                column = column if picked is None else column.take(picked)
                convert = conversions.get(name)
                made[name] = (
                    column if convert is None else Values(list(map(convert, column.rows())))
                )
            else:
                value = self.files[number].constants.get(name)
                made[name] = _constant(value, self._types[name], count)
        return made


def _kept(counts: np.ndarray, deleted: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """The rows of each row group that are not deleted; None if none is."""
    found: list[np.ndarray | None] = []
    begin = 0
    for count in counts.tolist():
        inside = np.empty(0, np.int64)
        if deleted is not None:
            first, last = np.searchsorted(deleted, (begin, begin + count))
            inside = deleted[first:last] - begin
        begin += count
        found.append(np.delete(np.arange(count), inside) if len(inside) else None)
    return tuple(found)


def _constant(value: Any, kind: Any, count: int) -> Column:
    import pyarrow as pa

    if value is None:
        return from_arrow(pa.nulls(count, kind))
    return from_arrow(pa.repeat(pa.scalar(value, kind), count))


def local_path(path: str) -> str:
    """A path without the scheme `file://`."""
    return path.removeprefix("file://") if path.startswith("file:/") else path


def in_order(files: Sequence[LakeFile]) -> tuple[LakeFile, ...]:
    """The files sorted by name, since a log lists them in no particular order."""
    return tuple(sorted(files, key=lambda file: file.name))
