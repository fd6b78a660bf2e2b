"""Parquet: a unit is a row group; only the columns that are asked for are read from the disk.

Footers are read once, by a few threads, and say how many rows each unit has. Units are decoded
without Arrow's own threads, since the engine opens several at once. Files must have the same
columns; where a type differs from the first file's, the rows are cast to it, and a value that does
not fit is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column
from silva.errors import SourceError
from silva.io.batches import empty_runs, leaf_types, run_rows, runs, short_type
from silva.io.names import chosen
from silva.io.paths import Files, Paths
from silva.io.storage import files_at
from silva.io.travel import Travels
from silva.plan.conditions import Condition

FOOTER_THREADS = 8
FOOTERS_KEPT = 64
"""Footers held for the next row group of the same file; wide tables have footers of megabytes."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}


@dataclass(frozen=True, eq=False)
class Layout:
    """Which unit is which row group."""

    types: dict[str, Any]
    """Arrow types of the columns, by the first file."""
    files: np.ndarray
    groups: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Parquet(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    replays: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ("_layout",)
    files: Files
    given: tuple[str, ...] | None
    """Columns chosen by the user; a struct means all its fields."""

    @functools.cached_property
    def _footer(self) -> Any:
        return functools.lru_cache(maxsize=FOOTERS_KEPT)(self._read_footer)

    def _read_footer(self, file: int) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with self.files.open_arrow(file) as stream:
                return pq.read_metadata(stream)
        except (pa.ArrowException, OSError) as error:
            raise self._broken(file, error) from error

    @functools.cached_property
    def _layout(self) -> Layout:
        paths = self.files.listing.paths
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(paths)), "silva-footers") as pool:
            looks = list(pool.map(self._look, range(len(paths))))
        types = looks[0][0]
        for path, (other, _) in zip(paths, looks, strict=True):
            _check_types(path, other, paths[0], types)
        counts = [len(rows) for _, rows in looks]
        return Layout(
            types,
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
        return {name: short_type(kind) for name, kind in self._layout.types.items()}

    def describe(self) -> str:
        return f"parquet {self.files.describe()}"

    def fingerprint(self) -> str:
        return f"parquet:{self.files.fingerprint()}"

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
            for batch in self._batches(file, group, columns):
                if batch.num_rows <= start:
                    start -= batch.num_rows
                    continue
                yield from runs(batch, columns, start)
                start = 0

    def _batches(self, file: int, group: int, columns: tuple[str, ...]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        footer = self._footer(file)
        own = leaf_types(footer.schema.to_arrow_schema())
        cast = {n: t for n in columns if own[n] != (t := self._layout.types[n])}
        ranges = _byte_ranges(footer.row_group(group), columns)
        with self.files.open_arrow(file, ranges=ranges) as stream:
            try:
                reader = pq.ParquetFile(stream, metadata=footer, pre_buffer=True)
                for batch in reader.iter_batches(
                    batch_size=_batch_rows(footer.row_group(group), columns),
                    row_groups=[group],
                    columns=list(columns),
                    use_threads=False,
                ):
                    yield _cast(batch, cast) if cast else batch
            except (pa.ArrowException, OSError) as error:
                raise self._broken(file, error) from error

    def _broken(self, file: int, error: BaseException) -> SourceError:
        if isinstance(error, SourceError):
            return error
        path = self.files.listing.paths[file]
        return SourceError(f"{path} is truncated, damaged or not a Parquet file: {error}")


def _choose(types: dict[str, Any], given: tuple[str, ...], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in given:
        below = [n for n in types if n == name or n.startswith(name + ".")]
        if not below:
            raise SourceError(f"{path} has no column {name!r}; it has: {', '.join(types)}")
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
                raise SourceError(
                    f"{path}: column {name!r} is {kind}, which cannot become {types[name]} as in "
                    f"{first}"
                ) from error


def _cast(batch: Any, types: dict[str, Any]) -> Any:
    """The batch with these leaves in other types; structs are flattened on the way."""
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for i, name in enumerate(table.schema.names):
        if name in types:
            table = table.set_column(i, name, table.column(i).cast(types[name]))
    return table.combine_chunks().to_batches()[0]


def _chunks(group: Any, columns: tuple[str, ...]) -> list[Any]:
    """What the footer tells of these columns in a row group."""
    wanted = tuple(f"{name}." for name in columns)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(wanted)]


def _byte_ranges(group: Any, columns: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where these columns lie in the file."""
    found = []
    for chunk in _chunks(group, columns):
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset:
            start = min(start, chunk.dictionary_page_offset)
        found.append((start, start + chunk.total_compressed_size))
    return found


def _batch_rows(group: Any, columns: tuple[str, ...]) -> int:
    """Rows of about one run, by the size that the footer gives for these columns."""
    size = sum(map(_decoded_bytes, _chunks(group, columns)))
    return run_rows(group.num_rows, size)


def _decoded_bytes(chunk: Any) -> int:
    """The size of a column once it is decoded: numbers that repeat take much less in the file. Of
    text nothing better is known than what it takes there."""
    width = _WIDTHS.get(chunk.physical_type)
    return int(chunk.total_uncompressed_size if width is None else chunk.num_values * width)


def read_parquet(paths: Paths, *, columns: Sequence[str] | None = None) -> Parquet:
    """Rows of Parquet files; a struct becomes one column a field, with a dotted name."""
    return Parquet(files_at(paths, (".parquet", ".pq")), chosen(columns))
