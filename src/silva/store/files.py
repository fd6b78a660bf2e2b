"""Lance files of columns: written once and synced, read by position."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from silva.columns import Column, from_arrow
from silva.store.layout import File

_FORMAT = "2.2"
_COMPRESSION = {"lance-encoding:compression": "zstd"}
_AT_ONCE = 1 << 20
"""Rows that Lance decodes at a time."""
_DENSE = 0.1
"""Share of a span of rows above which all of it is read: to find a row costs more than to decode
ten."""


def write_file(folder: Path, columns: dict[str, Any]) -> File:
    """One Lance file of these Arrow arrays, all equally long."""
    import pyarrow as pa
    from lance.file import LanceFileWriter

    fields = [_compressed(pa.field(name, column.type)) for name, column in columns.items()]
    schema = pa.schema(fields)
    table = pa.table(list(columns.values()), schema=schema)
    name = f"{uuid.uuid4().hex}.lance"
    path = folder / name
    with LanceFileWriter(str(path), schema, version=_FORMAT) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    _sync(path)
    _sync(folder)
    return File(name, path.stat().st_size)


def _compressed(field: Any) -> Any:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_compressed(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_compressed(kind.value_field))
    return pa.field(field.name, kind, field.nullable, _COMPRESSION)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FileReader:
    """Some columns of a file, read by position. Safe to use from several threads."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        from lance.file import LanceFileReader

        self._reader = LanceFileReader(str(path), columns=list(columns))
        self._lock = threading.Lock()

    def take(self, rows: np.ndarray | range) -> dict[str, Column]:
        """Rows at ascending positions; a run of them, or nearly one, is read as a range."""
        first, span = (int(rows[0]), int(rows[-1]) - int(rows[0]) + 1) if len(rows) else (0, 0)
        if len(rows) < _DENSE * span:
            return self._columns("take_rows", np.asarray(rows).tolist())
        found = self._columns("read_range", first, span)
        if len(rows) == span:
            return found
        return {name: column.take(np.asarray(rows) - first) for name, column in found.items()}

    def _columns(self, method: str, *arguments: Any) -> dict[str, Column]:
        with self._lock:  # Lance's reader takes one call at a time; what it gives is read outside
            results = getattr(self._reader, method)(*arguments, batch_size=_AT_ONCE)
        table = results.to_table()
        return {name: from_arrow(table.column(name)) for name in table.column_names}
