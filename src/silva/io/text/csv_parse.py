"""Parses CSV text with pyarrow, always with types that are known beforehand."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from silva.errors import PlanError, SourceError
from silva.io.byte_ranges import BROKEN

BLOCK = 4 << 20
"""Bytes that are parsed at once; every record must fit."""
_LOOK = 1 << 20
"""Bytes from which types are inferred."""
_CODECS = {".gz": "gzip", ".bz2": "bz2"}


@dataclass(frozen=True)
class Dialect:
    delimiter: str
    header: bool


def type_of(name: str) -> Any:
    """The Arrow type for a short name like `int64`, `float32`, `str`, `bool`."""
    import pyarrow as pa

    try:
        return pa.type_for_alias({"str": "string", "bytes": "binary"}.get(name, name))
    except (ValueError, AttributeError, TypeError) as error:
        raise PlanError(f"{name!r} is not a type: use int64, float32, str, bool, …") from error


def header_of(stream: Any, path: str, dialect: Dialect, types: Mapping[str, Any]) -> dict[str, Any]:
    """The columns and types of a file, inferred from its first block unless `types` has them."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    with _naming(path):
        convert = pacsv.ConvertOptions(column_types=dict(types))
        schema = _reader(stream, path, dialect, _LOOK, convert).schema
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise SourceError(f"{path} has two columns called {twice!r}: rename one of them")
    return {
        field.name: pa.string() if pa.types.is_null(field.type) else field.type for field in schema
    }


def first_record(stream: BinaryIO, path: str, dialect: Dialect) -> tuple[str, ...]:
    """The names of a file's columns, without inferring any type."""
    with _naming(path):
        text = io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="")
        rows = csv.reader(text, delimiter=dialect.delimiter)
        first = next((row for row in rows if row), [])
    return tuple(first) if dialect.header else tuple(f"f{i}" for i in range(len(first)))


def stream_batches(
    stream: Any, path: str, dialect: Dialect, types: Mapping[str, Any], columns: tuple[str, ...]
) -> Iterator[Any]:
    """Record batches of a whole file; a quoted field may hold newlines."""
    convert = _convert_options(types, columns)
    with _naming(path):
        yield from _reader(stream, path, dialect, BLOCK, convert, len(types))


def parse(
    data: bytes,
    path: str,
    dialect: Dialect,
    names: tuple[str, ...],
    types: Mapping[str, Any],
    columns: tuple[str, ...],
) -> Any:
    """A record batch of whole lines without a header."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    with _naming(path):
        table = pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
            _parse_options(dialect, len(names)),
            _convert_options(types, columns),
        )
    return table.combine_chunks().to_batches()[0]


def check_quotes(data: bytes, path: str, offset: int) -> None:
    """Checks that every line closes its quotes, so that no field holds a newline."""
    if b'"' not in data:
        return
    characters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(characters == ord("\n"))
    before = np.searchsorted(np.flatnonzero(characters == ord('"')), ends)
    odd = np.flatnonzero(before % 2)
    if len(odd):
        start = offset + (int(ends[odd[0] - 1]) + 1 if odd[0] else 0)
        raise SourceError(
            f"{path}: the line at byte {start:,} has a quote that does not close, so a field may "
            "hold a newline. Read with quoted_newlines=True."
        )


def _reader(
    stream: Any, path: str, dialect: Dialect, block: int, convert: Any, columns: int = 2
) -> Any:
    """A reader of record batches from a whole file, which may be compressed."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    codec = next((codec for suffix, codec in _CODECS.items() if path.endswith(suffix)), None)
    if codec is not None:
        stream = pa.CompressedInputStream(stream, codec)
    read = pacsv.ReadOptions(
        block_size=block, autogenerate_column_names=not dialect.header, use_threads=False
    )
    return pacsv.open_csv(stream, read, _parse_options(dialect, columns), convert)


def _parse_options(dialect: Dialect, columns: int) -> Any:
    import pyarrow.csv as pacsv

    return pacsv.ParseOptions(
        delimiter=dialect.delimiter,
        newlines_in_values=True,
        ignore_empty_lines=columns > 1,  # with a single column, an empty line is a row
    )


def _convert_options(types: Mapping[str, Any], columns: tuple[str, ...]) -> Any:
    import pyarrow.csv as pacsv

    counted = columns or tuple(types)[:1]  # one column is enough to count the rows
    return pacsv.ConvertOptions(column_types=dict(types), include_columns=list(counted))


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turns what parsers raise into a `SourceError` that names the file, and a cure where known."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, csv.Error, *BROKEN) as error:
        raise SourceError(f"{path} cannot be read as CSV: {error}.{_hint(str(error))}") from error


def _hint(error: str) -> str:
    if "conversion error" in error:
        return (
            ' Types were inferred from the first block of the first file; say types={"…": "…"} '
            "for this column."
        )
    if "Expected" in error and "columns" in error:
        return (
            " To treat such lines as rows that fail: sv.read_lines(…).derive(a function that "
            "splits a line and raises) with loader(on_error=sv.Skip())."
        )
    if "straddling" in error:
        return f" A single record is longer than {BLOCK:,} bytes: is a quote left open?"
    return ""
