"""Parts in files: some columns of a run of rows, written once and read by position.

Numbers lie in a file of packed pages, other columns of one value per row in a Lance file. A list
column has a file of its own for its items, and each row stores which slice is its own: items
compress better without the lists around them, and rows can share them. Columns in files are
numbered, because Lance allows no dots in names.

Rows that repeat come back as a `Dictionary`, and their values are read once. The columns of a group
come back with one index, so a step that reads several runs once for each distinct row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from silva.columns import Array, Column, Dictionary, from_arrow
from silva.columns.codes import codes
from silva.columns.dictionary import expanded
from silva.columns.number_runs import appearance
from silva.errors import TableError
from silva.folders import OwnFolder
from silva.store.files.data_files import Checked, DataFile, damage_as_table_error
from silva.store.files.dedup import check_kinds
from silva.store.files.lance_files import FileReader, write_file
from silva.store.files.pages import SUFFIX, PagesReader, numbers, packs_well, write_pages
from silva.store.files.slices import cut_slices, gather_slices, is_list
from silva.store.versions.manifest import File, Group, InGroup, Kind, Part, Plain, Slices, Stored

_ITEM = "item"
"""The name of the column in a file of items."""
_NUMBERS, _OTHERS = -1, -2
"""Placeholders for the files of numbers and of other columns, until their indices are known."""


def write_part(folder: Path, table: Any, kinds: Mapping[str, Kind] | None = None) -> Part:
    """Writes the rows of an Arrow table into new files of `folder`, and syncs them. Columns without
    a kind are plain."""
    kinds = kinds or {}
    check_kinds(table.schema, kinds)
    writer = _PartWriter(folder, table.num_rows)
    for name in table.column_names:
        if kinds.get(name) != "grouped":
            writer.add(name, _whole(table.column(name)), kinds.get(name) == "slices")
    for first, index, names in _groups(table, kinds):
        writer.add_group(table.select(names).take(first), index)
    return writer.finish(table.column_names)


def _groups(
    table: Any, kinds: Mapping[str, Kind]
) -> list[tuple[np.ndarray, np.ndarray, list[str]]]:
    """First rows, index and names of each group: grouped columns with the same index."""
    found: dict[bytes, tuple[np.ndarray, np.ndarray, list[str]]] = {}
    for name in table.column_names:
        if kinds.get(name) == "grouped":
            first, number = appearance(codes(from_arrow(table.column(name))))
            index = number.astype(np.int32)
            found.setdefault(index.tobytes(), (first, index, []))[2].append(name)
    return list(found.values())


def _whole(column: Any) -> Any:
    """A column of a table as one Arrow array."""
    import pyarrow as pa

    whole = column.combine_chunks()
    if isinstance(whole, pa.ExtensionArray):
        whole = whole.storage
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


class _PartWriter:
    """Writes the columns of a part; the files of one value per row come last."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        self._numbers: dict[str, np.ndarray] = {}
        self._others: dict[str, Any] = {}
        self._stored: dict[str, Plain | Slices | InGroup] = {}
        self._files: list[File] = []
        self._groups: list[Group] = []

    def add(self, name: str, column: Any, shares: bool) -> None:
        place = f"c{len(self._stored)}"
        if is_list(column.type):
            start, length, items = cut_slices(column, shares)
            bounds = f"{place}_start", f"{place}_length"
            self._numbers |= zip(bounds, (start, length), strict=True)
            self._stored[name] = Slices(_NUMBERS, *bounds, items=len(self._files))
            self._files.append(self._items(items))
        elif (values := _packable(column)) is not None:
            self._numbers[place] = values
            self._stored[name] = Plain(_NUMBERS, place)
        else:
            self._others[place] = column
            self._stored[name] = Plain(_OTHERS, place)

    def _items(self, items: Any) -> File:
        values = _packable(items)
        if values is None:
            return write_file(self._folder, {_ITEM: items})
        return write_pages(self._folder, {_ITEM: values})

    def add_group(self, values: Any, index: np.ndarray) -> None:
        place = f"g{len(self._groups)}"
        self._numbers[place] = index
        self._stored |= dict.fromkeys(values.column_names, InGroup(len(self._groups)))
        self._groups.append(Group(_NUMBERS, place, write_part(self._folder, values)))

    def finish(self, names: list[str]) -> Part:
        last: dict[int, int] = {}
        if self._numbers:
            last[_NUMBERS] = len(self._files)
            self._files.append(write_pages(self._folder, self._numbers))
        if self._others:
            last[_OTHERS] = len(self._files)
            self._files.append(write_file(self._folder, self._others))
        stored: dict[str, Stored] = {}
        for name in names:
            how = self._stored[name]
            if not isinstance(how, InGroup):
                how = replace(how, file=last[how.file])
            stored[name] = how
        groups = tuple(replace(group, file=last[group.file]) for group in self._groups)
        return Part(self._rows, tuple(self._files), stored, groups)


def _packable(column: Any) -> np.ndarray | None:
    """The values of an Arrow array, if they are numbers that pack well."""
    values = numbers(from_arrow(column))
    return values if values is not None and packs_well(values) else None


def open_file(
    data: OwnFolder,
    file: File,
    columns: tuple[str, ...] | None = None,
    checked: Checked | None = None,
) -> PagesReader | FileReader:
    """Opens some columns of a file, or all; blocks in `checked` are not checked again."""
    found = DataFile(data, file)
    with damage_as_table_error(lambda: repr(str(found.path))):
        if file.name.endswith(SUFFIX):
            return PagesReader(found.path, columns, found.opener)
        return FileReader(found, columns, checked or Checked())


class PartReader:
    """Reads rows of a part by their position. Safe to use from several threads."""

    def __init__(self, data: OwnFolder, part: Part, checked: Checked | None = None) -> None:
        self._data = data
        self._part = part
        self._checked = checked or Checked()
        self._values = [PartReader(data, group.values, self._checked) for group in part.groups]
        self._open = functools.lru_cache(maxsize=None)(self._opened)

    def _opened(self, file: int, columns: tuple[str, ...]) -> PagesReader | FileReader:
        found = self._part.files[file]
        reader = open_file(self._data, found, columns, self._checked)
        if columns != (_ITEM,) and reader.rows != self._part.rows:
            raise TableError(
                f"{found.name!r} in {str(self._data.path)!r} holds {reader.rows:,} rows, where the "
                f"table names {self._part.rows:,}: it is damaged. Restore it from a backup"
            )
        return reader

    def read(self, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        """The rows at these positions, in this order."""
        with damage_as_table_error(self._shown):
            return self._read(rows, columns)

    def _shown(self) -> str:
        names = ", ".join(repr(file.name) for file in self._part.files)
        return f"one of {names} in {str(self._data.path)!r}"

    def _read(self, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        fixed = self._fixed(rows, columns)
        made: dict[str, Column] = {}
        for group in range(len(self._part.groups)):
            made |= self._grouped(group, fixed, columns)
        for name in columns:
            match self._part.columns[name]:
                case Plain(file, column):
                    made[name] = fixed[file, column]
                case Slices() as how:
                    made[name] = self._lists(how, fixed)
        return {name: made[name] for name in columns}

    def _fixed(self, rows: np.ndarray, names: Sequence[str]) -> dict[tuple[int, str], Column]:
        """The columns that are stored row by row, by file and column."""
        wanted: dict[int, dict[str, None]] = {}
        for name in names:
            match self._part.columns[name]:
                case Plain(file, column):
                    wanted.setdefault(file, {})[column] = None
                case Slices(file, start, length, _):
                    wanted.setdefault(file, {}).update({start: None, length: None})
                case InGroup(group):
                    index = self._part.groups[group]
                    wanted.setdefault(index.file, {})[index.index] = None
        order: np.ndarray | None = None
        if len(rows) > 1 and not (np.diff(rows) > 0).all():
            rows, order = np.unique(rows, return_inverse=True)
        found: dict[tuple[int, str], Column] = {}
        for file, some in wanted.items():
            for place, values in self._open(file, tuple(some)).take(rows).items():
                found[file, place] = values if order is None else values.take(order)
        return found

    def _grouped(
        self, number: int, fixed: dict[tuple[int, str], Column], names: Sequence[str]
    ) -> dict[str, Column]:
        how = InGroup(number)
        wanted = [name for name in names if self._part.columns[name] == how]
        if not wanted:
            return {}
        group = self._part.groups[number]
        index = _numbers(fixed[group.file, group.index])
        first, inverse = appearance(index)
        values = self._values[number].read(index[first], wanted)
        if len(first) == len(index):
            return values
        return {n: Dictionary(expanded(c), inverse, group.distinct) for n, c in values.items()}

    def _lists(self, how: Slices, fixed: dict[tuple[int, str], Column]) -> Column:
        file = self._open(how.items, (_ITEM,))

        def items(rows: np.ndarray | range) -> Column:
            return file.take(rows)[_ITEM]

        starts = _numbers(fixed[how.file, how.start])
        lengths = _numbers(fixed[how.file, how.length])
        ends = starts + lengths
        if len(starts) and (starts.min() < 0 or lengths.min() < -1 or ends.max() > file.rows):
            raise TableError(f"{self._shown()} is damaged: lists reach beyond their items")
        return gather_slices(items, starts, lengths)


def _numbers(column: Column) -> np.ndarray:
    assert isinstance(column, Array)
    return column.data


def column_bytes(data: OwnFolder, part: Part) -> dict[str, int]:
    """The bytes of each column of a part; the columns of a group share the bytes of its index."""
    files = [open_file(data, file).sizes() for file in part.files]
    found: dict[str, int] = {}
    for name, stored in part.columns.items():
        match stored:
            case Plain():
                found[name] = files[stored.file].get(stored.column, 0)
            case Slices():
                own = files[stored.file]
                index = own.get(stored.start, 0) + own.get(stored.length, 0)
                found[name] = index + part.files[stored.items].size
            case InGroup():
                group = part.groups[stored.group]
                shared = files[group.file].get(group.index, 0) // len(group.values.columns)
                found[name] = shared + column_bytes(data, group.values)[name]
    return found


def dedup_factor(data: OwnFolder, part: Part, name: str) -> float:
    """Rows (for lists: items) per stored one."""
    match part.columns[name]:
        case InGroup(group):
            values = part.groups[group].values
            inner = dedup_factor(data, values, name)
            return inner * part.rows / max(values.rows, 1)
        case Slices(file, _, length, items):
            reader = open_file(data, part.files[file], (length,))
            lengths = reader.take(range(part.rows))[length].batch()
            total = int(np.maximum(lengths, 0).sum())
            return total / max(open_file(data, part.files[items]).rows, 1) if total else 1.0
    return 1.0
