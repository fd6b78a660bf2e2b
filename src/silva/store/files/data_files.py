"""Data files: opened without leaving the table's folder, and checked as they are read.

Lance files have no checksums, so some flipped bits would be read as other values. A writer
therefore stores a checksum of each block in the manifest (`File.sums`), and a reader checks the
blocks of the columns that it opens; a source does that once per block.

The choice: Lance does not read through our code, and does not report where rows are, so the first
row of a column reads all of its bytes in that fragment (at most 256 MB of values). Blocks spare the
other columns. Checking what Lance returns instead would cost more for every row, every time. A
check costs 0.15 ms per megabyte, nearly all of it for reading: the first scan of text takes 3 %
more CPU, of floats that do not compress 13 %, later scans nothing. XXH3 hashes 35 GB/s; crc32
(zlib) does 4 and would treble the cost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from silva.errors import FolderError, SilvaError, TableError, is_panic
from silva.folders import OwnFolder
from silva.store.files.extra import extra
from silva.store.versions.manifest import File

_BLOCK = 1 << 20
"""Bytes of a file that share one checksum of 4 bytes."""

Span = tuple[int, int]
"""The first byte of a range, and the one after its last."""


class DataFile:
    """A file in a table's folder of data, as a manifest names it."""

    def __init__(self, data: OwnFolder, file: File) -> None:
        folder, _, self._name = file.name.rpartition("/")
        self._own = data.below(folder) if folder else data
        self.file = file
        self.path = self._own.path / self._name
        self._text = str(self.path)
        self._identity: tuple[int, int] | None = None

    def opener(self, path: str, flags: int) -> int:
        """An opener for `open(…, opener=…)`."""
        return self.open()

    def open(self) -> int:
        """A descriptor of the file, which the caller closes."""
        try:
            return self._first() if self._identity is None else self._again()
        except FileNotFoundError as error:
            raise TableError(
                f"{str(self.path)!r} is gone: its version was collected by gc(versions=…) while "
                "it was read, or the file was removed. Read a later version"
            ) from error
        except FolderError as error:
            raise TableError(str(error)) from error

    def _first(self) -> int:
        handle = self._own.open_file(self._name)
        status = os.fstat(handle)
        if status.st_size != self.file.size:
            os.close(handle)
            raise TableError(
                f"{str(self.path)!r} is damaged: it has {status.st_size:,} bytes, and had "
                f"{self.file.size:,} when it was written. Restore it from a backup"
            )
        self._identity = (status.st_dev, status.st_ino)
        return handle

    def _again(self) -> int:
        """Opens by path, one system call instead of three, and checks that it is the same file."""
        handle = os.open(self._text, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) == self._identity:
            return handle
        os.close(handle)
        return self._first()


def checksums(path: Path) -> bytes:
    """The checksums of all blocks of a file."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        blocks = range(-(-size // _BLOCK))
        return np.array([_checksum(file.fileno(), block) for block in blocks], "<u4").tobytes()


def _checksum(handle: int, block: int) -> int:
    data = os.pread(handle, _BLOCK, block * _BLOCK)
    return int(extra("xxhash").xxh3_64_intdigest(data)) & 0xFFFFFFFF


class Checked:
    """The blocks of files whose checksums were found right. Safe to use from several threads."""

    def __init__(self) -> None:
        self._blocks: set[tuple[str, int]] = set()

    def check(self, handle: int, data: DataFile, spans: Iterable[Span]) -> None:
        """Raises TableError where the checksum of a block in these spans is wrong."""
        file = data.file
        if not file.sums:
            return
        sums = np.frombuffer(file.sums, "<u4") if len(file.sums) % 4 == 0 else np.empty(0, "<u4")
        wanted = {b for start, end in spans for b in range(start // _BLOCK, -(-end // _BLOCK))}
        if len(sums) != -(-file.size // _BLOCK) or any(not 0 <= b < len(sums) for b in wanted):
            raise TableError(f"{str(data.path)!r} is damaged: its checksums do not cover it")
        for block in sorted(wanted):
            if (file.name, block) in self._blocks:
                continue
            if _checksum(handle, block) != sums[block]:
                raise TableError(
                    f"{str(data.path)!r} is damaged: bytes from {block * _BLOCK:,} on are not what "
                    "was written. Restore it from a backup; versions without it can be read"
                )
            self._blocks.add((file.name, block))


@contextlib.contextmanager
def damage_as_table_error(what: Callable[[], str]) -> Iterator[None]:
    """Turns whatever libraries raise on damaged files into a TableError. Lance panics on some,
    which is not an Exception."""
    try:
        yield
    except BaseException as error:
        known = isinstance(error, SilvaError | MemoryError)
        system = isinstance(error, OSError) and error.errno is not None
        if known or system or not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise TableError(
            f"{what()} cannot be read: it is damaged, or not the file that the table names "
            f"({type(error).__name__}: {str(error)[:300]})"
        ) from error
