"""CSV: types are inferred once, from the first block of the first file, and then fixed.

A quoted field may hold a newline, and whether one does can only be known by reading from the start
of the file. So by default a file is one unit that is streamed (and replayed on resume): right for
every CSV file. `quoted_newlines=False` is the user's word that no field holds a newline: files are
then cut into byte ranges, which are read in parallel and shuffled finely, and a line whose quotes
do not close is an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column
from silva.errors import PlanError, SourceError
from silva.io.batches import empty_runs, runs, short_type
from silva.io.csv_parse import (
    Dialect,
    check_quotes,
    first_record,
    header_of,
    parse,
    stream_batches,
    type_of,
)
from silva.io.names import chosen
from silva.io.paths import Paths
from silva.io.ranges import LineUnits, check_unit_bytes, plain_stream
from silva.io.storage import files_at
from silva.io.travel import Travels


@dataclass(frozen=True)
class CsvFiles(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    carried: ClassVar[tuple[str, ...]] = ("_all",)
    ranges: LineUnits
    dialect: Dialect
    given: tuple[str, ...] | None
    """Columns chosen by the user."""
    declared: tuple[tuple[str, str], ...]
    """Types that the user gave."""
    replays: bool
    """True where each file is one unit, streamed."""

    @functools.cached_property
    def _all(self) -> dict[str, Any]:
        """The Arrow type of every column in the files, in order."""
        listing, types = self.ranges.files.listing, {n: type_of(t) for n, t in self.declared}
        for file in np.flatnonzero(listing.sizes).tolist():
            with self.ranges.files.open_arrow(file) as stream:
                found = header_of(stream, listing.paths[file], self.dialect, types)
            for name in (*types, *(self.given or ())):
                if name not in found:
                    raise SourceError(
                        f"{listing.paths[file]} has no column {name!r}; it has: {', '.join(found)}"
                    )
            return found
        return {name: types.get(name, type_of("str")) for name in self.given or tuple(types)}

    def columns(self) -> tuple[str, ...]:
        found = tuple(self._all)  # also says if a chosen column is not there
        return found if self.given is None else self.given

    def types(self) -> dict[str, str]:
        return {name: short_type(self._all[name]) for name in self.columns()}

    def describe(self) -> str:
        return f"csv {self.ranges.files.describe()}"

    def fingerprint(self) -> str:
        settings = f"{self.dialect}:{self.declared}:{self.replays}"
        return f"csv:{settings}:{self.ranges.fingerprint()}"

    def length(self) -> None:
        return None

    def units(self) -> int:
        return len(self.ranges.files.listing) if self.replays else self.ranges.count()

    def unit_rows(self) -> None:
        return None

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        batches = self._stream(unit, columns) if self.replays else self._range(unit, columns)
        for batch in batches:
            if batch.num_rows <= start:
                start -= batch.num_rows
                continue
            if columns:
                yield from runs(batch, columns, start)
            else:
                yield from empty_runs(batch.num_rows - start)
            start = 0

    def _stream(self, file: int, columns: tuple[str, ...]) -> Iterator[Any]:
        if not self.ranges.files.listing.sizes[file]:
            return
        path = self.ranges.files.listing.paths[file]
        self._names(file)
        with self.ranges.files.open_arrow(file) as stream:
            yield from stream_batches(stream, path, self.dialect, self._all, columns)

    def _range(self, unit: int, columns: tuple[str, ...]) -> Iterator[Any]:
        file, _ = self.ranges.place(unit)
        path = self.ranges.files.listing.paths[file]
        names = self._names(file)
        for offset, data in self.ranges.pieces(unit):
            check_quotes(data, path, offset)
            if offset == 0 and self.dialect.header:
                data = data.lstrip(b"\r\n")
                data = data[data.find(b"\n") + 1 or len(data) :]
            if data and (len(names) == 1 or not data.isspace()):
                yield parse(data, path, self.dialect, names, self._all, columns)

    @functools.cached_property
    def _names(self) -> Callable[[int], tuple[str, ...]]:
        return functools.lru_cache(maxsize=1024)(self._own_names)

    def _own_names(self, file: int) -> tuple[str, ...]:
        """The names in the order of this file, which must be those of the first file."""
        path = self.ranges.files.listing.paths[file]
        with self.ranges.files.open(file) as stream, plain_stream(stream, path) as plain:
            names = first_record(plain, path, self.dialect)
        if set(names) != set(self._all):
            raise SourceError(
                f"{path} has other columns than the first file: {', '.join(names)} instead of "
                f"{', '.join(self._all)}"
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
        raise PlanError(f"delimiter is a single character, not {delimiter!r}")
    check_unit_bytes(unit_bytes)
    declared = tuple((types or {}).items())
    for _, kind in declared:
        type_of(kind)
    files = files_at(paths, (".csv", ".tsv", ".csv.gz", ".tsv.gz"))
    return CsvFiles(
        LineUnits(files, unit_bytes),
        Dialect(delimiter, header),
        chosen(columns),
        declared,
        quoted_newlines,
    )
