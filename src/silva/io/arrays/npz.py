"""The arrays in one .npy or .npz file, memory-mapped if they are not compressed."""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
from typing import IO, Any, BinaryIO

import numpy as np

from silva.columns.serial.checks import check_empty, check_shape
from silva.errors import SourceError
from silva.io.byte_ranges import BROKEN
from silva.io.paths import Files

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
