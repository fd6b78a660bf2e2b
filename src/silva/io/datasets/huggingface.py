"""Hugging Face datasets, read through their Arrow tables without decoding anything.

An image or audio column is read as it is stored, as a struct: `image.bytes` and `image.path`. If
only the path is stored, the bytes are read from the file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, table_columns
from silva.errors import PlanError
from silva.io.arrays.memory import as_run
from silva.io.arrow_batches import empty_runs, leaf_types, runs, short_type, top_fields
from silva.io.datasets.huggingface_files import needed, stored_by_path, with_files
from silva.io.datasets.torch import IterableDataset
from silva.io.source import register_source
from silva.io.travel import Travels

STREAM_ROWS = 256


@dataclass(frozen=True, eq=False)
class _WithSchema(Travels):
    """A dataset that says which columns it has, as an Arrow schema."""

    dataset: Any
    folder: str
    """The working directory when the source was made: relative paths keep their meaning."""

    @functools.cached_property
    def _schema(self) -> Any:
        return self.dataset.features.arrow_schema

    @functools.cached_property
    def _by_path(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return stored_by_path(self.dataset.features)

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self._schema))

    def types(self) -> dict[str, str]:
        return {name: short_type(kind) for name, kind in leaf_types(self._schema).items()}


@register_source("huggingface dataset", tag="huggingface")
@dataclass(frozen=True, eq=False)
class HuggingFaceDataset(_WithSchema):
    @functools.cached_property
    def _formatted(self) -> Any:
        """The dataset with Arrow tables as its format, by the columns that are read."""

        def with_columns(columns: tuple[str, ...]) -> Any:
            names = [self._schema.names[i] for i in top_fields(self._schema, columns)]
            return self.dataset.with_format("arrow", columns=names)

        return functools.lru_cache(maxsize=16)(with_columns)

    def fingerprint(self) -> str:
        return str(self.dataset._fingerprint)

    def length(self) -> int:
        return len(self.dataset)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        run = as_run(rows)
        which = rows.tolist() if run is None else slice(*run)
        wanted = needed(columns, self._by_path[0])
        found = table_columns(self._formatted(wanted)[which])
        found = with_files({name: found[name] for name in wanted}, *self._by_path, self.folder)
        return {name: found[name] for name in columns}


@register_source("huggingface stream", tag="huggingface")
@dataclass(frozen=True, eq=False)
class HuggingFaceStream(_WithSchema):
    replays: ClassVar[bool] = True

    def fingerprint(self) -> str:
        info = self.dataset.info
        identity = (info.dataset_name, info.config_name, str(info.version), str(self.dataset.split))
        return f"{identity}:{self.columns()}"

    def units(self) -> int:
        return 1

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        fixed = self._schema
        for table in self.dataset.with_format("arrow").iter(batch_size=STREAM_ROWS):
            if table.num_rows <= start:
                start -= table.num_rows
                continue
            if not columns:
                yield from empty_runs(table.num_rows - start)
            else:
                if table.schema.types != fixed.types:
                    table = table.select(fixed.names).cast(fixed)
                wanted = needed(columns, self._by_path[0])
                for batch in table.combine_chunks().to_batches():
                    for run in runs(batch, wanted, start):
                        found = with_files(run, *self._by_path, self.folder)
                        yield {name: found[name] for name in columns}
            start = 0


@register_source("huggingface samples", tag="huggingface")
@dataclass(frozen=True, eq=False)
class HuggingFaceSamples(IterableDataset):
    """A stream without a schema, read sample by sample: its tables would have other types from
    block to block."""

    def describe(self) -> str:
        return f"huggingface stream {type(self.dataset).__name__}"


def from_huggingface(dataset: Any) -> HuggingFaceDataset | HuggingFaceStream | HuggingFaceSamples:
    """Rows of a `datasets.Dataset`, or of an `IterableDataset` as a stream."""
    kind = type(dataset).__name__
    if isinstance(dataset, dict):
        splits = ", ".join(map(repr, dataset))
        raise PlanError(f"from_huggingface takes one split, dataset[…]: choose among {splits}")
    if type(dataset).__module__.partition(".")[0] != "datasets":
        raise PlanError(f"from_huggingface takes a datasets.Dataset, not {kind}")
    if any(cls.__name__ == "IterableDataset" for cls in type(dataset).__mro__):
        if dataset.features is None:
            return HuggingFaceSamples(dataset, None)
        return HuggingFaceStream(dataset, os.getcwd())
    if dataset.format["type"] == "custom":
        raise PlanError(
            "the dataset has a transform (set_transform), which silva does not run: remove it with "
            "reset_format(), and write it as a derive() step"
        )
    return HuggingFaceDataset(dataset, os.getcwd())
