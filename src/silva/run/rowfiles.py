"""Files of kept rows: a header that says what is inside, then pages of entries.

    magic · checksum of the header · length of the header · header · page · page · …

A page is read, checked and decoded as a whole, so it is small: a shuffled epoch asks for single
rows. A file appears under its name complete or not at all (written aside, then renamed), and is
never changed.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from pathlib import Path

import msgspec
import numpy as np

from silva.columns import Array, Column
from silva.columns.serial import decode_columns, encode_columns
from silva.run.entries import Entries

SUFFIX = ".rows"
UNFINISHED = ".tmp"
_MAGIC = b"silva\0r1"
"""The number is the version of the format."""
_OWN = "\0"
"""Begins the names of what is not a column of the user's."""
_START = struct.Struct("<8sIQ")


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


class Page:
    """Where a page is: in a file, or still in memory."""

    __slots__ = ("checked", "checksum", "data", "entries", "path", "size", "start")

    def __init__(self, span: PageSpan, path: Path | None, start: int, data: bytes | None) -> None:
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
        data = self.data
        if data is None:
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
        return _decode(data)


def new_page(entries: Entries) -> Page:
    """A page in memory."""
    data = _encode(entries)
    return Page(PageSpan(0, len(data), zlib.crc32(data), len(entries)), None, 0, data)


def _encode(entries: Entries) -> bytes:
    own = {"counts": entries.counts, "places": entries.places}
    own |= {f"sub {i}": part for i, part in enumerate(entries.subs)}
    arrays: dict[str, Column] = {_OWN + n: Array(a) for n, a in own.items() if a is not None}
    return encode_columns({**arrays, **entries.columns})


def _decode(data: bytes) -> Entries:
    found = decode_columns(data)
    own = {n[1:]: c.data for n, c in found.items() if n[0] == _OWN and isinstance(c, Array)}
    subs = tuple(part for name, part in own.items() if name.startswith("sub "))
    columns = {name: column for name, column in found.items() if name[0] != _OWN}
    return Entries(own["counts"], columns, own.get("places"), subs)


def write_file(folder: Path, fingerprint: str, pages: list[Page], keys: np.ndarray) -> Path:
    """Writes pages that are in memory into a new file, and lets them point there."""
    spans, end = [], 0
    for page in pages:
        spans.append(PageSpan(end, page.size, page.checksum, page.entries))
        end += page.size
    header = msgspec.msgpack.encode(Header(fingerprint, spans, keys.astype("<u8").tobytes()))
    path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
    aside = path.with_suffix(UNFINISHED)
    try:
        with aside.open("xb") as file:
            file.write(_START.pack(_MAGIC, zlib.crc32(header), len(header)))
            file.write(header)
            for page in pages:
                assert page.data is not None
                file.write(page.data)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    for page, span in zip(pages, spans, strict=True):
        page.path, page.data, page.checked = path, None, False
        page.start = _START.size + len(header) + span.start
    return path


def read_header(path: Path, fingerprint: str) -> tuple[list[Page], np.ndarray]:
    """The pages of a file, and the rows of their entries; raises DamagedError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_START.size)
        if len(start) < _START.size or not start.startswith(_MAGIC):
            raise DamagedError(f"{path}: not a file of rows in this format")
        _, checksum, length = _START.unpack(start)
        data = file.read(length) if length <= size else b""
    if len(data) != length or zlib.crc32(data) != checksum:
        raise DamagedError(f"{path}: the checksum is wrong")
    try:
        header = msgspec.msgpack.decode(data, type=Header)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{path}: {error}") from error
    if header.fingerprint != fingerprint:
        raise DamagedError(f"{path}: holds rows of another pipeline")
    body = _START.size + length
    ends = [body + span.start + span.size for span in header.pages]
    if len(header.keys) != 8 * sum(s.entries for s in header.pages) or max(ends, default=0) > size:
        raise DamagedError(f"{path}: cut short")
    pages = [Page(span, path, body + span.start, None) for span in header.pages]
    return pages, np.frombuffer(header.keys, dtype="<u8")
