"""Lance files of columns: written once and synced, read by position.

They hold what `pages` does not: text, arrays, nulls, and numbers that zstd compresses better.
64-bit integers that fit into 32 bits are written so, and come back with 64: that halves the bytes
to decompress, which is most of the cost of reading. Checksums are checked before columns are read
(`data_files`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from silva.columns import Column, from_arrow
from silva.errors import SilvaError, TableError, is_panic
from silva.folders import by_descriptor
from silva.store.files.data_files import Checked, DataFile, Span, checksums
from silva.store.files.extra import extra
from silva.store.versions.manifest import File
from silva.store.versions.table_folder import sync

_FORMAT = "2.2"
_COMPRESSION = {"lance-encoding:compression": "zstd"}
_WIDE = "silva:wide"
"""Marks columns that were narrowed from 64 bits."""
_AT_ONCE = 1 << 20
"""Rows that Lance decodes per batch."""
_DENSE = 0.1
"""If more than this share of a span is wanted, all of it is read: finding one row costs more than
decoding ten."""


def write_file(folder: Path, columns: dict[str, Any]) -> File:
    """One Lance file of these Arrow arrays, all equally long."""
    import pyarrow as pa

    arrays = {name: _narrow(column) for name, column in columns.items()}
    fields = []
    for name, array in arrays.items():
        field = _compressed(pa.field(name, array.type))
        is_narrow = array.type != columns[name].type
        fields.append(field.with_metadata({**_COMPRESSION, _WIDE: "64"}) if is_narrow else field)
    schema = pa.schema(fields)
    table = pa.table(list(arrays.values()), schema=schema)
    name = f"{uuid.uuid4().hex}.lance"
    path = folder / name
    writing = extra("lance.file").LanceFileWriter
    with panic_as_table_error(table), writing(str(path), schema, version=_FORMAT) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    sync(path)
    sync(folder)
    return File(name, path.stat().st_size, checksums(path))


@contextlib.contextmanager
def panic_as_table_error(table: Any) -> Iterator[None]:
    """Raises a TableError that names the columns, if Lance refuses to write them. A panic of Lance
    is not an Exception. `telling_full_disk` handles full disks."""
    try:
        yield
    except BaseException as error:
        refused = isinstance(error, NotImplementedError | ValueError) or is_panic(error)
        if isinstance(error, SilvaError) or not refused:
            raise
        shown = ", ".join(f"{field.name!r} ({field.type})" for field in table.schema)
        raise TableError(
            f"Lance cannot write {shown}: cast the column to another type, or leave it out "
            f"({type(error).__name__}: {str(error)[:300]})"
        ) from error


def _narrow(column: Any) -> Any:
    """Integers in 32 bits, if all of them fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    smaller = {pa.int64(): pa.int32(), pa.uint64(): pa.uint32()}.get(column.type)
    if smaller is None:
        return column
    info = np.iinfo(smaller.to_pandas_dtype())
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None or bounds["min"] < info.min or bounds["max"] > info.max:
        return column
    return column.cast(smaller)


def _widened(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64())


def _compressed(field: Any) -> Any:
    import pyarrow as pa

    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_compressed(kind.value_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_compressed(kind.value_field))
    return pa.field(field.name, kind, field.nullable, _COMPRESSION)


class FileReader:
    """Some columns of a file, read by position. Safe to use from several threads."""

    def __init__(self, data: DataFile, columns: tuple[str, ...] | None, checked: Checked) -> None:
        wanted = list(columns) if columns else None
        size = data.file.size
        handle = data.open()
        try:  # what Lance opens by the descriptor is the file that is checked
            checked.check(handle, data, [(max(size - 1, 0), size)])  # the footer
            self._reader = extra("lance.file").LanceFileReader(
                str(by_descriptor(handle)), columns=wanted
            )
            about = self._reader.metadata()
            checked.check(handle, data, [(about.num_data_bytes, size), *_spans(about, wanted)])
        finally:
            os.close(handle)
        self.rows: int = self._reader.num_rows()
        self._wide = {f.name for f in about.schema if _WIDE.encode() in (f.metadata or {})}
        self._lock = threading.Lock()

    def sizes(self) -> dict[str, int]:
        """The bytes of each column."""
        names = self._reader.metadata().schema.names
        sizes = [column.size_bytes for column in self._reader.file_statistics().columns]
        return dict(zip(names, sizes, strict=len(names) == len(sizes)))

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
        with self._lock:  # Lance's reader takes one call at a time; its results are read outside
            results = getattr(self._reader, method)(*arguments, batch_size=_AT_ONCE)
        table = results.to_table()
        found = {name: table.column(name) for name in table.column_names}
        return {n: from_arrow(_widened(c) if n in self._wide else c) for n, c in found.items()}


def _spans(about: Any, wanted: list[str] | None) -> Iterator[Span]:
    """The byte ranges of some columns, or of all; Lance numbers the innermost columns."""
    owners = [field.name for field in about.schema for _ in range(_leaves(field.type))]
    if wanted is None or len(owners) != len(about.columns):
        owners, wanted = [""] * len(about.columns), [""]
    for owner, column in zip(owners, about.columns, strict=True):
        if owner in wanted:
            pages = [buffer for page in column.pages for buffer in page.buffers]
            for buffer in (*pages, *column.column_buffers):
                yield buffer.position, buffer.position + buffer.size


def _leaves(kind: Any) -> int:
    inner = range(kind.num_fields)
    return sum(_leaves(kind.field(place).type) for place in inner) if inner else 1
