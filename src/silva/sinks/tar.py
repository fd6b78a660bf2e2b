"""Tar shards in WebDataset's layout: for each row, members `key.column`.

Bytes are written unchanged, text as UTF-8, integers as digits; a null has no member. Headers hold
neither times nor owners, so that equal rows give equal bytes.
"""

from __future__ import annotations

import tarfile
from typing import Any, BinaryIO

import numpy as np

from silva.columns import Block
from silva.errors import ColumnError, no_unicode
from silva.folders import OwnFolder
from silva.sinks.shard_files import ShardFiles

_BLOCK = 512
_END = bytes(2 * _BLOCK)


class TarWriter:
    def __init__(self, folder: OwnFolder, key: str | None) -> None:
        """`key`: the column with the keys of rows; None to number the rows."""
        self._files = ShardFiles(folder, ".tar")
        self._key = key
        self._open: BinaryIO | None = None
        self._row = 0
        self._last: str | None = None

    def settings(self) -> dict[str, Any]:
        return {"format": "tar", "key": self._key}

    def resume(self, shards: list[str], kept: dict[str, Any]) -> None:
        self._files.keep_only(shards)
        self._row = int(kept.get("row", 0))

    def keep(self) -> dict[str, Any]:
        return {"row": self._row}

    def open(self, number: int) -> None:
        self._open = self._files.begin(number)
        self._last = None

    def write(self, chunk: Block) -> int:
        assert self._open is not None
        names = [name for name in chunk.columns if name != self._key]
        rows = [chunk.columns[name].rows() for name in names]
        keys = self._keys(chunk)
        for key, *values in zip(keys, *rows, strict=True):
            self._check(key, values)
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    self._add(f"{key}.{name}", _data(name, value))
        self._row += len(chunk)
        return self._open.tell()

    def _keys(self, chunk: Block) -> list[Any]:
        if self._key is not None:
            return chunk.columns[self._key].rows()
        return [f"{row:09d}" for row in range(self._row, self._row + len(chunk))]

    def _check(self, key: Any, values: list[Any]) -> None:
        if not isinstance(key, str):
            raise ColumnError(f"to_tar: a key must be text, not {key!r:.80}")
        _utf8(self._key or "key", key)
        base = key.rpartition("/")[2]
        odd = "." in base or "\0" in key or base.startswith("__")
        if not base or odd or key == self._last:
            raise ColumnError(
                f"to_tar: {key!r} cannot be the key of a row: a key has no dot after its last "
                "slash and no NUL, does not start with two underscores, and differs from the key "
                "of the row before"
            )
        if all(value is None for value in values):
            raise ColumnError(
                f"to_tar: the row {key!r} holds only nulls, for which tar files have no form: drop "
                "such rows with filter"
            )
        self._last = key

    def _add(self, name: str, data: bytes) -> None:
        assert self._open is not None
        header = tarfile.TarInfo(name)
        header.size = len(data)
        self._open.write(header.tobuf(tarfile.PAX_FORMAT))
        self._open.write(data)
        self._open.write(bytes(-len(data) % _BLOCK))

    def close(self) -> str:
        assert self._open is not None
        self._open.write(_END)
        self._open = None
        return self._files.complete()

    def discard(self) -> None:
        self._open = None
        self._files.discard()


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise ColumnError(f"to_tar: {no_unicode(name)}") from None


def _data(name: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return _utf8(name, value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value)).encode()
    raise ColumnError(
        f"to_tar: {name!r} is {type(value).__name__}, but a member is bytes, text or an integer: "
        "encode it first, e.g. derive(png=sv.image('image').encode('png'))"
    )
