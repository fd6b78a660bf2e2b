"""Arrow IPC files and streams, memory-mapped, and Arrow tables in memory.

In a file, every record batch is a unit. A stream has no footer: it is one unit, in which batches
are skipped by their headers. A table in memory comes from any library with the Arrow C data
interface; it is indexed.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, table_columns
from silva.columns.owned import frozen
from silva.errors import PlanError, SourceError
from silva.io.arrays.memory import MemorySource
from silva.io.arrow_batches import leaf_types, runs, short_types, top_fields
from silva.io.file_source import FileSource, files_at, naming_file
from silva.io.paths import Files, Paths
from silva.io.source import Travels, register_source

_MAGIC = b"ARROW1"


@dataclass(frozen=True, eq=False)
class RecordBatches:
    """The file, the record batch and the number of rows of each unit."""

    schema: Any
    files: np.ndarray
    batches: np.ndarray
    """The index of the batch in its file; -1 for a whole stream."""
    rows: np.ndarray
    """The number of rows; -1 if it is not known."""


@register_source("arrow")
@dataclass(frozen=True)
class ArrowFiles(FileSource):
    carried: ClassVar[tuple[str, ...]] = ("_layout",)
    files: Files

    @functools.cached_property
    def _layout(self) -> RecordBatches:
        schema: Any = None
        units: list[tuple[int, int, int]] = []
        for file, path in enumerate(self.files.listing.paths):
            with self.files.open_arrow(file, mapped=True) as stream:
                reader, is_file = _reader(stream, path)
                _check_names(reader.schema, path)
                schema = reader.schema if schema is None else schema
                if not reader.schema.equals(schema):
                    raise SourceError(
                        f"{path} has another schema than {self.files.listing.paths[0]}:\n"
                        f"{reader.schema.to_string()}\ninstead of\n{schema.to_string()}"
                    )
                counts = _batch_rows(stream, reader, path) if is_file else [-1]
                units += [(file, i if is_file else -1, n) for i, n in enumerate(counts)]
        table = np.array(units, dtype=np.int64).reshape(-1, 3)
        return RecordBatches(schema, table[:, 0], table[:, 1], table[:, 2])

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self._layout.schema or ()))

    def types(self) -> dict[str, str]:
        return short_types(leaf_types(self._layout.schema or ()))

    def length(self) -> int | None:
        rows = self.unit_rows()
        return None if rows is None else int(rows.sum())

    def units(self) -> int:
        return len(self._layout.files)

    def unit_rows(self) -> np.ndarray | None:
        return None if (self._layout.rows < 0).any() else self._layout.rows

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        file, place = int(self._layout.files[unit]), int(self._layout.batches[unit])
        fields = top_fields(self._layout.schema, columns)
        path = self.files.listing.paths[file]
        with self.files.open_arrow(file, mapped=True) as stream:
            reader, _ = _reader(stream, path, fields)
            yield from runs(_checked(_batches(reader, place, path), start, path), start, columns)


def _reader(stream: Any, path: str, fields: list[int] | None = None) -> tuple[Any, bool]:
    """A reader of these fields, and whether it has random access to batches."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=fields or [], use_threads=False)
    with _naming(path):
        stream.seek(0)
        is_file = stream.read(len(_MAGIC)) == _MAGIC
        stream.seek(0)
        opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
        return opener(stream, options=options), is_file


def _batch_rows(stream: Any, reader: Any, path: str) -> list[int]:
    """The number of rows of each batch; only the first column is read, as it may be compressed."""
    narrow, _ = _reader(stream, path, [0] if len(reader.schema) else None)
    return [_get(narrow, i, path).num_rows for i in range(narrow.num_record_batches)]


def _get(reader: Any, place: int, path: str) -> Any:
    with _naming(path):
        return reader.get_batch(place)


def _batches(reader: Any, place: int, path: str) -> Iterator[Any]:
    if place >= 0:
        yield _get(reader, place, path)
        return
    while True:
        with _naming(path):
            batch = next(reader, None)
        if batch is None:
            return
        yield batch


def _check_names(schema: Any, path: str) -> None:
    try:
        leaf_types(schema)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path} is damaged: the name of a column is not valid text: {error}"
        ) from error


def _checked(batches: Iterator[Any], start: int, path: str) -> Iterator[Any]:
    """Validates offsets, indices and text of the batches that hold rows from `start` on, which
    Arrow takes from the file unchecked. It takes a few microseconds per megabyte of numbers or
    lists, and 70 per megabyte of text."""
    import pyarrow as pa

    for batch in batches:
        start -= batch.num_rows
        try:
            if start < 0:
                batch.validate(full=True)
        except pa.ArrowException as error:
            raise SourceError(f"{path} is damaged: {error}") from error
        yield batch


def _naming(path: str) -> AbstractContextManager[None]:
    return naming_file(path, "an Arrow IPC file", ValueError, MemoryError)


def read_arrow(paths: Paths) -> ArrowFiles:
    """Rows of Arrow IPC files or streams (also known as Feather v2)."""
    return ArrowFiles(files_at(paths, (".arrow", ".feather", ".ipc", ".arrows")))


@register_source("arrow table", tag="")
@dataclass(frozen=True, eq=False)
class ArrowTable(Travels):
    runs_user_code: ClassVar[bool] = False
    table: Any
    """A `pyarrow.Table` whose columns have one chunk each, for fast access to any row."""

    @functools.cached_property
    def _memory(self) -> MemorySource:
        """The table as columns. What Arrow stores in another form (bits, dates, dicts in lists) is
        converted once and read in every epoch, so nobody may write into it."""
        data = {name: frozen(column) for name, column in table_columns(self.table).items()}
        return MemorySource(data, "arrow table", self.length())

    @functools.cached_property
    def _fingerprint(self) -> str:
        import pyarrow as pa

        sink = _Digest()
        with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), self.table.schema) as writer:
            writer.write_table(self.table)
        return sink.digest.hexdigest()

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self.table.schema))

    def types(self) -> dict[str, str]:
        return short_types(leaf_types(self.table.schema))

    def fingerprint(self) -> str:
        return self._fingerprint

    def length(self) -> int:
        return int(self.table.num_rows)

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        return self._memory.read(rows, columns)


class _Digest:
    """A file that hashes what is written and stores nothing."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def from_arrow(data: Any) -> ArrowTable:
    """Rows of a pyarrow, polars, pandas or DuckDB table, or of any object with Arrow's interface.

    A stream can be consumed only once, so it is read here.
    """
    import pyarrow as pa

    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        raise PlanError(
            f"from_arrow takes a table with Arrow's interface (__arrow_c_stream__), not "
            f"{type(data).__name__}"
        )
    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise PlanError(f"from_arrow takes a table with named columns: {error}") from error
    leaf_types(table.schema)
    table = table.combine_chunks()
    for i, column in enumerate(table.columns):
        if column.num_chunks > 1:  # too long for 32-bit offsets
            wide = column.cast(_wide(column.type)).combine_chunks()
            table = table.set_column(i, table.schema.names[i], wide)
    return ArrowTable(table)


def _wide(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.large_list(kind.value_type)
    return pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
