"""Lance datasets: any row by its number, with just the columns that are used.

The version is fixed when the source is made, so later writes do not change its rows. Rows that an
index rules out are not read, and wide columns are read after the filters.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, table_columns
from silva.errors import PlanError, SilvaError, SourceError, is_panic
from silva.io.arrays.memory import as_run
from silva.io.arrow_batches import leaf_types, short_types, top_fields
from silva.io.conditions import Condition
from silva.io.lake.lance_index import Indices
from silva.io.names import check_columns, chosen
from silva.io.objects.table_addresses import client_options, naming_table, table_location
from silva.io.source import Travels, register_source
from silva.plan.fingerprint import digest

_WIDE = 256
"""Average bytes per row from which a column is read after the filters."""


@register_source("lance")
@dataclass(frozen=True)
class LanceDataset(Travels):
    runs_user_code: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ("_count", "_schema", "costly")
    path: str
    version: int
    given: tuple[str, ...] | None

    @functools.cached_property
    def _dataset(self) -> Any:
        return _opened(self.path, self.version)

    @functools.cached_property
    def _schema(self) -> Any:
        return self._dataset.schema

    @functools.cached_property
    def _count(self) -> int:
        return int(self._dataset.count_rows())

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        """The index of the first row of each fragment; last, the number of all rows."""
        counts = [fragment.count_rows() for fragment in self._dataset.get_fragments()]
        return np.cumsum(np.array([0, *counts], dtype=np.int64))

    @functools.cached_property
    def _has_holes(self) -> bool:
        return any(f.num_deletions for f in self._dataset.get_fragments())

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        types = leaf_types(self._schema)
        check_columns(self.given or (), types, self.path)
        return types if self.given is None else {name: types[name] for name in self.given}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._types)

    def types(self) -> dict[str, str]:
        return short_types(self._types)

    def describe(self) -> str:
        return f"lance {self.path}, version {self.version}"

    def fingerprint(self) -> str:
        files = [f.path for part in self._dataset.get_fragments() for f in part.data_files()]
        gone = [part.metadata.num_deletions for part in self._dataset.get_fragments()]
        return digest((self._schema.to_string(), files, gone, self._count))

    def length(self) -> int:
        return self._count

    @functools.cached_property
    def costly(self) -> tuple[str, ...]:
        """Columns so wide that they are read only for rows that the filters keep."""
        sizes = {field.id: field.bytes_on_disk for field in self._dataset.stats.data_stats().fields}
        found: dict[str, int] = {}
        for field in self._dataset.lance_schema.fields():
            _add_sizes(field, field.name(), sizes, found)
        return tuple(name for name in self.columns() if found.get(name, 0) >= _WIDE * self._count)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        names = [self._schema.names[i] for i in top_fields(self._schema, columns)]
        run = as_run(rows)
        with naming_table(self.path, "a Lance dataset"):
            if run is not None:
                table = self._dataset.to_table(columns=names, offset=run[0], limit=len(rows))
                found = table_columns(table)
                return {name: found[name] for name in columns}
            different, places = np.unique(rows, return_inverse=True)
            found = table_columns(self._take(different, names))
            return {name: found[name].take(places) for name in columns}

    def _take(self, rows: np.ndarray, names: list[str]) -> Any:
        """Rows in ascending order. With deleted rows, a dataset searches for each row (0.1 ms and
        more); its fragments do not."""
        import pyarrow as pa

        if not self._has_holes or not len(rows):
            return self._dataset.take(rows.tolist(), columns=names)
        edges = np.searchsorted(rows, self._starts)
        parts = [
            fragment.take((rows[a:b] - start).tolist(), columns=names)
            for fragment, start, (a, b) in zip(
                self._dataset.get_fragments(), self._starts[:-1], pairwise(edges), strict=True
            )
            if a < b
        ]
        return pa.concat_tables(parts)

    # Indices.

    @functools.cached_property
    def _indices(self) -> Indices:
        return Indices(self._dataset, self._starts)

    def may_hold_rows(self, rows: np.ndarray, conditions: tuple[Condition, ...]) -> np.ndarray:
        """Whether each row can meet all conditions, by the dataset's indices."""
        bits = self._indices.possible(conditions)
        if bits is None:
            return np.ones(len(rows), dtype=bool)
        found: np.ndarray = bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1 == 1
        return found

    def passed_over(self, conditions: tuple[Condition, ...]) -> str | None:
        bits = self._indices.possible(conditions)
        if bits is None:
            return None
        count = self._count - int(np.unpackbits(bits).sum())
        return f"{count:,} of {self._count:,} rows skipped by an index"


def _add_sizes(field: Any, name: str, sizes: dict[int, int], found: dict[str, int]) -> int:
    """Adds the bytes of a field and of those below it, each by its dotted name."""
    below = [_add_sizes(f, f"{name}.{f.name()}", sizes, found) for f in field.children()]
    found[name] = sizes.get(field.id(), 0) + sum(below)
    return found[name]


def _opened(path: str, version: int | None) -> Any:
    try:
        import lance
    except ImportError:
        raise PlanError("read_lance needs pylance: pip install 'silva[store]'") from None
    try:
        with naming_table(path, "a Lance dataset"):
            return lance.dataset(path, version=version, storage_options=client_options(path))
    except BaseException as error:
        if isinstance(error, SilvaError) or not (
            isinstance(error, OSError | ValueError) or is_panic(error)
        ):
            raise
        raise SourceError(f"{path} cannot be read as a Lance dataset: {error}") from error


def read_lance(
    path: str | os.PathLike[str], version: int | None = None, columns: Sequence[str] | None = None
) -> LanceDataset:
    place = table_location(path, "read_lance")
    return LanceDataset(place, int(_opened(place, version).version), chosen(columns))
