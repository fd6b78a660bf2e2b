"""Numpy files: the first axis is the rows, and many files are read as one long array.

Local files are memory-mapped: a run of rows within one file is a view, and is read from disk when
it is used. The number of maps is bounded, since each takes a file descriptor. From object stores,
only the requested rows are fetched.
"""

from __future__ import annotations

import functools
import io
import math
import os
import struct
import tokenize
import zipfile
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, ClassVar

import numpy as np

from silva.columns import Array, Column, Values
from silva.columns.serial.checks import CannotDecode, check_empty, check_shape, check_values
from silva.errors import SourceError
from silva.io.byte_ranges import BROKEN
from silva.io.file_source import FileSource, files_at
from silva.io.names import check_name
from silva.io.paths import Files, Paths
from silva.io.source import register_source, remembered

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

    @remembered(MAPS_KEPT)
    def _open(self, file: int) -> dict[str, Any]:
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
                raise SourceError(f"{self.describe()}: {name!r} is damaged: {error}") from None
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


_LOCAL_HEADER = 30
"""Bytes of a zip member's header before the name."""
_PIECE = 1 << 20
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,
}
_UNSOUND = (
    *BROKEN, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RuntimeError,
    SyntaxError, AttributeError, struct.error, tokenize.TokenError, zipfile.BadZipFile,
)  # fmt: skip
"""What Python and numpy raise for bytes that are not an archive or array."""


def open_arrays(files: Files, file: int, column: str) -> dict[str, Any]:
    """Read-only arrays by column name; a compressed .npz is decompressed into memory."""
    shown = files.listing.paths[file]
    try:
        with files.open(file) as stream:
            if shown.endswith(".npz"):
                arrays = _open_npz(files, file, stream)
            else:
                arrays = {column: _array(files, file, stream, int(files.listing.sizes[file]))}
    except SourceError:
        raise
    except _UNSOUND as error:
        raise SourceError(f"{shown} cannot be read: {_reason(error)}") from error
    return {name: _check(array, shown, name) for name, array in arrays.items()}


def _open_npz(files: Files, file: int, stream: BinaryIO) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    size = int(files.listing.sizes[file])
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type == zipfile.ZIP_STORED:
                stream.seek(member.header_offset + _LOCAL_HEADER - 4)
                before = struct.unpack("<HH", stream.read(4))
                start = stream.seek(sum(before), os.SEEK_CUR)
                arrays[name] = _array(files, file, stream, min(start + member.file_size, size))
            else:
                with archive.open(member) as packed:
                    arrays[name] = _unpacked(packed)
    return arrays


def _array(files: Files, file: int, stream: BinaryIO, end: int) -> Any:
    """The array whose header starts here, without a copy; it must end by byte `end`."""
    dtype, shape, fortran = _header(stream)
    start = stream.tell()
    if start + math.prod(shape) * dtype.itemsize > end:
        raise ValueError("EOF: the array is longer than the file")
    return files.array(file, dtype, shape, start, fortran)


def decode_npy(data: bytes, shown: str) -> np.ndarray:
    """The array in the bytes of a .npy file; SourceError if there is none of plain values."""
    try:
        return _unpacked(io.BytesIO(data))
    except _UNSOUND as error:
        raise SourceError(f"{shown} cannot be read: {_reason(error)}") from error


def _unpacked(stream: IO[bytes]) -> np.ndarray:
    """An array in memory. Memory grows as bytes arrive, since a header may claim any size."""
    dtype, shape, fortran = _header(stream)
    size, data = math.prod(shape) * dtype.itemsize, bytearray()
    while len(data) < size:
        piece = stream.read(min(size - len(data), _PIECE))
        if not piece:
            raise ValueError("EOF: the array is longer than the file")
        data += piece
    array: np.ndarray = np.ndarray(shape, dtype, data, order="F" if fortran else "C")
    array.flags.writeable = False
    return array


def _header(stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool]:
    """The type and shape of an array, and whether it is in Fortran order."""
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"it is a .npy file of the unknown version {version}")
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if dtype.kind not in "biufcmMSUV" or dtype.subdtype is not None:
        raise ValueError(f"its type {dtype} is not a type of plain values")
    shape = check_shape(shape)
    if not math.prod(shape) * dtype.itemsize:
        check_empty(dtype, shape)
    return dtype, shape, bool(fortran)


def _check(array: Any, shown: str, name: str) -> Any:
    if array.ndim == 0:
        raise SourceError(f"{shown}: {name!r} is a single value, without an axis of rows")
    if array.dtype.names is not None:
        raise SourceError(
            f"{shown}: {name!r} has the structured type {array.dtype}: save one array per field"
        )
    return np.asarray(array) if isinstance(array, np.memmap) else array


def _reason(error: BaseException) -> str:
    text = str(error)
    if "allow_pickle" in text or "pickled" in text:
        return "it holds Python objects, which would have to be unpickled, or is not a .npy file"
    if "mmap" in text or "reshape" in text or "EOF" in text:
        return f"it is truncated ({text})"
    return text
