"""Files of kept rows: a header that says what is inside, then pages of entries.

    magic · checksum · length of the header · entries · seconds · header · page · page · …

A page is read, checked and decoded as a whole, so it is small: a shuffled epoch asks for single
rows. A file appears under its name complete or not at all (written aside, then renamed), and is
never changed. What it is worth, the seconds that computing its entries took, stands at its start,
so that a whole folder can be weighed by reading a few bytes of each file.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from silva.columns import Array, Column
from silva.columns.serial import decode_columns, encode_columns
from silva.run.entries import Entries

SUFFIX = ".rows"
UNFINISHED = ".tmp"
_MAGIC = b"silva\0r2"
"""The number is the version of the format."""
_OWN = "\0"
"""Begins the names of what is not a column of the user's."""
_START = struct.Struct("<8sIQQd")
_WORTH = struct.Struct("<QQd")
"""The part of the start that the checksum covers, together with the header."""


class DamagedError(Exception):
    """A file, or a page of it, is not what was written."""


class PageSpan(msgspec.Struct, frozen=True, array_like=True):
    start: int
    """Bytes from the end of the header."""
    size: int
    checksum: int
    entries: int


class Header(msgspec.Struct, frozen=True):
    fingerprint: str
    pages: list[PageSpan]
    keys: bytes
    """uint64, little-endian: the row of each entry, page after page."""


Data = bytes | memoryview


class Page:
    """Where a page is: in a file, or still in memory."""

    __slots__ = ("checked", "checksum", "data", "entries", "path", "size", "start")

    def __init__(self, span: PageSpan, path: Path | None, start: int, data: Data | None) -> None:
        self.size, self.checksum, self.entries = span.size, span.checksum, span.entries
        self.path = path
        self.start = start
        """Bytes from the beginning of the file."""
        self.data = data
        """What is not written yet."""
        self.checked = data is not None
        """Checked once against its checksum; later reads trust the file system."""

    def read(self) -> Entries:
        """The page's entries; raises DamagedError where they are not what was written."""
        return _decode(self._bytes())

    def check(self) -> None:
        """Raises DamagedError where the page is not what was written."""
        self._bytes()

    def _bytes(self) -> Data:
        if self.data is not None:
            return self.data
        assert self.path is not None
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                data = file.read(self.size)
        except OSError as error:
            raise DamagedError(f"{self.path}: {error.strerror}") from error
        if len(data) != self.size or (not self.checked and zlib.crc32(data) != self.checksum):
            raise DamagedError(f"{self.path}: the checksum is wrong")
        self.checked = True
        return data


def new_page(entries: Entries, allocate: Callable[[int], memoryview]) -> Page:
    """A page in memory from `allocate`."""
    own = {"counts": entries.counts, "places": entries.places}
    own |= {f"sub {i}": part for i, part in enumerate(entries.subs)}
    arrays: dict[str, Column] = {_OWN + n: Array(a) for n, a in own.items() if a is not None}
    data = encode_columns({**arrays, **entries.columns}, allocate)
    return Page(PageSpan(0, len(data), zlib.crc32(data), len(entries)), None, 0, data)


def _decode(data: Data) -> Entries:
    found = decode_columns(data)
    own = {n[1:]: c.data for n, c in found.items() if n[0] == _OWN and isinstance(c, Array)}
    subs = tuple(part for name, part in own.items() if name.startswith("sub "))
    columns = {name: column for name, column in found.items() if name[0] != _OWN}
    return Entries(own["counts"], columns, own.get("places"), subs)


class NewFile:
    """A file of pages that are in memory, to be written aside and then renamed."""

    def __init__(
        self, folder: Path, fingerprint: str, pages: list[Page], keys: np.ndarray, seconds: float
    ) -> None:
        """`seconds` is what computing the entries took."""
        self._pages = pages
        self._spans, end = [], 0
        for page in pages:
            self._spans.append(PageSpan(end, page.size, page.checksum, page.entries))
            end += page.size
        header = Header(fingerprint, self._spans, keys.astype("<u8").tobytes())
        self._header = msgspec.msgpack.encode(header)
        self._worth = (len(self._header), len(keys), seconds)
        self.size = _START.size + len(self._header) + end
        self.path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
        self._aside = self.path.with_suffix(UNFINISHED)

    def reserve(self) -> None:
        """Makes the unfinished file, at its full length: others see what it will take."""
        with self._aside.open("xb") as file:
            try:
                file.truncate(self.size)
            except OSError:
                self._aside.unlink(missing_ok=True)
                raise

    def write(self) -> None:
        """Writes the file, and lets the pages point there."""
        try:
            with self._aside.open("r+b") as file:
                file.write(_START.pack(_MAGIC, _checksum(self._worth, self._header), *self._worth))
                file.write(self._header)
                for page in self._pages:
                    assert page.data is not None
                    file.write(page.data)
            os.replace(self._aside, self.path)
        except BaseException:
            self._aside.unlink(missing_ok=True)
            raise
        for page, span in zip(self._pages, self._spans, strict=True):
            page.path, page.data, page.checked = self.path, None, False
            page.start = _START.size + len(self._header) + span.start


@dataclass(frozen=True)
class Start:
    """What the first bytes of a file say."""

    checksum: int
    length: int
    """Bytes of the header."""
    entries: int
    seconds: float
    """What computing the entries took."""


def read_start(path: Path) -> Start:
    """Raises DamagedError where this is no file of rows; what is in it is not checked."""
    with path.open("rb") as file:
        return _start(path, file.read(_START.size))


def _start(path: Path, data: bytes) -> Start:
    if len(data) < _START.size or not data.startswith(_MAGIC):
        raise DamagedError(f"{path}: not a file of rows in this format")
    return Start(*_START.unpack(data)[1:])


def _checksum(worth: tuple[int, int, float], header: bytes) -> int:
    return zlib.crc32(header, zlib.crc32(_WORTH.pack(*worth)))


def read_header(path: Path, fingerprint: str) -> tuple[list[Page], np.ndarray]:
    """The pages of a file, and the rows of their entries; raises DamagedError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = _start(path, file.read(_START.size))
        data = file.read(start.length) if start.length <= size else b""
    worth = (start.length, start.entries, start.seconds)
    if len(data) != start.length or _checksum(worth, data) != start.checksum:
        raise DamagedError(f"{path}: the checksum is wrong")
    try:
        header = msgspec.msgpack.decode(data, type=Header)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{path}: {error}") from error
    if header.fingerprint != fingerprint:
        raise DamagedError(f"{path}: holds rows of another pipeline")
    body = _START.size + start.length
    ends = [body + span.start + span.size for span in header.pages]
    if len(header.keys) != 8 * sum(s.entries for s in header.pages) or max(ends, default=0) > size:
        raise DamagedError(f"{path}: cut short")
    pages = [Page(span, path, body + span.start, None) for span in header.pages]
    return pages, np.frombuffer(header.keys, dtype="<u8")
