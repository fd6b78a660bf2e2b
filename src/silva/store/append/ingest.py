"""Sorts rows by group and time, and cuts them into fragments.

What fits in memory is sorted by (group, time), stably, and cut into fragments, between groups where
possible. Larger inputs are first spread over files by a hash of the group (RecD calls it log
sharding), so that each file can be sorted alone; a file that is still too large is spread again.
Without a group, rows stay in the order in which they came, sorted by time within what fits in
memory.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from silva.errors import TableError
from silva.store.append.data_writer import DataWriter
from silva.store.versions.manifest import Fragment, Schema

MEMORY = 256 << 20
"""Bytes of rows that are sorted at once."""
FRAGMENT_ROWS, FRAGMENT_BYTES = 1 << 20, 256 << 20
_SPREAD = 32
"""Files over which rows are spread."""
_DEEPEST = 3
"""How often rows are spread; a group larger than memory cannot be split by its hash."""


def ingest(
    writer: DataWriter, batches: Iterator[Any], schema: Schema, memory: int = MEMORY
) -> Iterator[tuple[Any, Fragment]]:
    """Yields each fragment with its rows."""
    for table in _sortable(writer, batches, schema, memory, 0):
        for piece in _cut(_sorted(table, schema), schema):
            yield piece, writer.fragment(piece, schema.kinds)


def _sortable(
    writer: DataWriter, batches: Iterator[Any], schema: Schema, memory: int, depth: int
) -> Iterator[Any]:
    """Tables that fit in memory and hold all rows of their groups."""
    import pyarrow as pa

    held: list[Any] = []
    size = 0
    for batch in batches:
        _check_group(batch, schema)
        held.append(batch)
        size += batch.nbytes
        if size < memory:
            continue
        if schema.group is not None and depth < _DEEPEST:
            yield from _spread(writer, held, batches, schema, memory, depth)
            return
        yield pa.concat_tables(held)
        held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _spread(
    writer: DataWriter,
    held: list[Any],
    batches: Iterator[Any],
    schema: Schema,
    memory: int,
    depth: int,
) -> Iterator[Any]:
    assert schema.group is not None
    spread = _Spread(writer, held[0].schema, schema.group, depth)
    try:
        while held:
            spread.add(held.pop(0))
        for batch in batches:
            _check_group(batch, schema)
            spread.add(batch)
    finally:
        spread.close()
    for file in spread.files:
        yield from _sortable(writer, _read_spread(file), schema, memory, depth + 1)
        file.unlink()


class _Spread:
    """Files over which rows are spread by a hash of their group."""

    def __init__(self, writer: DataWriter, schema: Any, group: str, depth: int) -> None:
        import pyarrow as pa

        self._writer, self._group, self._depth = writer, group, depth
        self.files = [writer.path / f"{uuid.uuid4().hex}.arrow" for _ in range(_SPREAD)]
        with writer.telling_full_disk():
            self._open = [file.open("xb") for file in self.files]
            self._streams = [pa.ipc.new_file(file, schema) for file in self._open]

    def add(self, batch: Any) -> None:
        places = group_hashes(batch.column(self._group), self._depth) % np.uint64(_SPREAD)
        for i in np.unique(places).tolist():
            rows = batch.take(np.flatnonzero(places == i))
            with self._writer.telling_full_disk():
                self._streams[i].write_table(rows)

    def close(self) -> None:
        with self._writer.telling_full_disk():
            for stream, file in zip(self._streams, self._open, strict=True):
                with file:
                    stream.close()


def _read_spread(file: Path) -> Iterator[Any]:
    import pyarrow as pa

    with pa.OSFile(str(file)) as stream:
        reader = pa.ipc.open_file(stream)
        for i in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(i)])


def group_hashes(column: Any, salt: int = 0) -> np.ndarray:
    """A hash of each value, the same in every process.

    >>> import pyarrow as pa
    >>> a, b, c = group_hashes(pa.array(["x", "y", "x"])).tolist()
    >>> a == c, a == b
    (True, False)
    """
    import pyarrow as pa

    coded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = coded.dictionary_encode()
    key = salt.to_bytes(8, "little")
    values = [repr(value).encode() for value in coded.dictionary.to_pylist()]
    hashes = b"".join(hashlib.blake2b(v, digest_size=8, key=key).digest() for v in values)
    found: np.ndarray = np.frombuffer(hashes, "<u8")[coded.indices.to_numpy()]
    return found


def _check_group(batch: Any, schema: Schema) -> None:
    if schema.group is not None and batch.column(schema.group).null_count:
        raise TableError(
            f"the group {schema.group!r} of a row is null, but groups keep rows together. Nothing "
            "was appended; fill it, or filter such rows out"
        )


def _sorted(table: Any, schema: Schema) -> Any:
    """The rows sorted by (group, time); rows that are equal in both keep their order."""
    names = [n for n in (schema.group, schema.time) if n is not None]
    if not names:
        return table
    import pyarrow.compute as pc

    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    return table.take(order)


def _cut(table: Any, schema: Schema) -> Iterator[Any]:
    """Pieces of bounded size, cut between groups where possible."""
    count = table.num_rows
    share = FRAGMENT_BYTES * count // max(table.nbytes, 1)
    most = max(min(FRAGMENT_ROWS, share), 1)
    ends = _group_ends(table, schema.group) if count > most else np.empty(0, np.int64)
    start = 0
    while start < count:
        stop = min(start + most, count)
        if stop < count and len(ends):
            before = int(np.searchsorted(ends, stop, side="right")) - 1
            if before >= 0 and ends[before] > start:
                stop = int(ends[before])
        yield table.slice(start, stop - start)
        start = stop


def _group_ends(table: Any, group: str | None) -> np.ndarray:
    import pyarrow.compute as pc

    if group is None:
        return np.empty(0, np.int64)
    column = table.column(group).combine_chunks()
    differs = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
    found: np.ndarray = pc.indices_nonzero(differs).to_numpy().astype(np.int64) + 1
    return found
