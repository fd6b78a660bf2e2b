"""Rows by identity, in memory and, where a folder is given, on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silva.physical.stage import Result


class RowStore:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def has(self, ids: np.ndarray) -> np.ndarray:
        return np.zeros(len(ids), bool)

    def add(self, result: Result) -> None: ...

    def read(self, ids: np.ndarray) -> Result:
        raise AssertionError
