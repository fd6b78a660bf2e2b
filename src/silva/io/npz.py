"""The arrays in one .npy or .npz file, mapped into memory wherever they are stored plainly."""

from __future__ import annotations

import os
import struct
import zipfile
from typing import Any, BinaryIO

import numpy as np

from silva.errors import SourceError
from silva.io.paths import Files

_LOCAL_HEADER = 30
"""Bytes of a zip member's header before its name."""


def open_arrays(files: Files, file: int, column: str) -> dict[str, Any]:
    """Read-only arrays by column name; a compressed .npz is decompressed into memory."""
    shown = files.listing.paths[file]
    try:
        with files.open(file) as stream:
            if shown.endswith(".npz"):
                arrays = _open_npz(files, file, stream)
            else:
                arrays = {column: _array(files, file, stream)}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{shown} cannot be read: {_reason(error)}") from error
    return {name: _check(array, shown, name) for name, array in arrays.items()}


def _open_npz(files: Files, file: int, stream: BinaryIO) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type == zipfile.ZIP_STORED:
                stream.seek(member.header_offset + _LOCAL_HEADER - 4)
                before = struct.unpack("<HH", stream.read(4))
                stream.seek(sum(before), os.SEEK_CUR)
                arrays[name] = _array(files, file, stream)
            else:
                with archive.open(member) as packed:
                    arrays[name] = np.lib.format.read_array(packed, allow_pickle=False)
                    arrays[name].flags.writeable = False
    return arrays


def _array(files: Files, file: int, stream: BinaryIO) -> Any:
    """The array whose header begins here, without a copy."""
    version = np.lib.format.read_magic(stream)
    read: Any = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    return files.array(file, dtype, shape, stream.tell(), fortran)


def _check(array: Any, shown: str, name: str) -> Any:
    if array.ndim == 0:
        raise SourceError(f"{shown}: {name!r} is a single value; the first axis must be the rows")
    if array.dtype.names is not None:
        raise SourceError(
            f"{shown}: {name!r} has the structured type {array.dtype}; save one array a field"
        )
    return np.asarray(array) if isinstance(array, np.memmap) else array


def _reason(error: Exception) -> str:
    text = str(error)
    if "allow_pickle" in text or "pickled" in text:
        return "it holds Python objects, which would have to be unpickled, or is not a .npy file"
    if "mmap" in text or "reshape" in text or "EOF" in text:
        return f"it is truncated ({text})"
    return text
