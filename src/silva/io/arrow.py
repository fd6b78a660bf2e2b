"""Arrow IPC files and streams, memory-mapped.

In a file every record batch is a unit. A stream has no table of contents: it is one unit, in which
batches are passed over by their headers alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from silva.columns import Column
from silva.errors import SourceError
from silva.io.batches import empty_runs, leaf_types, runs, short_type, top_fields
from silva.io.paths import Files, Paths
from silva.io.storage import files_at
from silva.io.travel import Travels

_MAGIC = b"ARROW1"


@dataclass(frozen=True, eq=False)
class Layout:
    """Which unit is which record batch."""

    schema: Any
    files: np.ndarray
    batches: np.ndarray
    """-1 for the whole of a stream."""
    rows: np.ndarray
    """-1 where not known."""


@dataclass(frozen=True)
class ArrowFiles(Travels):
    access: ClassVar[Literal["chunked"]] = "chunked"
    replays: ClassVar[bool] = False
    carried: ClassVar[tuple[str, ...]] = ("_layout",)
    files: Files

    @functools.cached_property
    def _layout(self) -> Layout:
        schema: Any = None
        units: list[tuple[int, int, int]] = []
        for file, path in enumerate(self.files.listing.paths):
            with self.files.open_arrow(file, mapped=True) as stream:
                reader, is_file = _reader(stream, path)
                schema = reader.schema if schema is None else schema
                if not reader.schema.equals(schema):
                    raise SourceError(
                        f"{path} has another schema than {self.files.listing.paths[0]}:\n"
                        f"{reader.schema.to_string()}\ninstead of\n{schema.to_string()}"
                    )
                counts = _batch_rows(stream, reader, path) if is_file else [-1]
                units += [(file, i if is_file else -1, n) for i, n in enumerate(counts)]
        table = np.array(units, dtype=np.int64).reshape(-1, 3)
        return Layout(schema, table[:, 0], table[:, 1], table[:, 2])

    def columns(self) -> tuple[str, ...]:
        return tuple(leaf_types(self._layout.schema or ()))

    def types(self) -> dict[str, str]:
        leaves = leaf_types(self._layout.schema or ())
        return {name: short_type(kind) for name, kind in leaves.items()}

    def describe(self) -> str:
        return f"arrow {self.files.describe()}"

    def fingerprint(self) -> str:
        return f"arrow:{self.files.fingerprint()}"

    def length(self) -> int | None:
        rows = self.unit_rows()
        return None if rows is None else int(rows.sum())

    def units(self) -> int:
        return len(self._layout.files)

    def unit_rows(self) -> np.ndarray | None:
        return None if (self._layout.rows < 0).any() else self._layout.rows

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        file, place = int(self._layout.files[unit]), int(self._layout.batches[unit])
        fields = top_fields(self._layout.schema, columns)
        path = self.files.listing.paths[file]
        with self.files.open_arrow(file, mapped=True) as stream:
            reader, _ = _reader(stream, path, fields)
            for batch in _batches(reader, place, path):
                if batch.num_rows <= start:
                    start -= batch.num_rows
                    continue
                if columns:
                    yield from runs(batch, columns, start)
                else:
                    yield from empty_runs(batch.num_rows - start)
                start = 0


def _reader(stream: Any, path: str, fields: list[int] | None = None) -> tuple[Any, bool]:
    """A reader of some of the columns, and whether it can go to any batch."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(included_fields=fields or [], use_threads=False)
    try:
        stream.seek(0)
        is_file = stream.read(len(_MAGIC)) == _MAGIC
        stream.seek(0)
        opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
        return opener(stream, options=options), is_file
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from error


def _batch_rows(stream: Any, reader: Any, path: str) -> list[int]:
    """Rows of each batch: only the first column is touched, in case batches are compressed."""
    narrow, _ = _reader(stream, path, [0] if len(reader.schema) else None)
    return [_get(narrow, i, path).num_rows for i in range(narrow.num_record_batches)]


def _get(reader: Any, place: int, path: str) -> Any:
    import pyarrow as pa

    try:
        return reader.get_batch(place)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from error


def _batches(reader: Any, place: int, path: str) -> Iterator[Any]:
    import pyarrow as pa

    if place >= 0:
        yield _get(reader, place, path)
        return
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise _broken(path, error) from error
        yield batch


def _broken(path: str, error: Exception) -> SourceError:
    return SourceError(f"{path} is truncated or not an Arrow IPC file: {error}")


def read_arrow(paths: Paths) -> ArrowFiles:
    """Rows of Arrow IPC files or streams (also known as Feather v2)."""
    return ArrowFiles(files_at(paths, (".arrow", ".feather", ".ipc", ".arrows")))
