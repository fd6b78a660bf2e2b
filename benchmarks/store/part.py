"""A part in a folder of its own, and a pipeline over it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import silva as sv
from silva.plan.node import Source
from silva.store.dedup import Kind
from silva.store.layout import Part, all_files
from silva.store.rows import PartReader, write_part

_LAYOUT = "part.json"


def put(folder: Path, table: Any, kinds: Mapping[str, Kind] | None = None) -> int:
    """Writes a part, and what a reader must know of it; gives the bytes of its files."""
    folder.mkdir(parents=True)
    part = write_part(folder, table, kinds)
    (folder / _LAYOUT).write_bytes(msgspec.json.encode(part))
    return sum(file.size for file in all_files(part))


def layout(folder: Path) -> Part:
    return msgspec.json.decode((folder / _LAYOUT).read_bytes(), type=Part)


def reader(folder: Path) -> PartReader:
    return PartReader(folder, layout(folder))


def rows(folder: str) -> sv.Pipeline:
    """The rows of a part, as a pipeline."""
    return sv.Pipeline(Source(_Rows(folder)))


class _Rows:
    """A part as an indexed source."""

    access = "indexed"
    runs_user_code = False

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @functools.cached_property
    def _part(self) -> Part:
        return layout(Path(self._folder))

    @functools.cached_property
    def _reader(self) -> PartReader:
        return reader(Path(self._folder))

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder}

    def columns(self) -> tuple[str, ...]:
        return tuple(self._part.columns)

    def types(self) -> dict[str, str]:
        return {}

    def describe(self) -> str:
        return "a part"

    def fingerprint(self) -> str:
        return " ".join(file.name for file in all_files(self._part))

    def length(self) -> int:
        return self._part.rows

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Any]:
        return self._reader.read(rows, columns)
