"""Hugging Face datasets, read through their Arrow tables without decoding anything.

An image or audio column is read as it is stored, as a struct: `image.bytes` and `image.path`. If
only the path is stored, the bytes are read from the file, as `datasets` does when it decodes.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, Lists, Strings, Values, table_columns
from silva.errors import PlanError, SourceError
from silva.io.arrays.memory import as_run
from silva.io.arrow_batches import leaf_types, runs, short_types, top_fields
from silva.io.datasets.replay import naming_errors
from silva.io.datasets.torch import IterableDataset
from silva.io.source import Travels, kind_of, register_source, remembered

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
        return short_types(leaf_types(self._schema))

    def _with_files(self, found: dict[str, Column], columns: tuple[str, ...]) -> dict[str, Column]:
        """These columns, with bytes that are stored by path."""
        wanted = {name: found[name] for name in needed(columns, self._by_path[0])}
        with_bytes = with_files(wanted, *self._by_path, self.folder)
        return {name: with_bytes[name] for name in columns}


@register_source("huggingface dataset", tag="huggingface")
@dataclass(frozen=True, eq=False)
class HuggingFaceDataset(_WithSchema):
    @remembered(16)
    def _formatted(self, columns: tuple[str, ...]) -> Any:
        """The dataset with Arrow tables as its format, and just these columns."""
        names = [self._schema.names[i] for i in top_fields(self._schema, columns)]
        return self.dataset.with_format("arrow", columns=names)

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
        return self._with_files(table_columns(self._formatted(wanted)[which]), columns)


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
        wanted = needed(columns, self._by_path[0])
        for run in runs(self._batches(bool(columns)), start, wanted):
            yield self._with_files(run, columns) if columns else run

    def _batches(self, cast: bool) -> Iterator[Any]:
        fixed = self._schema
        what = f"{kind_of(self).name} {type(self.dataset).__name__}"
        for table in naming_errors(self._tables(), what, len):
            if cast and table.schema.types != fixed.types:
                table = self._cast(table, what)
            yield from table.combine_chunks().to_batches()

    def _cast(self, table: Any, what: str) -> Any:
        import pyarrow as pa

        try:
            return table.select(self._schema.names).cast(self._schema)
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise SourceError(
                f"{what}: rows do not fit its features, {self._schema.names}: {error}"
            ) from error

    def _tables(self) -> Iterator[Any]:
        """Tables of the stream. Where rows of one column are all null, `filter` of datasets fails
        to join them with others: from there on, rows are read one by one and joined here."""
        import pyarrow as pa

        stream, given = self.dataset.with_format("arrow"), 0
        try:
            for table in stream.iter(batch_size=STREAM_ROWS):
                yield table
                given += len(table)
            return
        except pa.ArrowInvalid:
            rest = itertools.islice(stream.iter(batch_size=1), given, None)
        while rows := list(itertools.islice(rest, STREAM_ROWS)):
            yield pa.concat_tables(rows, promote_options="default")


@register_source("huggingface samples", tag="huggingface")
@dataclass(frozen=True, eq=False)
class HuggingFaceSamples(IterableDataset):
    """A stream without a schema, read sample by sample: its tables would have other types from
    block to block."""

    _cure: ClassVar[str] = "Give every sample the same keys, None where a value is missing"

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


_BYTES, _PATH = ".bytes", ".path"


def stored_by_path(features: Any, prefix: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that may be paths: features by their names without `.bytes`, and lists of them.

    A feature of files has `embed_storage`, which a struct of the user has not."""
    single: list[str] = []
    lists: list[str] = []
    for name, feature in features.items():
        if isinstance(feature, Mapping):
            inner = stored_by_path(feature, f"{prefix}{name}.")
            single += inner[0]
            lists += inner[1]
        elif hasattr(feature, "embed_storage"):
            single.append(prefix + name)
        elif hasattr(_item(feature), "embed_storage"):
            lists.append(prefix + name)
    return tuple(single), tuple(lists)


def _item(feature: Any) -> Any:
    if isinstance(feature, list):
        return feature[0] if feature else None
    return getattr(feature, "feature", None)


def needed(columns: tuple[str, ...], single: tuple[str, ...]) -> tuple[str, ...]:
    """The columns to read: bytes that are null need the path."""
    paths = (name + _PATH for name in single if name + _BYTES in columns)
    return (*columns, *(path for path in paths if path not in columns))


def with_files(
    found: dict[str, Column], single: tuple[str, ...], lists: tuple[str, ...], folder: str
) -> dict[str, Column]:
    """The columns, with bytes read from files; relative paths are relative to `folder`."""
    out = dict(found)
    for name in single:
        if name + _BYTES in found:
            out[name + _BYTES] = _read(found[name + _BYTES], found[name + _PATH], folder)
    for name in lists:
        if name in found:
            out[name] = _read_lists(found[name], folder)
    return out


def _read(data: Column, paths: Column, folder: str) -> Column:
    if isinstance(data, Strings) and not data.data.null_count:
        return data
    import pyarrow as pa

    pairs = zip(data.rows(), paths.rows(), strict=True)
    items = [_file(path, folder) if one is None and path else one for one, path in pairs]
    return Strings(pa.array(items, pa.large_binary()))


def _read_lists(column: Column, folder: str) -> Column:
    """Lists of structs are dicts."""
    if not isinstance(column, Lists) or not isinstance(column.values, Values):
        return column
    items = [
        {**item, "bytes": _file(item["path"], folder)}
        if isinstance(item, dict) and item.get("bytes") is None and item.get("path")
        else item
        for item in column.values.items
    ]
    return Lists(Values(items), column.offsets, column.valid)


def _file(path: str, folder: str) -> bytes:
    try:
        if "://" in path:  # within an archive or remote: datasets opens it
            from datasets.utils.file_utils import xopen

            with xopen(path, "rb") as file:
                data: bytes = file.read()
                return data
        with open(os.path.join(folder, path), "rb") as file:
            return file.read()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SourceError(
            f"the dataset names the file {path!r}, which cannot be read: {why}. Relative paths "
            f"are looked up in {folder!r}"
        ) from error
