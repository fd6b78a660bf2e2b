"""Rows in files: written once, read by position.

Numbers lie in a file of packed pages, everything else of one value a row in a Lance file. A list
column has a file of its own for all its items, and the rows say which slice is theirs: items
compress better without the lists around them, are read without being taken apart, and can be shared
between rows. Physical columns are numbered, because Lance allows no dots in names.

Rows that repeat come back as grouped columns, and what they share is read once. Columns of one
group come with one inverse, so that a step that reads several is run once for each distinct row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from silva.columns import Array, Column, Grouped, from_arrow
from silva.columns.codes import codes
from silva.columns.runs import appearance
from silva.store import layout
from silva.store.dedup import Kind, check_kinds
from silva.store.files import FileReader, write_file
from silva.store.layout import File, Group, Part, Plain, Slices, Stored
from silva.store.packing import numbers, packs_well
from silva.store.pages import SUFFIX, PagesReader, write_pages
from silva.store.slices import cut_slices, gather_slices, is_list

_ITEM = "item"
"""The column of a file of items."""
_NUMBERS, _OTHERS = -1, -2
"""The files of columns of one value a row, until it is known how many come before them."""


def write_part(folder: Path, table: Any, kinds: Mapping[str, Kind] | None = None) -> Part:
    """Writes the rows of an Arrow table into new files of `folder`, all of which are on the disk
    when this returns. Columns without a kind are plain."""
    kinds = kinds or {}
    check_kinds(table.schema, kinds)
    writer = _Writer(folder, table.num_rows)
    for name in table.column_names:
        if kinds.get(name) != "grouped":
            writer.add(name, _whole(table.column(name)), kinds.get(name) == "slices")
    for first, index, names in _groups(table, kinds):
        writer.add_group(table.select(names).take(first), index)
    return writer.written(table.column_names)


def _groups(
    table: Any, kinds: Mapping[str, Kind]
) -> list[tuple[np.ndarray, np.ndarray, list[str]]]:
    """First rows, index and names of the grouped columns; those that change together are one."""
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


class _Writer:
    """The columns of a part while they are written; those of one value a row come last."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder = folder
        self._rows = rows
        self._numbers: dict[str, np.ndarray] = {}
        self._others: dict[str, Any] = {}
        self._stored: dict[str, Plain | Slices | layout.Grouped] = {}
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
        self._stored |= dict.fromkeys(values.column_names, layout.Grouped(len(self._groups)))
        self._groups.append(Group(_NUMBERS, place, write_part(self._folder, values)))

    def written(self, names: list[str]) -> Part:
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
            if not isinstance(how, layout.Grouped):
                how = replace(how, file=last[how.file])
            stored[name] = how
        groups = tuple(replace(group, file=last[group.file]) for group in self._groups)
        return Part(self._rows, tuple(self._files), stored, groups)


def _packable(column: Any) -> np.ndarray | None:
    """The values of an Arrow array, if they are numbers that are packed well."""
    values = numbers(from_arrow(column))
    return values if values is not None and packs_well(values) else None


def open_file(path: Path, columns: tuple[str, ...] | None = None) -> PagesReader | FileReader:
    """Some columns of a file, or all of them."""
    return (PagesReader if path.suffix == SUFFIX else FileReader)(path, columns)


class PartReader:
    """Reads rows of a part by their position. Safe to use from several threads."""

    def __init__(self, folder: Path, part: Part) -> None:
        self._folder = folder
        self._part = part
        self._values = [PartReader(folder, group.values) for group in part.groups]
        self._open = functools.lru_cache(maxsize=None)(self._opened)

    def _opened(self, file: int, columns: tuple[str, ...]) -> PagesReader | FileReader:
        return open_file(self._folder / self._part.files[file].name, columns)

    def read(self, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        """The rows at these positions, in this order."""
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
        """What is stored of each row itself, by file and column."""
        wanted: dict[int, dict[str, None]] = {}
        for name in names:
            match self._part.columns[name]:
                case Plain(file, column):
                    wanted.setdefault(file, {})[column] = None
                case Slices(file, start, length, _):
                    wanted.setdefault(file, {}).update({start: None, length: None})
                case layout.Grouped(group):
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
        how = layout.Grouped(number)
        wanted = [name for name in names if self._part.columns[name] == how]
        if not wanted:
            return {}
        group = self._part.groups[number]
        index = _numbers(fixed[group.file, group.index])
        first, inverse = appearance(index)
        values = self._values[number].read(index[first], wanted)
        if len(first) == len(index):
            return values
        return {n: Grouped(_expanded(c), inverse, group.distinct) for n, c in values.items()}

    def _lists(self, how: Slices, fixed: dict[tuple[int, str], Column]) -> Column:
        def items(rows: np.ndarray | range) -> Column:
            return self._open(how.items, (_ITEM,)).take(rows)[_ITEM]

        starts, lengths = fixed[how.file, how.start], fixed[how.file, how.length]
        return gather_slices(items, _numbers(starts), _numbers(lengths))


def _numbers(column: Column) -> np.ndarray:
    assert isinstance(column, Array)
    return column.data


def _expanded(column: Column) -> Column:
    return column.expand() if isinstance(column, Grouped) else column
