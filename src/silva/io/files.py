"""Whole files: one row per file, whose bytes are read only if they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from silva.columns import Column, Values
from silva.io.file_source import FileSource, files_at
from silva.io.paths import Files, Paths
from silva.io.source import register_source


@register_source("files")
@dataclass(frozen=True)
class WholeFiles(FileSource):
    costly: ClassVar[tuple[str, ...]] = ("bytes",)
    """Read after the filters, so never for rows that a filter drops."""
    files: Files

    @property
    def reads_at_once(self) -> bool:
        return self.files.reads_at_once

    def columns(self) -> tuple[str, ...]:
        return ("path", "bytes")

    def types(self) -> dict[str, str]:
        return {"path": "str", "bytes": "bytes"}

    def length(self) -> int:
        return len(self.files.listing)

    def file_of(self, row: int) -> str | None:
        """The path of a row, by which people know it; for errors."""
        paths = self.files.listing.paths
        return paths[row] if row < len(paths) else None

    def row_bytes(self) -> dict[str, float]:
        """Average bytes per row and column, from the listing alone."""
        listing = self.files.listing
        paths = sum(map(len, listing.paths)) / max(len(listing), 1)
        return {"path": paths, "bytes": float(listing.sizes.mean()) if len(listing) else 0.0}

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        places = rows.tolist()
        out: dict[str, Column] = {}
        for name in columns:
            if name == "path":
                paths = self.files.listing.paths
                out[name] = Values([paths[i] for i in places])
            else:
                out[name] = Values(self.files.read(places))
        return out


def read_files(paths: Paths) -> WholeFiles:
    """Rows of `path` and `bytes`, in bytewise order of the paths."""
    return WholeFiles(files_at(paths))
