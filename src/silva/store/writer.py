"""One piece of work on a table: files are written, and then a version names them."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from silva.errors import SilvaError
from silva.store.dedup import Kind, choose_kinds
from silva.store.folder import Folder, sync
from silva.store.layout import File, Part, under
from silva.store.locks import take
from silva.store.manifest import Deleted, Fragment, relocated
from silva.store.rows import write_part
from silva.store.statistics import statistics

_SAMPLE = 20_000
"""Rows by which it is told how a column is best stored."""


class Writer:
    """A folder of data of its own, held while the work lasts.

    What is not committed when the work ends is removed, and if there is nobody left to remove it,
    by the next `gc`.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._committed = False

    def __enter__(self) -> Writer:
        self._folder.data.mkdir(parents=True, exist_ok=True)
        handle = None
        while handle is None:  # gc may come between the two
            self.name = uuid.uuid4().hex
            self.path = self._folder.data / self.name
            self.path.mkdir()
            handle = take(self.path)
        self._handle = handle
        sync(self._folder.data)
        return self

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Around a commit. Whatever stops it, what was written may be part of a version by then,
        and stays; unless silva itself refused to commit."""
        before, self._committed = self._committed, True
        try:
            yield
        except SilvaError:
            self._committed = before
            raise

    def __exit__(self, *details: object) -> None:
        if not self._committed:
            shutil.rmtree(self.path, ignore_errors=True)
        elif not any(self.path.iterdir()):
            self.path.rmdir()
        os.close(self._handle)

    def part(self, table: Any, kinds: Mapping[str, Kind] | None = None) -> Part:
        """The rows of an Arrow table in files; the first of them tell how much columns repeat, of
        which nobody has said how they are stored."""
        free = table.select([name for name in table.column_names if name not in (kinds or {})])
        chosen = {**choose_kinds(free.slice(0, _SAMPLE)), **(kinds or {})}
        found: Part = relocated(write_part(self.path, table, chosen), self.name)
        return found

    def values(self, part: Part, group: int, table: Any) -> Part:
        """Columns of one value for each distinct row of a group of a part."""
        return under(part, group, relocated(write_part(self.path, table), self.name))

    def fragment(self, table: Any, kinds: Mapping[str, Kind]) -> Fragment:
        part = self.part(table, kinds)
        return Fragment(uuid.uuid4().hex, table.num_rows, (part,), statistics(table))

    def deleted(self, positions: np.ndarray) -> Deleted:
        """Positions of deleted rows, ascending, in a file."""
        name = f"{uuid.uuid4().hex}.npy"
        path = self.path / name
        with open(path, "xb") as file:
            np.save(file, positions.astype(np.uint32), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        sync(self.path)
        return Deleted(File(f"{self.name}/{name}", path.stat().st_size), len(positions))


def read_deleted(data: Path, deleted: Deleted | None) -> np.ndarray:
    """Positions of deleted rows, ascending."""
    if deleted is None:
        return np.empty(0, np.int64)
    contents = (data / deleted.file.name).read_bytes()
    found: np.ndarray = np.load(io.BytesIO(contents), allow_pickle=False)
    return found.astype(np.int64)
