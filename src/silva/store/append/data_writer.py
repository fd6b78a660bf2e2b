"""Writes data files of a table, which a version names afterwards, and computes the bounds of their
columns, by which filters skip fragments."""

from __future__ import annotations

import contextlib
import io
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from silva.errors import SilvaError, TableError
from silva.folders import OwnFolder, by_descriptor, telling_full_disk
from silva.store.files.data_files import Checked, DataFile, checksums, damage_as_table_error
from silva.store.files.dedup import choose_kinds
from silva.store.files.part_files import write_part
from silva.store.versions.locks import try_lock_folder
from silva.store.versions.manifest import (
    Bound,
    Bounds,
    Deleted,
    File,
    Fragment,
    Kind,
    Part,
    relocate,
    under,
)
from silva.store.versions.table_folder import UNCHANGED, Folder, as_table_error, sync

_SAMPLE = 20_000
"""Rows that decide how a column is stored."""
_LONGEST = 64
"""Characters of the longest text that is stored as a bound."""


class DataWriter:
    """Writes into a folder of data of its own, which it holds while it is open.

    Files that are not committed are removed at the end, or after a kill by the next `gc`. Files are
    created through the folder's descriptor: they are in it, wherever its name leads later.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._committed = False

    def __enter__(self) -> DataWriter:
        lock = None
        while lock is None:  # gc may remove a new folder before it is held
            self.name = uuid.uuid4().hex
            with self.telling_full_disk(), as_table_error():
                lock = try_lock_folder(self._folder.data.below(self.name), make=True)
        self._lock = lock
        self.path = by_descriptor(lock.handle)
        """The folder's path, for libraries that write files."""
        try:
            with self._folder.data.opened() as data:
                os.fsync(data)
        except BaseException:  # such as Ctrl-C: `with` does not exit what it has not entered
            self.__exit__()
            raise
        return self

    def telling_full_disk(self) -> contextlib.AbstractContextManager[None]:
        """Within this context, the error of a full disk says that the table is unchanged."""
        return telling_full_disk(self._folder.data.below(self.name).path, UNCHANGED)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """A context for a commit. If it is interrupted, the files may belong to a version already,
        so they stay; if silva itself refuses the commit, they go."""
        before, self._committed = self._committed, True
        try:
            yield
        except SilvaError:
            self._committed = before
            raise

    def __exit__(self, *details: object) -> None:
        try:
            if not self._committed or not os.listdir(self._lock.handle):
                with contextlib.suppress(OSError):  # the next `gc` removes it
                    self._folder.data.remove(self.name)
        finally:
            self._lock.close()

    def part(self, table: Any, kinds: Mapping[str, Kind] | None = None) -> Part:
        """Writes the rows of an Arrow table. For columns without a kind, the first rows decide."""
        kinds = kinds or {}
        free = table.select([name for name in table.column_names if name not in kinds])
        return self._write(table, choose_kinds(free.slice(0, _SAMPLE)) | dict(kinds))

    def values(self, part: Part, group: int, table: Any) -> Part:
        """Writes columns with one value for each distinct row of a part's group."""
        return under(part, group, self._write(table, {}))

    def _write(self, table: Any, kinds: Mapping[str, Kind]) -> Part:
        with self.telling_full_disk():
            return relocate(write_part(self.path, table, kinds), self.name)

    def fragment(self, table: Any, kinds: Mapping[str, Kind]) -> Fragment:
        part = self.part(table, kinds)
        return Fragment(uuid.uuid4().hex, table.num_rows, (part,), compute_bounds(table))

    def deleted(self, positions: np.ndarray) -> Deleted:
        """Writes the positions of deleted rows, ascending."""
        name = f"{uuid.uuid4().hex}.npy"
        path = self.path / name
        with self.telling_full_disk():
            with open(path, "xb") as file:
                np.save(file, positions.astype(np.uint32), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            sync(self.path)
        file_ = File(f"{self.name}/{name}", path.stat().st_size, checksums(path))
        return Deleted(file_, len(positions))


def read_deleted(data: OwnFolder, fragment: Fragment) -> np.ndarray:
    """Reads the positions of deleted rows, ascending."""
    if (deleted := fragment.deleted) is None:
        return np.empty(0, np.int64)
    file = DataFile(data, deleted.file)
    with open(file.open(), "rb") as stream:
        Checked().check(stream.fileno(), file, [(0, file.file.size)])
        contents = io.BytesIO(stream.read(file.file.size))
    with damage_as_table_error(lambda: repr(str(file.path))):
        version = np.lib.format.read_magic(contents)
        shape, _, kind = np.lib.format.read_array_header_1_0(contents)
        if version != (1, 0) or kind != np.uint32 or shape != (deleted.count,):
            raise ValueError("it does not hold positions of rows")
        found = np.frombuffer(contents.read(), "<u4").astype(np.int64)
    ascends = len(found) == deleted.count and (np.diff(found) > 0).all()
    if not ascends or found.max(initial=-1) >= fragment.rows:
        raise TableError(f"{str(file.path)!r} is damaged: it names rows that do not exist")
    return found


def compute_bounds(table: Any) -> Bounds:
    """The (least, greatest) values of columns of numbers, times and text that have any.

    >>> import pyarrow as pa
    >>> compute_bounds(pa.table({"x": [3, None, 1], "y": [[1], [2], [3]]}))
    {'x': (1, 3)}
    """
    found = {name: _bounds(table.column(name)) for name in table.column_names}
    return {name: bounds for name, bounds in found.items() if bounds is not None}


def _bounds(column: Any) -> tuple[Bound, Bound] | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, column.type
    is_float = kind in (pa.float32(), pa.float64())
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        column = column.cast(pa.int32() if types.is_date32(kind) else pa.int64())
    elif not (types.is_integer(kind) or is_float or types.is_string(kind)):
        return None
    if is_float:
        column = column.filter(pc.invert(pc.is_nan(column)))  # NaN meets no comparison
    least, greatest = pc.min_max(column).as_py().values()
    if least is None or not all(map(math.isfinite if is_float else _is_short, (least, greatest))):
        return None
    return least, greatest


def _is_short(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= _LONGEST
