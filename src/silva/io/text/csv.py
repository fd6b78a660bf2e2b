"""CSV: types are inferred once, from the first block of the first file, and then fixed.

A quoted field may hold a newline, and whether one does can only be known by reading from the start
of the file. So by default a file is one unit that is streamed (and replayed on resume): right for
every CSV file. With `quoted_newlines=False` the user states that no field holds a newline: files
are then cut into byte ranges, which are read in parallel and shuffled finely, and an unclosed quote
in a line is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column
from silva.errors import PlanError, SourceError
from silva.io.arrow_batches import runs, short_type
from silva.io.byte_ranges import LineSource, plain_stream
from silva.io.file_source import files_at
from silva.io.names import check_columns, chosen
from silva.io.paths import Files, Paths
from silva.io.source import register_source, remembered
from silva.io.text.csv_parse import (
    Dialect,
    check_quotes,
    first_record,
    header_of,
    parse,
    stream_batches,
    type_of,
)


@register_source("csv")
@dataclass(frozen=True)
class CsvFiles(LineSource):
    carried: ClassVar[tuple[str, ...]] = ("_all",)
    files: Files
    unit_bytes: int | None
    dialect: Dialect
    given: tuple[str, ...] | None
    """The columns that the user chose."""
    declared: tuple[tuple[str, str], ...]
    """The types that the user declared."""
    replays: bool
    """Whether each file is one unit, read as a stream."""

    @functools.cached_property
    def _all(self) -> dict[str, Any]:
        """The Arrow type of every column in the files, in order."""
        listing, types = self.files.listing, {n: type_of(t) for n, t in self.declared}
        for file in np.flatnonzero(listing.sizes).tolist():
            with self.files.open_arrow(file) as stream:
                found = header_of(stream, listing.paths[file], self.dialect, types)
            check_columns((*types, *(self.given or ())), found, listing.paths[file])
            return found
        return {name: types.get(name, type_of("str")) for name in self.given or tuple(types)}

    def columns(self) -> tuple[str, ...]:
        found = tuple(self._all)  # also checks that the chosen columns exist
        return found if self.given is None else self.given

    def types(self) -> dict[str, str]:
        return {name: short_type(self._all[name]) for name in self.columns()}

    def fingerprint(self) -> str:
        used = self.dialect  # as 0.1 wrote it, whatever the class is called now
        dialect = f"Dialect(delimiter={used.delimiter!r}, header={used.header!r})"
        return f"{dialect}:{self.declared}:{self.replays}:{super().fingerprint()}"

    def units(self) -> int:
        return len(self.files.listing) if self.replays else super().units()

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        batches = self._stream(unit, columns) if self.replays else self._range(unit, columns)
        return runs(batches, start, columns)

    def _stream(self, file: int, columns: tuple[str, ...]) -> Iterator[Any]:
        if not self.files.listing.sizes[file]:
            return
        path = self.files.listing.paths[file]
        self._names(file)
        with self.files.open_arrow(file) as stream:
            yield from stream_batches(stream, path, self.dialect, self._all, columns)

    def _range(self, unit: int, columns: tuple[str, ...]) -> Iterator[Any]:
        file, _ = self.place(unit)
        path = self.files.listing.paths[file]
        names = self._names(file)
        for offset, data in self.pieces(unit):
            check_quotes(data, path, offset)
            if offset == 0 and self.dialect.header:
                data = data.lstrip(b"\r\n")
                data = data[data.find(b"\n") + 1 or len(data) :]
            if data and (len(names) == 1 or not data.isspace()):
                yield parse(data, path, self.dialect, names, self._all, columns)

    @remembered(1024)
    def _names(self, file: int) -> tuple[str, ...]:
        """The column names in the order of this file; they must be those of the first file."""
        path = self.files.listing.paths[file]
        with self.files.open(file) as stream, plain_stream(stream, path) as plain:
            names = first_record(plain, path, self.dialect)
        if set(names) != set(self._all):
            raise SourceError(
                f"{path} has other columns than the first file: {', '.join(names)} instead of "
                f"{', '.join(self._all)}. Read files with different columns separately"
            )
        return names


def read_csv(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    delimiter: str = ",",
    header: bool = True,
    quoted_newlines: bool = True,
    unit_bytes: int | None = None,
) -> CsvFiles:
    """Rows of CSV files; without a header the columns are `f0, f1, …`."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\n\r"':
        raise PlanError(f"delimiter must be a single character, not {delimiter!r}")
    declared = tuple((types or {}).items())
    for _, kind in declared:
        type_of(kind)
    files = files_at(paths, (".csv", ".tsv", ".csv.gz", ".tsv.gz"))
    dialect = Dialect(delimiter, header)
    return CsvFiles(files, unit_bytes, dialect, chosen(columns), declared, quoted_newlines)
