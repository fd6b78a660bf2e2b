"""Parquet shards, in row groups of some megabytes.

The schema is the user's, or that of the first chunk; later chunks are cast to it where nothing is
lost. It is kept with the progress, so that a run that goes on writes the same types.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from silva.columns import Block, Column, Grouped, Strings, Values, to_arrow
from silva.errors import ColumnError
from silva.feed.arrow_types import arrow_array
from silva.sinks.files import ShardFiles

_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 1 << 16
"""A row group is written when it has so much."""


class ParquetWriter:
    def __init__(self, folder: Path, schema: Any, compression: str) -> None:
        self._files = ShardFiles(folder, ".parquet")
        self._schema = schema
        self._given = schema is not None
        self._compression = compression
        self._open: Any = None
        self._nbytes = 0
        self._written = 0
        """Of these bytes."""
        self._waiting: list[Any] = []
        """Chunks of the next row group."""
        self._waiting_rows = 0
        self._path = folder

    def settings(self) -> dict[str, Any]:
        given = _as_text(self._schema) if self._given else None
        return {"format": "parquet", "compression": self._compression, "schema": given}

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        self._files.keep_only(shards)
        if kept:
            self._schema = _from_text(kept["schema"])

    def keep(self) -> dict[str, Any]:
        return {"schema": _as_text(self._schema)}

    def open(self, number: int) -> None:
        self._path = self._files.begin(number)
        self._nbytes = self._written = 0

    def write(self, chunk: Block) -> int:
        import pyarrow as pa

        arrays = {name: _array(name, column) for name, column in chunk.columns.items()}
        if self._schema is None:
            self._schema = pa.schema([(name, array.type) for name, array in arrays.items()])
        table = pa.Table.from_arrays(
            [_fitted(n, arrays, self._schema.field(n).type) for n in self._schema.names],
            schema=self._schema,
        )
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._nbytes += table.nbytes
        waiting = self._nbytes - self._written
        if self._waiting_rows >= _GROUP_ROWS or waiting >= _GROUP_BYTES:
            self._write_group()
        return self._nbytes

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._open is None:
            self._open = pq.ParquetWriter(self._path, self._schema, compression=self._compression)
        group = pa.concat_tables(self._waiting)
        self._open.write_table(group, row_group_size=max(group.num_rows, 1))
        self._waiting, self._waiting_rows, self._written = [], 0, self._nbytes

    def close(self) -> str:
        if self._waiting:
            self._write_group()
        self._open.close()
        self._open = None
        return self._files.complete()

    def discard(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        self._waiting, self._waiting_rows = [], 0
        self._files.discard()


def _array(name: str, column: Column) -> Any:
    if isinstance(column, Grouped):
        column = column.expand()
    if isinstance(column, Strings):
        return column.data
    column = column.settled()
    if isinstance(column, Values):
        return arrow_array(name, column.batch())
    return to_arrow(column)


def _fitted(name: str, arrays: dict[str, Any], kind: Any) -> Any:
    import pyarrow as pa

    if name not in arrays:
        raise ColumnError(f"the schema has a column {name!r}, which the pipeline does not have")
    array = arrays[name]
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowException:
        raise ColumnError(
            f"column {name!r} is {array.type} in some rows and {kind} in the schema: give it one "
            "type with cast(…), or to_parquet(schema=…) a type that holds both"
        ) from None


def _as_text(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _from_text(text: str) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
