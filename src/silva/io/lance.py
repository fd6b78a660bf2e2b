"""Lance datasets: any row by its number, with just the columns that are used.

A version is fixed when the source is made, so rows stay what they are while others write.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column, table_columns
from silva.errors import PlanError, SourceError
from silva.io.batches import leaf_types, short_type, top_fields
from silva.io.memory import as_run
from silva.io.names import chosen
from silva.io.travel import Travels
from silva.plan.fingerprint import digest


@dataclass(frozen=True)
class LanceDataset(Travels):
    access: ClassVar[Literal["indexed"]] = "indexed"
    carried: ClassVar[tuple[str, ...]] = ("_count", "_schema")
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
    def _types(self) -> dict[str, Any]:
        types = leaf_types(self._schema)
        for name in self.given or ():
            if name not in types:
                raise SourceError(f"{self.path} has no column {name!r}; it has {', '.join(types)}")
        return types if self.given is None else {name: types[name] for name in self.given}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._types)

    def types(self) -> dict[str, str]:
        return {name: short_type(kind) for name, kind in self._types.items()}

    def describe(self) -> str:
        return f"lance {self.path}, version {self.version}"

    def fingerprint(self) -> str:
        files = [f.path for part in self._dataset.get_fragments() for f in part.data_files()]
        gone = [part.metadata.num_deletions for part in self._dataset.get_fragments()]
        return f"lance:{digest((self._schema.to_string(), files, gone, self._count))}"

    def length(self) -> int:
        return self._count

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        names = [self._schema.names[i] for i in top_fields(self._schema, columns)]
        run = as_run(rows)
        if run is None:
            different, places = np.unique(rows, return_inverse=True)
            found = table_columns(self._dataset.take(different.tolist(), columns=names))
            return {name: found[name].take(places) for name in columns}
        table = self._dataset.to_table(columns=names, offset=run[0], limit=run[1] - run[0])
        found = table_columns(table)
        return {name: found[name] for name in columns}


def _opened(path: str, version: int | None) -> Any:
    try:
        import lance
    except ImportError:
        raise PlanError("read_lance needs pylance: pip install 'silva[store]'") from None
    try:
        return lance.dataset(path, version=version)
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read as a Lance dataset: {error}") from error


def read_lance(
    path: str | os.PathLike[str], version: int | None = None, columns: Sequence[str] | None = None
) -> LanceDataset:
    place = os.path.abspath(os.path.expanduser(os.fspath(path)))
    return LanceDataset(place, int(_opened(place, version).version), chosen(columns))
