"""Parquet: a unit is a row group; only the requested columns are read from disk.

Footers are read once, by a few threads, and hold the number of rows in each unit. Units are decoded
without Arrow's own threads, since the engine opens several at once. Files must have the same
columns. If a type differs from that of the first file, rows are cast to it, and a value that does
not fit is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column
from silva.errors import SourceError
from silva.io.arrow_batches import empty_runs, leaf_types, run_rows, runs, short_types
from silva.io.conditions import Condition
from silva.io.file_source import FileSource, files_at, naming_file
from silva.io.names import check_columns, chosen
from silva.io.paths import Files, Paths
from silva.io.source import register_source, remembered

FOOTER_THREADS = 8
FOOTERS_KEPT = 64
"""The most footers kept in memory; a wide table has footers of megabytes."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The file, the row group and the number of rows of each unit."""

    types: dict[str, Any]
    """The Arrow types of the columns in the first file."""
    files: np.ndarray
    groups: np.ndarray
    rows: np.ndarray


@register_source("parquet")
@dataclass(frozen=True)
class Parquet(FileSource):
    carried: ClassVar[tuple[str, ...]] = ("_layout",)
    files: Files
    given: tuple[str, ...] | None
    """The columns that the user chose; a struct means all its fields."""
    read_as: tuple[tuple[str, Any], ...] = ()
    """Pairs (column, Arrow type) of columns that are cast to another type."""

    def reading_as(self, types: dict[str, Any]) -> Parquet:
        """The same files with other types of columns; footers are not read again."""
        made = replace(self, read_as=tuple(types.items()))
        made.__dict__["_footer"] = self._footer
        return made

    @remembered(FOOTERS_KEPT)
    def _footer(self, file: int) -> Any:
        import pyarrow.parquet as pq

        with self._naming(file), self.files.open_arrow(file) as stream:
            return pq.read_metadata(stream)

    @functools.cached_property
    def _layout(self) -> RowGroups:
        paths = self.files.listing.paths
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(paths)), "silva-footers") as pool:
            looks = list(pool.map(self._look, range(len(paths))))
        types = looks[0][0]
        for path, (other, _) in zip(paths, looks, strict=True):
            _check_types(path, other, paths[0], types)
        counts = [len(rows) for _, rows in looks]
        return RowGroups(
            types | dict(self.read_as),
            np.repeat(np.arange(len(paths)), counts),
            np.array([i for count in counts for i in range(count)], dtype=np.int64),
            np.array([n for _, rows in looks for n in rows], dtype=np.int64),
        )

    def _look(self, file: int) -> tuple[dict[str, Any], list[int]]:
        """The columns and the row groups of a file."""
        footer = self._footer(file)
        types = leaf_types(footer.schema.to_arrow_schema())
        if self.given is not None:
            types = _choose(types, self.given, self.files.listing.paths[file])
        return types, [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    def columns(self) -> tuple[str, ...]:
        return tuple(self._layout.types)

    def types(self) -> dict[str, str]:
        return short_types(self._layout.types)

    def length(self) -> int:
        return int(self._layout.rows.sum())

    def units(self) -> int:
        return len(self._layout.rows)

    def unit_rows(self) -> np.ndarray:
        return self._layout.rows

    def may_hold(self, unit: int, conditions: tuple[Condition, ...]) -> bool:
        """Whether the row group can hold a row that meets all conditions, by its statistics."""
        file, group = int(self._layout.files[unit]), int(self._layout.groups[unit])
        footer = self._footer(file)
        own = leaf_types(footer.schema.to_arrow_schema())
        row_group = footer.row_group(group)
        places = {row_group.column(i).path_in_schema: i for i in range(row_group.num_columns)}
        for condition in conditions:
            name = condition.column
            if name not in places or own.get(name) != self._layout.types.get(name):
                continue
            statistics = row_group.column(places[name]).statistics
            if statistics is None or not statistics.has_min_max:
                continue
            if not condition.may_hold(statistics.min, statistics.max):
                return False
        return True

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        file, group = int(self._layout.files[unit]), int(self._layout.groups[unit])
        count = int(self._layout.rows[unit])
        if not columns:
            yield from empty_runs(count - start)
        elif start < count:
            yield from runs(self._batches(file, group, columns), start, columns)

    def _batches(self, file: int, group: int, columns: tuple[str, ...]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        footer = self._footer(file)
        own = leaf_types(footer.schema.to_arrow_schema())
        cast = {n: (own[n], t) for n in columns if own[n] != (t := self._layout.types[n])}
        ranges = _byte_ranges(footer.row_group(group), columns)
        with self._naming(file), self.files.open_arrow(file, ranges=ranges) as stream:
            reader = pq.ParquetFile(stream, metadata=footer, pre_buffer=True)
            for batch in reader.iter_batches(
                batch_size=_batch_rows(footer.row_group(group), columns),
                row_groups=[group],
                columns=list(columns),
                use_threads=False,
            ):
                yield self._cast(batch, cast, file) if cast else batch

    def _cast(self, batch: Any, types: dict[str, tuple[Any, Any]], file: int) -> Any:
        """The batch with these leaves in other types; structs are flattened on the way."""
        import pyarrow as pa

        table = pa.Table.from_batches([batch])
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        for i, name in enumerate(table.schema.names):
            if name in types:
                own, wanted = types[name]
                try:
                    table = table.set_column(i, name, table.column(i).cast(wanted))
                except pa.ArrowException as error:
                    paths = self.files.listing.paths
                    raise _conflict(paths[file], name, own, wanted, paths[0], error) from error
        return table.combine_chunks().to_batches()[0]

    def _naming(self, file: int) -> AbstractContextManager[None]:
        return naming_file(self.files.listing.paths[file], "a Parquet file")


def _choose(types: dict[str, Any], given: tuple[str, ...], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in given:
        below = [n for n in types if n == name or n.startswith(name + ".")]
        if not below:
            check_columns((name,), types, path)
        found.update({n: types[n] for n in below})
    return found


def _check_types(path: str, own: dict[str, Any], first: str, types: dict[str, Any]) -> None:
    import pyarrow as pa

    if own.keys() != types.keys():
        missing, extra = sorted(types.keys() - own.keys()), sorted(own.keys() - types.keys())
        raise SourceError(
            f"{path} has other columns than {first} (missing: {missing}, extra: {extra}); "
            "read just the ones they share with columns=[…]"
        )
    for name, kind in own.items():
        if kind != types[name]:
            try:
                pa.nulls(0, kind).cast(types[name])
            except pa.ArrowException as error:
                raise _conflict(path, name, kind, types[name], first, None) from error


def _conflict(
    path: str, name: str, own: Any, wanted: Any, first: str, value: BaseException | None
) -> SourceError:
    """The error for two files that disagree on the type of a column, in general or for a value."""
    why = f"which cannot be cast to {wanted}"
    if value is not None:
        why = f"and not all of its values can be cast to {wanted} ({value})"
    return SourceError(
        f"{path}: column {name!r} is {own}, {why}, its type in {first}: write the files with one "
        "type, or leave the column out with columns=[…]"
    )


def _chunks(group: Any, columns: tuple[str, ...]) -> list[Any]:
    """The metadata of these columns in a row group."""
    wanted = tuple(f"{name}." for name in columns)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(wanted)]


def _byte_ranges(group: Any, columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """The ranges of bytes of these columns in the file."""
    found = []
    for chunk in _chunks(group, columns):
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            start = min(start, chunk.dictionary_page_offset)
        found.append((start, start + chunk.total_compressed_size))
    return found


def _batch_rows(group: Any, columns: tuple[str, ...]) -> int:
    """The number of rows of about one run, by the sizes in the footer."""
    size = sum(map(_decoded_bytes, _chunks(group, columns)))
    return run_rows(group.num_rows, size)


def _decoded_bytes(chunk: Any) -> int:
    """The size of a decoded column: repeated numbers take much less in the file. For text, the size
    in the file is the best estimate."""
    width = _WIDTHS.get(chunk.physical_type)
    return int(chunk.total_uncompressed_size if width is None else chunk.num_values * width)


def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Parquet:
    """Rows of Parquet files; a struct becomes one column a field, with a dotted name."""
    return Parquet(files_at(paths, (".parquet", ".pq")), chosen(columns))
