"""Measured costs of earlier runs, kept by fingerprint: a pipeline that has run before is planned
before its first row.

There is one small JSON file per step, in `$SILVA_PROFILES` or in the user's cache folder. Only
speed depends on them: a file that is missing, damaged or cannot be written is measured again."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import msgspec

from silva.cost.bytes_fit import Line
from silva.cost.costs import Cost
from silva.folders import OwnFolder, profiles_folder

_VERSION = 1
"""The version of the file format."""
_MOST_FILES = 4096
"""Steps that are known, at most: those of hundreds of pipelines, in a few megabytes."""
_MOST_BYTES = 1 << 20
"""The largest size of a file: some are written by others, and one has a few hundred bytes for each
column."""
_WEIGHT_ROWS = 10_000
"""The history of a step counts as at most so many rows, so that new rows soon outweigh it."""


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Amount = Annotated[float, msgspec.Meta(ge=0, lt=1e30)]


class _Entry(msgspec.Struct):
    """The contents of a file; see `Cost`."""

    rows: _Count
    kept: _Count
    seconds: _Amount
    cpu: _Amount
    columns: dict[str, _Count]
    operators: dict[str, tuple[_Amount, _Count, _Count]]
    by_size: tuple[_Amount, _Amount, _Amount, _Amount, _Amount]
    grows: tuple[_Amount, _Amount, _Amount, _Amount, _Amount]
    disk: _Count
    network: _Count
    moved: _Count
    version: int = _VERSION
    """Files of silva 0.1 do not have it, nor what follows."""
    squares: _Amount = 0.0
    by_block: tuple[_Amount, _Amount, _Amount, _Amount, _Amount] = (0.0, 0.0, 0.0, 0.0, 0.0)


def _decoded(data: bytes) -> Cost:
    """The cost in a file; raises a ValueError for a damaged file."""
    entry = msgspec.json.decode(data, type=_Entry)
    if entry.version != _VERSION:
        raise ValueError(f"costs in format {entry.version}, not {_VERSION}")
    found = msgspec.structs.asdict(entry)
    del found["version"]
    lines = {name: _line(found[name]) for name in ("by_size", "grows", "by_block")}
    return Cost(**{**found, **lines})


def _line(sums: tuple[float, ...]) -> Line:
    """A line from its sums; raises a ValueError if it could not be divided by its rows or bytes."""
    line = Line(*sums)
    least = sys.float_info.epsilon
    if (line.rows < least and any(line)) or 0 < line.x < least:
        raise ValueError(f"{line} is the sum of no blocks")
    return line


class Book:
    """The costs of earlier runs, in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Book(Path(folder))
    ...     book.put("f00d", Cost(rows=100, kept=50, seconds=2.0, cpu=1.0))
    ...     Book(Path(folder)).get("f00d").selectivity
    0.5
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = OwnFolder(folder or profiles_folder())

    def get(self, key: str) -> Cost | None:
        """The cost of a step; None if it is not known, or its file is damaged."""
        try:
            return _decoded(self._folder.read(f"{key}.json", _MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None

    def put(self, key: str, cost: Cost) -> None:
        """Saves a cost, in place of an earlier one."""
        share = min(1.0, _WEIGHT_ROWS / max(cost.rows, 1))
        data = {
            "version": _VERSION,
            "rows": max(round(cost.rows * share), 1),
            "kept": round(cost.kept * share),
            "seconds": cost.seconds * share,
            "cpu": cost.cpu * share,
            "columns": {name: round(n * share) for name, n in cost.columns.items()},
            "operators": cost.operators,
            "by_size": cost.by_size.scaled(share),
            "grows": cost.grows.scaled(share),
            "disk": round(cost.disk * share),
            "network": round(cost.network * share),
            "moved": round(cost.moved * share),
            "squares": cost.squares * share,
            "by_block": cost.by_block.scaled(share),
        }
        with contextlib.suppress(OSError):
            aside = f"{os.getpid()}-{threading.get_ident()}-{time.time_ns()}.tmp"
            text = json.dumps(data).encode()
            self._folder.write(f"{key}.json", text, aside, replace=True, sync=False)

    def tidy(self) -> None:
        """Removes the oldest files, if there are too many."""
        with contextlib.suppress(OSError):
            if len(self._folder.entries()) <= _MOST_FILES:  # without a look at each of them
                return
            found = [
                e for e in self._folder.entries(sizes=True) if not e.is_dir(follow_symlinks=False)
            ]
            found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
            for entry in found[: max(len(found) - _MOST_FILES, 0)]:
                self._folder.remove(entry.name)
