"""Hugging Face datasets, read through their Arrow tables: nothing is decoded on the way.

An image or audio column stays what is stored, a struct: `image.bytes` and `image.path`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column, table_columns
from silva.errors import PlanError
from silva.io.batches import empty_runs, leaf_types, runs, short_type, top_fields
from silva.io.memory import as_run
from silva.io.torch import IterableDataset
from silva.io.travel import Travels

STREAM_ROWS = 256


@dataclass(frozen=True, eq=False)
class HuggingFaceDataset(Travels):
    access: ClassVar[Literal["indexed"]] = "indexed"
    runs_user_code: ClassVar[bool] = True
    dataset: Any

    @functools.cached_property
    def _schema(self) -> Any:
        return self.dataset.features.arrow_schema

    @functools.cached_property
    def _formatted(self) -> Any:
        """The dataset as a giver of Arrow tables, by the columns that are asked for."""

        def with_columns(columns: tuple[str, ...]) -> Any:
            names = [self._schema.names[i] for i in top_fields(self._schema, columns)]
            return self.dataset.with_format("arrow", columns=names)

        return functools.lru_cache(maxsize=16)(with_columns)

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self._schema))

    def types(self) -> dict[str, str]:
        return {name: short_type(kind) for name, kind in leaf_types(self._schema).items()}

    def describe(self) -> str:
        return f"huggingface dataset of {self.length():,} rows"

    def fingerprint(self) -> str:
        return f"huggingface:{self.dataset._fingerprint}"

    def length(self) -> int:
        return len(self.dataset)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        run = as_run(rows)
        which = rows.tolist() if run is None else slice(*run)
        found = table_columns(self._formatted(columns)[which])
        return {name: found[name] for name in columns}


@dataclass(frozen=True, eq=False)
class HuggingFaceStream(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    replays: ClassVar[bool] = True
    dataset: Any

    @functools.cached_property
    def _schema(self) -> Any:
        return self.dataset.features.arrow_schema

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self._schema))

    def types(self) -> dict[str, str]:
        return {name: short_type(kind) for name, kind in leaf_types(self._schema).items()}

    def describe(self) -> str:
        return "huggingface stream"

    def fingerprint(self) -> str:
        info = self.dataset.info
        identity = (info.dataset_name, info.config_name, str(info.version), str(self.dataset.split))
        return f"huggingface:{identity}:{self.columns()}"

    def length(self) -> None:
        return None

    def units(self) -> int:
        return 1

    def unit_rows(self) -> None:
        return None

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
                for batch in table.combine_chunks().to_batches():
                    yield from runs(batch, columns, start)
            start = 0


def from_huggingface(dataset: Any) -> HuggingFaceDataset | HuggingFaceStream | IterableDataset:
    """Rows of a `datasets.Dataset`, or of an `IterableDataset` as a stream."""
    kind = type(dataset).__name__
    if isinstance(dataset, dict):
        splits = ", ".join(map(repr, dataset))
        raise PlanError(f"from_huggingface takes one split; choose among {splits}: dataset[…]")
    if type(dataset).__module__.partition(".")[0] != "datasets":
        raise PlanError(f"from_huggingface takes a datasets.Dataset, not {kind}")
    if any(cls.__name__ == "IterableDataset" for cls in type(dataset).__mro__):
        if dataset.features is None:  # then tables would get types of their own, block by block
            return IterableDataset(dataset, None, "huggingface")
        return HuggingFaceStream(dataset)
    if dataset.format["type"] == "custom":
        raise PlanError(
            "the dataset has a transform (set_transform), which silva would not run: "
            "remove it with reset_format() and write it as a derive() step"
        )
    return HuggingFaceDataset(dataset)
