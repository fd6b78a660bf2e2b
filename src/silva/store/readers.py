"""Readers of parts that stay open, for the next rows of the same fragment.

A reader of Lance serves one thread at a time, so each is lent to who reads and taken back.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from silva.columns import Column
from silva.errors import TableError
from silva.store.layout import Part, all_files
from silva.store.rows import PartReader

_HELD = 256
"""Parts whose readers are kept."""


_DENSE = 32
"""Rows that Lance reads in a run in the time of one that it picks (zstd, 8 to 50 bytes a row: 12 to
33 M rows/s in a run; picked, 16,384 of 400,000 rows: 0.4 M rows/s)."""


class Readers:
    """Reads rows of parts. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: OrderedDict[str, list[PartReader]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, part: Part, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
        """The rows of a part at these positions, in this order."""
        name = " ".join(file.name for file in all_files(part))
        reader = self._lend(name) or PartReader(self._folder, part)
        try:
            found = _read(reader, rows, columns)
        except (OSError, RuntimeError, ValueError) as error:
            self._check_files(part, error)
            raise
        self._take_back(name, reader)
        return found

    def _check_files(self, part: Part, error: Exception) -> None:
        for file in all_files(part):
            if not (self._folder / file.name).exists():
                raise TableError(
                    f"{str(self._folder / file.name)!r} is gone: its version was collected by "
                    "gc(versions=…) while it was read, or somebody removed it"
                ) from error

    def _lend(self, name: str) -> PartReader | None:
        with self._lock:
            idle = self._idle.get(name)
            return idle.pop() if idle else None

    def _take_back(self, name: str, reader: PartReader) -> None:
        with self._lock:
            self._idle.setdefault(name, []).append(reader)
            self._idle.move_to_end(name)
            if len(self._idle) > _HELD:
                self._idle.popitem(last=False)


def _read(reader: PartReader, rows: np.ndarray, columns: Sequence[str]) -> dict[str, Column]:
    """Rows by position; the whole run that they lie in, where they are many of it."""
    if len(rows) < 2:
        return reader.read(rows, columns)
    first, last = int(rows.min()), int(rows.max())
    count = last - first + 1
    if count == len(rows) or count > _DENSE * len(rows):
        return reader.read(rows, columns)
    run = reader.read(np.arange(first, last + 1), columns)
    return {name: column.take(rows - first) for name, column in run.items()}
