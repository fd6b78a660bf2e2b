"""Parquet shards, in row groups of a few megabytes.

The schema is saved with the progress, so that a resumed run writes the same types.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Any, BinaryIO

from silva.columns import Block
from silva.errors import ColumnError, PlanError
from silva.folders import OwnFolder
from silva.plan.arguments import one_of
from silva.sinks.arrow import ArrowTables
from silva.sinks.shard_files import ShardFiles

_GROUP_BYTES, _GROUP_ROWS = 16 << 20, 1 << 16
"""Rows and bytes at which a row group is written."""
_CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


class ParquetWriter:
    def __init__(self, folder: OwnFolder, schema: Any, compression: str) -> None:
        import pyarrow as pa

        one_of("to_parquet(compression=…)", compression, None, *_CODECS)
        if schema is not None and not isinstance(schema, pa.Schema):
            raise PlanError(f"to_parquet(schema=…) is a pyarrow.Schema, not {schema!r}")
        self._files = ShardFiles(folder, ".parquet")
        self._arrow = ArrowTables(schema, ", or to_parquet(schema=…) a type that holds both")
        self._given = schema is not None
        self._compression = compression
        self._open: Any = None
        self._nbytes = 0
        self._written = 0
        """Bytes of the rows that wait."""
        self._waiting: list[Any] = []
        """The chunks of the next row group."""
        self._waiting_rows = 0
        self._file: BinaryIO | None = None

    def settings(self) -> dict[str, Any]:
        given = _as_text(self._arrow.schema) if self._given else None
        return {"format": "parquet", "compression": self._compression, "schema": given}

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        self._files.keep_only(shards)
        if kept:
            self._arrow.schema = _from_text(kept["schema"])

    def keep(self) -> dict[str, Any]:
        return {"schema": _as_text(self._arrow.schema)}

    def open(self, number: int) -> None:
        self._file = self._files.begin(number)
        self._nbytes = self._written = 0

    def write(self, chunk: Block) -> int:
        table = self._arrow.table(chunk)
        for column in table.schema if not self._nbytes else ():
            if _is_hollow(column.type):
                raise ColumnError(
                    f"to_parquet: column {column.name!r} holds dicts without keys, which Parquet "
                    "cannot hold: drop the column, or give schema="
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
            self._open = pq.ParquetWriter(
                self._file, self._arrow.schema, compression=self._compression
            )
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
            with contextlib.suppress(OSError):  # a full disk: the file is removed anyway
                self._open.close()
            self._open = None
        self._waiting, self._waiting_rows = [], 0
        self._files.discard()


def _is_hollow(kind: Any) -> bool:
    """Whether an Arrow type is or contains a struct without fields."""
    import pyarrow as pa

    parts = [kind.field(i).type for i in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not parts) or any(map(_is_hollow, parts))


def _as_text(schema: Any) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _from_text(text: str) -> Any:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
