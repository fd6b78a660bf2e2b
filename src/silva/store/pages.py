"""Files of numbers: each column in pages, which are packed, and read by position.

    pages of one column … pages of the last column | footer | its size and checksum | mark

A page is unpacked whole, so a single row costs some microseconds. Pages have checksums: of damaged
ones most would be unpacked without complaint.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import msgspec
import numpy as np

from silva.columns import Array, Column
from silva.errors import TableError
from silva.store.folder import sync
from silva.store.layout import File
from silva.store.packing import FLAGS, PAGE, as_numbers, packed, unpack

SUFFIX = ".pages"
_MARK = b"silvapg1"
_END = struct.Struct(f"<II{len(_MARK)}s")
_PAGES = np.dtype([("size", "<u2"), ("checksum", "<u4")])


class _Column(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    """Of numpy: `<i8`, `<M8[us]`, `|b1`."""
    start: int
    """Of its first page in the file."""
    pages: bytes
    """Size and checksum of each."""


class _Footer(msgspec.Struct, frozen=True, array_like=True):
    rows: int
    columns: dict[str, _Column]


def write_pages(folder: Path, columns: dict[str, np.ndarray]) -> File:
    """One file of these arrays, all equally long."""
    name = f"{uuid.uuid4().hex}{SUFFIX}"
    about: dict[str, _Column] = {}
    with open(folder / name, "xb") as file:
        for column, values in columns.items():
            start, plain = file.tell(), as_numbers(values)
            pages = (packed(plain[at : at + PAGE]) for at in range(0, len(plain), PAGE))
            known = np.array([(file.write(page), crc32(page)) for page in pages], _PAGES)
            about[column] = _Column(values.dtype.str, start, known.tobytes())
        rows = len(next(iter(columns.values())))
        footer = msgspec.msgpack.encode(_Footer(rows, about))
        file.write(footer + _END.pack(len(footer), crc32(footer), _MARK))
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    return File(name, size)


class PagesReader:
    """Some columns of a file, read by position. Safe to use from several threads; the file is open
    only while it is read."""

    def __init__(self, path: Path, columns: tuple[str, ...] | None = None) -> None:
        self._path = path
        footer = self._footer()
        self.rows = footer.rows
        names = footer.columns if columns is None else columns
        self._columns = {name: _Pages(footer.columns[name], footer.rows) for name in names}

    def _footer(self) -> _Footer:
        with open(self._path, "rb") as file:
            last = file.seek(0, os.SEEK_END) - _END.size
            file.seek(max(last, 0))
            size, checksum, mark = _END.unpack(file.read()) if last >= 0 else (0, 0, b"")
            file.seek(max(last - size, 0))
            footer = file.read(size)
        if mark != _MARK or crc32(footer) != checksum:
            raise self._damaged("it does not end as it should")
        return msgspec.msgpack.decode(footer, type=_Footer)

    def sizes(self) -> dict[str, int]:
        """The bytes of each column."""
        return {name: pages.size for name, pages in self._columns.items()}

    def take(self, rows: np.ndarray | range) -> dict[str, Column]:
        """Rows at ascending positions."""
        with open(self._path, "rb", buffering=0) as file:
            handle = file.fileno()
            try:
                return {n: Array(pages.take(handle, rows)) for n, pages in self._columns.items()}
            except RuntimeError as error:
                raise self._damaged(error) from error

    def _damaged(self, why: object) -> TableError:
        return TableError(f"{str(self._path)!r} is damaged: {why}")


class _Pages:
    """The pages of one column."""

    def __init__(self, column: _Column, rows: int) -> None:
        self._kind = np.dtype(column.kind)
        self._flags = self._kind.kind == "b"
        self._stored = np.dtype(np.uint8) if self._flags else self._kind
        self._count = -(-rows // FLAGS) if self._flags else rows
        pages = np.frombuffer(column.pages, _PAGES)
        self._bounds = column.start + np.append(0, np.cumsum(pages["size"], dtype=np.int64))
        self._checksums = pages["checksum"].tolist()

    @property
    def size(self) -> int:
        return int(self._bounds[-1] - self._bounds[0])

    def take(self, handle: int, rows: np.ndarray | range) -> np.ndarray:
        """Rows at ascending positions."""
        if not len(rows):
            return np.empty(0, self._kind)
        first, last = int(rows[0]), int(rows[-1])
        whole = last - first + 1 == len(rows)
        if not self._flags:
            return self._run(handle, first, last) if whole else self._some(handle, rows)
        if whole:
            eights = self._run(handle, first // FLAGS, last // FLAGS)
            bits = np.unpackbits(eights, bitorder="little")
            return bits[first % FLAGS :][: len(rows)].view(bool)
        eights, place = np.divmod(rows, FLAGS)
        found: np.ndarray = self._some(handle, eights) >> place & 1 == 1
        return found

    def _run(self, handle: int, first: int, last: int) -> np.ndarray:
        """The numbers from one place to another."""
        start, end = first // PAGE * PAGE, min((last // PAGE + 1) * PAGE, self._count)
        values = np.empty(end - start, self._stored)
        plain = as_numbers(values)
        for number, page in self._pages(handle, np.arange(first // PAGE, last // PAGE + 1)):
            at = number * PAGE - start
            unpack(page, plain[at : at + PAGE])
        return values[first - start : last - start + 1]

    def _some(self, handle: int, places: np.ndarray | range) -> np.ndarray:
        """The numbers at ascending places. Of a page no more is unpacked than what is asked for,
        and only one of them is held."""
        numbers, within = np.divmod(places, PAGE)
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        found, unpacked = np.empty(len(numbers), self._stored), np.empty(PAGE, self._stored)
        plain = as_numbers(unpacked)
        bounds = pairwise([*heads.tolist(), len(numbers)])
        for (a, b), (_, page) in zip(bounds, self._pages(handle, numbers[heads]), strict=True):
            unpack(page, plain[: int(within[b - 1]) + 1])
            found[a:b] = unpacked[within[a:b]]
        return found

    def _pages(self, handle: int, numbers: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """Pages as they are in the file, by ascending number; neighbours are read at once."""
        heads = np.flatnonzero(np.diff(numbers, prepend=-2) > 1)
        for run in np.split(numbers, heads[1:]):
            first = int(run[0])
            cuts = self._bounds[first : first + len(run) + 1].tolist()
            data = os.pread(handle, cuts[-1] - cuts[0], cuts[0])
            for number, (a, b) in enumerate(pairwise(cuts), first):
                page = data[a - cuts[0] : b - cuts[0]]
                if crc32(page) != self._checksums[number]:
                    raise RuntimeError(f"page {number} is not what was written")
                yield number, page
