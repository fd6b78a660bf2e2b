"""Files of numbers: the columns are packed in pages, and read by position.

    pages of one column … pages of the last column | footer | its size and checksum | mark

A page is unpacked as a whole, so a single row costs some microseconds. Pages have checksums: most
damaged pages would unpack without an error.

Pages are packed with pcodec, which compresses numbers better than a byte compressor: ids under
Zipf's law take a sixth less than with zstd, and are read in less than half the time, since they
come out in their own width. Times are packed as integers, and eight flags in a byte.
"""

from __future__ import annotations

import functools
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any
from zlib import crc32

import msgspec
import numpy as np

from silva.columns import Array, Column
from silva.columns.serial.checks import CannotDecode, check, decode_dtype
from silva.errors import TableError
from silva.store.files.extra import extra
from silva.store.versions.manifest import File
from silva.store.versions.table_folder import sync

SUFFIX = ".pages"
_MARK = b"silvapg1"
"""Ends with the version of the format, the same since 0.1."""
_END = struct.Struct(f"<II{len(_MARK)}s")
_PAGES = np.dtype([("size", "<u2"), ("checksum", "<u4")])
PAGE = 4096
"""Numbers per page. Smaller pages have more overhead; larger ones make single rows slower."""
_FLAGS = 8
"""Flags per packed byte."""
_LEVEL, _LEVEL_OF_BYTES = 4, 8
"""Compression levels of pcodec. Its default, 8, saves 1 % and takes four times as long to write; it
pays for bytes, which have few values."""
_SAMPLED = 4
"""Pages that decide whether a column is packed."""
_MUCH_LARGER = 1.2
"""How much larger than with zstd pages may be: zstd takes several times as long to read."""


class _Column(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    """The numpy dtype: `<i8`, `<M8[us]`, `|b1`."""
    start: Annotated[int, msgspec.Meta(ge=0)]
    """The position of its first page in the file."""
    pages: bytes
    """The size and checksum of each page."""


class _Footer(msgspec.Struct, frozen=True, array_like=True):
    rows: Annotated[int, msgspec.Meta(ge=0)]
    columns: dict[str, _Column]


def write_pages(folder: Path, columns: dict[str, np.ndarray]) -> File:
    """One file of these arrays, all equally long."""
    name = f"{uuid.uuid4().hex}{SUFFIX}"
    about: dict[str, _Column] = {}
    with open(folder / name, "xb") as file:
        for column, values in columns.items():
            start, plain = file.tell(), _as_numbers(values)
            pages = (_pack(plain[at : at + PAGE]) for at in range(0, len(plain), PAGE))
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

    def __init__(
        self,
        path: Path,
        columns: tuple[str, ...] | None = None,
        opener: Callable[[str, int], int] | None = None,
    ) -> None:
        self._path = path
        self._opener = opener
        footer = self._footer()
        self.rows = footer.rows
        names = footer.columns if columns is None else columns
        try:
            self._columns = {name: _Pages(footer.columns[name], footer.rows) for name in names}
        except (CannotDecode, KeyError) as error:
            raise self._damaged(error) from error

    def _footer(self) -> _Footer:
        with open(self._path, "rb", opener=self._opener) as file:
            last = file.seek(0, os.SEEK_END) - _END.size
            file.seek(max(last, 0))
            size, checksum, mark = _END.unpack(file.read()) if last >= 0 else (0, 0, b"")
            if size > last >= 0:
                raise self._damaged("it is truncated")
            file.seek(max(last - size, 0))
            footer = file.read(size)
        if mark[:-1] == _MARK[:-1] and mark != _MARK:
            raise self._damaged(f"its format is {mark[-1:]!r}, and this silva reads {_MARK[-1:]!r}")
        if mark != _MARK or crc32(footer) != checksum:
            raise self._damaged("its footer is missing or has changed")
        try:
            return msgspec.msgpack.decode(footer, type=_Footer)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._damaged(error) from error

    def sizes(self) -> dict[str, int]:
        """The bytes of each column."""
        return {name: pages.size for name, pages in self._columns.items()}

    def take(self, rows: np.ndarray | range) -> dict[str, Column]:
        """Rows at ascending positions."""
        with open(self._path, "rb", buffering=0, opener=self._opener) as file:
            handle = file.fileno()
            try:
                return {n: Array(pages.take(handle, rows)) for n, pages in self._columns.items()}
            except RuntimeError as error:
                raise self._damaged(error) from error

    def _damaged(self, why: object) -> TableError:
        return TableError(f"{str(self._path)!r} is damaged: {why}. Restore it from a backup")


class _Pages:
    """The pages of one column."""

    def __init__(self, column: _Column, rows: int) -> None:
        self._kind = decode_dtype(column.kind)
        check(_is_packed(self._kind), "%s is not packed in pages", column.kind)
        self._flags = self._kind.kind == "b"
        self._stored = np.dtype(np.uint8) if self._flags else self._kind
        self._count = -(-rows // _FLAGS) if self._flags else rows
        size = -(-self._count // PAGE) * _PAGES.itemsize
        check(len(column.pages) == size, "the number of pages does not match %s rows", rows)
        pages = np.frombuffer(column.pages, _PAGES)
        check(column.start < 1 << 62, "a column begins beyond its file")
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
            eights = self._run(handle, first // _FLAGS, last // _FLAGS)
            bits = np.unpackbits(eights, bitorder="little")
            return bits[first % _FLAGS :][: len(rows)].view(bool)
        eights, place = np.divmod(rows, _FLAGS)
        found: np.ndarray = self._some(handle, eights) >> place & 1 == 1
        return found

    def _run(self, handle: int, first: int, last: int) -> np.ndarray:
        """The numbers from position `first` to `last`."""
        start, end = first // PAGE * PAGE, min((last // PAGE + 1) * PAGE, self._count)
        values = np.empty(end - start, self._stored)
        plain = _as_numbers(values)
        for number, page in self._pages(handle, np.arange(first // PAGE, last // PAGE + 1)):
            at = number * PAGE - start
            _unpack(page, plain[at : at + PAGE])
        return values[first - start : last - start + 1]

    def _some(self, handle: int, places: np.ndarray | range) -> np.ndarray:
        """The numbers at ascending positions. A page is unpacked only up to the last number wanted,
        and only one page is held."""
        numbers, within = np.divmod(places, PAGE)
        heads = np.flatnonzero(np.diff(numbers, prepend=-1))
        found, unpacked = np.empty(len(numbers), self._stored), np.empty(PAGE, self._stored)
        plain = _as_numbers(unpacked)
        bounds = pairwise([*heads.tolist(), len(numbers)])
        for (a, b), (_, page) in zip(bounds, self._pages(handle, numbers[heads]), strict=True):
            _unpack(page, plain[: int(within[b - 1]) + 1])
            found[a:b] = unpacked[within[a:b]]
        return found

    def _pages(self, handle: int, numbers: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """The packed pages, by ascending number; neighbours are read together."""
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


def numbers(column: Column) -> np.ndarray | None:
    """The values of a column that can be packed: one number, time or flag per row, and no nulls."""
    if not isinstance(column, Array) or column.valid is not None or column.data.ndim != 1:
        return None
    return column.data if column.data.dtype.kind in "biufmM" else None


def _is_packed(dtype: np.dtype) -> bool:
    """Whether pages can hold values of this type: numbers in this machine's byte order."""
    return dtype.kind in "biufmM" and dtype.itemsize <= 8 and dtype.isnative


def packs_well(values: np.ndarray) -> bool:
    """Whether a sample of pages is about as small as zstd would make it."""
    import pyarrow as pa

    plain = _as_numbers(values)
    last = max(-(-len(plain) // PAGE) - 1, 0)
    places = np.unique(np.linspace(0, last, _SAMPLED).astype(np.int64)) * PAGE
    pages = [plain[at : at + PAGE] for at in places.tolist()]
    zstd = pa.Codec("zstd")
    other = sum(int(zstd.compress(page.tobytes()).size) for page in pages)
    return sum(len(_pack(page)) for page in pages) <= _MUCH_LARGER * other + PAGE


def _as_numbers(values: np.ndarray) -> np.ndarray:
    """The values as packable numbers; all but flags share memory with them."""
    values = np.ascontiguousarray(values)
    match values.dtype.kind:
        case "b":
            return np.packbits(values, bitorder="little")
        case "m" | "M":
            return values.view(np.int64)
    return values


def _pack(page: np.ndarray) -> bytes:
    level = _LEVEL_OF_BYTES if page.itemsize == 1 else _LEVEL
    config = extra("pcodec").ChunkConfig(compression_level=level, enable_8_bit=True)
    found: bytes = _pcodec().simple_compress(page, config)
    return found


def _unpack(page: bytes, into: np.ndarray) -> None:
    """Unpacks a page into an array; RuntimeError unless it holds that many numbers of that type."""
    if _pcodec().simple_decompress_into(page, into).n_processed != len(into):
        raise RuntimeError(f"a page has fewer than {len(into)} numbers")


@functools.cache
def _pcodec() -> Any:
    """Looked up once: an import statement takes half as long as unpacking a page."""
    return extra("pcodec.standalone")
