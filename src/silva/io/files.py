"""Whole files: one row a file, whose bytes are read only where they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from silva.columns import Column, Values
from silva.io.paths import Files, Paths
from silva.io.storage import files_at
from silva.io.travel import Travels


@dataclass(frozen=True)
class WholeFiles(Travels):
    access: ClassVar[Literal["indexed"]] = "indexed"
    costly: ClassVar[tuple[str, ...]] = ("bytes",)
    """Read late: of rows that a filter drops, not at all."""
    files: Files

    @property
    def reads_at_once(self) -> bool:
        return self.files.reads_at_once

    def columns(self) -> tuple[str, ...]:
        return ("path", "bytes")

    def types(self) -> dict[str, str]:
        return {"path": "str", "bytes": "bytes"}

    def describe(self) -> str:
        return f"files {self.files.describe()}"

    def fingerprint(self) -> str:
        return f"files:{self.files.fingerprint()}"

    def length(self) -> int:
        return len(self.files.listing)

    def row_bytes(self) -> dict[str, float]:
        """Bytes of a row, by column: known from the listing, before any file is opened."""
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
