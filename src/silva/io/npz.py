"""The arrays in one .npy or .npz file, mapped into memory wherever they are stored plainly."""

from __future__ import annotations

import os
import struct
import zipfile
from typing import Any

import numpy as np

from silva.errors import SourceError

_LOCAL_HEADER = 30
"""Bytes of a zip member's header before its name."""


def open_arrays(path: str, shown: str, column: str) -> dict[str, np.ndarray]:
    """Read-only arrays by column name; a compressed .npz is decompressed into memory."""
    try:
        if path.endswith(".npz"):
            return {name: _check(array, shown, name) for name, array in _open_npz(path).items()}
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{shown} cannot be read: {_reason(error)}") from error
    return {column: _check(array, shown, column)}


def _open_npz(path: str) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if member.compress_type == zipfile.ZIP_STORED:
                arrays[name] = _map_member(path, member)
            else:
                with archive.open(member) as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
                    arrays[name].flags.writeable = False
    return arrays


def _map_member(path: str, member: zipfile.ZipInfo) -> np.ndarray:
    """An array within a zip file that does not compress it, without a copy."""
    with open(path, "rb") as stream:
        stream.seek(member.header_offset + _LOCAL_HEADER - 4)
        name, extra = struct.unpack("<HH", stream.read(4))
        stream.seek(name + extra, os.SEEK_CUR)
        version = np.lib.format.read_magic(stream)
        read: Any = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.hasobject:
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        if 0 in shape:
            return np.empty(shape, dtype)
        order: Any = "F" if fortran else "C"
        return np.memmap(path, dtype, "r", stream.tell(), shape, order)


def _check(array: np.ndarray, shown: str, name: str) -> np.ndarray:
    if array.ndim == 0:
        raise SourceError(f"{shown}: {name!r} is a single value; the first axis must be the rows")
    if array.dtype.names is not None:
        raise SourceError(
            f"{shown}: {name!r} has the structured type {array.dtype}; save one array a field"
        )
    return np.asarray(array)


def _reason(error: Exception) -> str:
    text = str(error)
    if "allow_pickle" in text or "pickled" in text:
        return "it holds Python objects, which would have to be unpickled, or is not a .npy file"
    if "mmap" in text or "reshape" in text or "EOF" in text:
        return f"it is truncated ({text})"
    return text
