"""Rows in Lance files: written once, read by position.

Columns of one value a row lie together in one file. A list column has a file of its own for all its
items, end to end, and the rows say which slice is theirs: items compress better without the lists
around them, are read without being taken apart, and can be shared between rows.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from silva.columns import Column, Lists, table_columns
from silva.columns.array import Array
from silva.columns.arrow import from_arrow
from silva.store.layout import File, Part, Plain, Slices, Stored

_FORMAT = "2.2"
_COMPRESSION = {"lance-encoding:compression": "zstd"}
_ITEM = "item"
_AT_ONCE = 1 << 20
"""Rows that Lance decodes at a time."""


def write_part(folder: Path, table: Any) -> Part:
    """Writes the rows of an Arrow table into new files of `folder`, all of which are on the disk
    when this returns."""
    import pyarrow as pa

    fixed: dict[str, Any] = {}
    stored: dict[str, Stored] = {}
    files: list[File] = []
    last = sum(map(_is_list, table.schema.types))
    for name in table.column_names:
        column, place = table.column(name).combine_chunks(), f"c{len(fixed)}"
        if _is_list(column.type):
            start, length, items = _slices(column)
            stored[name] = Slices(last, f"{place}_start", f"{place}_length", len(files))
            files.append(write_file(folder, {_ITEM: items}))
            fixed[f"{place}_start"], fixed[f"{place}_length"] = pa.array(start), pa.array(length)
        else:
            stored[name] = Plain(last, place)
            fixed[place] = column
    files.append(write_file(folder, fixed))
    return Part(table.num_rows, tuple(files), stored)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _slices(lists: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Where each row's items lie among all items, end to end."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    length = np.diff(offsets).astype(np.int32)
    if lists.null_count:
        length[~from_arrow(lists.is_valid()).batch()] = -1
    return offsets[:-1] - first, length, lists.values.slice(first, last - first)


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


class PartReader:
    """Reads rows of a part by their position. Safe to use from several threads."""

    def __init__(self, folder: Path, part: Part) -> None:
        self._folder = folder
        self._part = part
        self._open = functools.lru_cache(maxsize=None)(self._opened)

    def _opened(self, file: int, columns: tuple[str, ...]) -> Any:
        from lance.file import LanceFileReader

        path = self._folder / self._part.files[file].name
        return LanceFileReader(str(path), columns=list(columns))

    def read(self, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        """The rows at these positions, in this order."""
        order: np.ndarray | None = None
        if len(rows) > 1 and not (np.diff(rows) > 0).all():
            rows, order = np.unique(rows, return_inverse=True)
        found = self._sorted(rows, columns)
        return found if order is None else {n: c.take(order) for n, c in found.items()}

    def _sorted(self, rows: np.ndarray, names: Sequence[str]) -> dict[str, Column]:
        wanted: dict[int, list[str]] = {}
        for name in names:
            match self._part.columns[name]:
                case Plain(file, column):
                    wanted.setdefault(file, []).append(column)
                case Slices(file, start, length, _):
                    wanted.setdefault(file, []).extend((start, length))
        fixed = {f: self._take(f, tuple(columns), rows) for f, columns in wanted.items()}
        return {name: self._column(self._part.columns[name], fixed) for name in names}

    def _column(self, how: Stored, fixed: dict[int, dict[str, Column]]) -> Column:
        match how:
            case Plain(file, column):
                return fixed[file][column]
            case Slices(file, start, length, items):
                return self._lists(items, fixed[file][start], fixed[file][length])
        raise NotImplementedError(how)

    def _lists(self, file: int, starts: Column, lengths: Column) -> Column:
        assert isinstance(starts, Array)
        assert isinstance(lengths, Array)
        present = lengths.data >= 0
        length = np.where(present, lengths.data, 0).astype(np.int64)
        offsets = np.zeros(len(length) + 1, dtype=np.int64)
        np.cumsum(length, out=offsets[1:])
        wanted = np.arange(int(offsets[-1])) + np.repeat(starts.data - offsets[:-1], length)
        items = self._items(file, wanted)
        return Lists(items, offsets, None if present.all() else present)

    def _items(self, file: int, wanted: np.ndarray) -> Column:
        if len(wanted) > 1 and not (np.diff(wanted) > 0).all():
            wanted, order = np.unique(wanted, return_inverse=True)
            return self._take(file, (_ITEM,), wanted)[_ITEM].take(order)
        return self._take(file, (_ITEM,), wanted)[_ITEM]

    def _take(self, file: int, columns: tuple[str, ...], rows: np.ndarray) -> dict[str, Column]:
        """Rows at ascending positions; a run of them is read as one."""
        reader = self._open(file, columns)
        if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1:
            results = reader.read_range(int(rows[0]), len(rows), batch_size=_AT_ONCE)
        else:
            results = reader.take_rows(rows.tolist(), batch_size=_AT_ONCE)
        return table_columns(results.to_table())
