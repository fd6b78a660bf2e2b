"""Numpy files: the first axis is the rows, and many files are read as one long array.

Local files are memory-mapped: a run of rows within one file is a view, and is read from disk when
it is used. The number of maps is bounded, since each takes a file descriptor. From object stores,
only the requested rows are fetched.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from silva.columns import Array, Column, Values
from silva.columns.serial.checks import CannotDecode, check_values
from silva.errors import SourceError
from silva.io.arrays.npz import open_arrays
from silva.io.file_source import FileSource, files_at
from silva.io.names import check_name
from silva.io.paths import Files, Paths
from silva.io.source import register_source

MAPS_KEPT = 128


@dataclass(frozen=True, eq=False)
class ArrayLayout:
    kinds: dict[str, tuple[np.dtype, tuple[int, ...]]]
    """The type and shape of a row of each column."""
    ends: np.ndarray
    """The number of rows up to and including each file."""


@register_source("npy")
@dataclass(frozen=True)
class NpyFiles(FileSource):
    carried: ClassVar[tuple[str, ...]] = ("_layout",)
    files: Files
    column: str
    """The column name for the array of a .npy file; arrays of a .npz file have names."""

    @functools.cached_property
    def _open(self) -> Any:
        return functools.lru_cache(maxsize=MAPS_KEPT)(self._open_file)

    def _open_file(self, file: int) -> dict[str, Any]:
        return open_arrays(self.files, file, self.column)

    @functools.cached_property
    def _layout(self) -> ArrayLayout:
        first: dict[str, tuple[np.dtype, tuple[int, ...]]] | None = None
        counts = []
        for file, path in enumerate(self.files.listing.paths):
            arrays = self._open(file)
            lengths = {name: len(array) for name, array in arrays.items()}
            if len(set(lengths.values())) > 1:
                raise SourceError(
                    f"{path} holds arrays of different lengths ({lengths}), but all arrays of a "
                    "file are columns of the same rows: save them to separate files"
                )
            kinds = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
            first = kinds if first is None else first
            if kinds != first:
                raise SourceError(
                    f"{path} does not go with {self.files.listing.paths[0]}: its rows are "
                    f"{_show(kinds)} instead of {_show(first)}"
                )
            counts.append(next(iter(lengths.values()), 0))
        return ArrayLayout(first or {}, np.cumsum(counts))

    def columns(self) -> tuple[str, ...]:
        return tuple(self._layout.kinds)

    def types(self) -> dict[str, str]:
        return {
            name: {"U": "str", "S": "bytes"}.get(dtype.kind, dtype.name)
            for name, (dtype, shape) in self._layout.kinds.items()
            if not shape
        }

    def length(self) -> int:
        return int(self._layout.ends[-1])

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        if not columns:
            return {}
        ends = self._layout.ends
        owner = np.searchsorted(ends, rows, side="right")
        local = rows - np.concatenate([[0], ends[:-1]])[owner]
        return {name: self._column(name, self._gather(name, owner, local)) for name in columns}

    def _column(self, name: str, data: np.ndarray) -> Column:
        """Validates booleans and text, which numpy takes from the file unchecked."""
        if data.dtype.kind in "bU":
            try:
                check_values(data)
            except CannotDecode as error:
                raise SourceError(
                    f"{self.files.describe()}: {name!r} is damaged: {error}"
                ) from None
        return Values(data.tolist()) if data.dtype.kind in "US" else Array(data)

    def _gather(self, name: str, owner: np.ndarray, local: np.ndarray) -> np.ndarray:
        dtype, shape = self._layout.kinds[name]
        if not len(local):
            return np.empty((0, *shape), dtype)
        if (owner == owner[0]).all():
            array: np.ndarray = self._open(int(owner[0]))[name]
            first = int(local[0])
            if (np.diff(local) == 1).all():
                return array[first : first + len(local)]
            picked: np.ndarray = array[local]
            return picked
        out = np.empty((len(local), *shape), dtype)
        for file in np.unique(owner).tolist():
            where = np.flatnonzero(owner == file)
            out[where] = self._open(file)[name][local[where]]
        return out


def _show(kinds: dict[str, tuple[np.dtype, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name}: {dtype} {shape}" for name, (dtype, shape) in kinds.items())


def read_npy(paths: Paths, *, column: str = "array") -> NpyFiles:
    """Rows of .npy files (one column, `array`) or .npz files (one column per array)."""
    check_name(column)
    return NpyFiles(files_at(paths, (".npy", ".npz")), column)
