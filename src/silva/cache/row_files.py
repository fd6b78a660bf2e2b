"""The format of a cache's files: a header, then pages of entries.

    magic · checksum · length of the header · entries · seconds · header · page · page · …

A page is read, checked and decoded as a whole, so it is small: a shuffled epoch asks for single
rows. Checksums detect damage, not malice: whoever may write to the folder can make them right, so
decoding checks every claim of a page against its bytes. A file is never changed. The seconds that
it took to compute the entries stand at its start, so that eviction reads a few bytes per file.
"""

from __future__ import annotations

import math
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from silva.cache.entries import Entries
from silva.cache.shelf import SUFFIX, Data, FileSpan, Item, Shelf
from silva.columns import Array, Column
from silva.columns.serial.checks import CannotDecode
from silva.columns.serial.column_codec import decode_columns, encode_columns

_MAGIC = b"silva\0r"
_VERSION = b"2"
"""The version of the format of files and pages; the same since 0.1."""
_OWN = "\0"
"""Begins the names of arrays of silva's own, which are no columns of the user's."""
_START = struct.Struct("<8sIQQd")
_WORTH = struct.Struct("<QQd")
"""The part of the start that the checksum covers, together with the header."""
ENTRY_BITS = 24
"""The bits of an entry's number within its page: a page has at most 2 ** ENTRY_BITS entries."""
_FIRST_READ = 64 << 10
"""Bytes of a file that are read for its header, whose length is not known yet."""
_T = TypeVar("_T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class DamagedError(Exception):
    """A file, or one of its pages, is not what silva wrote."""


class PageSpan(msgspec.Struct, frozen=True, array_like=True):
    start: _Count
    """Bytes from the end of the header."""
    size: _Count
    checksum: _Count
    entries: _Count


class FileHeader(msgspec.Struct, frozen=True):
    fingerprint: str
    pages: list[PageSpan]
    keys: bytes
    """uint64, little-endian: the key of each entry's row, page after page."""


class Page:
    """A page, in a file or still in memory."""

    __slots__ = ("checked", "checksum", "data", "entries", "item", "size", "start")

    def __init__(self, span: PageSpan, item: Item | None, start: int, data: Data | None) -> None:
        self.size, self.checksum, self.entries = span.size, span.checksum, span.entries
        self.item = item
        self.start = start
        """Bytes from the beginning of the file."""
        self.data = data
        """The bytes, until they are written."""
        self.checked = data is not None
        """Checked once against its checksum; later reads trust the storage."""

    @property
    def span(self) -> FileSpan:
        assert self.item is not None
        return self.item, self.start, self.size

    def decode(self, data: Data) -> Entries:
        """The entries in these bytes; DamagedError where silva could not have written them."""
        shown = "memory" if self.item is None else self.item.name
        if len(data) != self.size or (not self.checked and zlib.crc32(data) != self.checksum):
            raise DamagedError(f"{shown}: the checksum of a page is wrong")
        self.checked = True
        try:
            found = decode_columns(data)
        except CannotDecode as error:
            raise DamagedError(f"{shown}: a page cannot be decoded: {error}") from error
        counts, places = _own(found, "counts", np.int64), _own(found, "places", np.uint64)
        subs: list[np.ndarray] = []
        while (part := _own(found, f"sub {len(subs)}", np.int64)) is not None:
            subs.append(part)
        if counts is None or len(counts) != self.entries:
            raise DamagedError(f"{shown}: a page lacks the row counts of its entries")
        entries = Entries(counts, found, places, tuple(subs))
        if not entries.is_sound():
            raise DamagedError(f"{shown}: a page has columns of different lengths")
        return entries


def new_page(entries: Entries, allocate: Callable[[int], memoryview]) -> Page:
    """Encodes entries as a page, in memory from `allocate`."""
    own = {"counts": entries.counts, "places": entries.places}
    own |= {f"sub {i}": part for i, part in enumerate(entries.subs)}
    arrays: dict[str, Column] = {_OWN + n: Array(a) for n, a in own.items() if a is not None}
    data = encode_columns({**arrays, **entries.columns}, allocate)
    return Page(PageSpan(0, len(data), zlib.crc32(data), len(entries)), None, 0, data)


def _own(found: dict[str, Column], name: str, kind: type[np.generic]) -> np.ndarray | None:
    """Removes an array of silva's own from the columns of a page. One of another type stays among
    them, where the check of names refuses it."""
    column = found.get(_OWN + name)
    if not isinstance(column, Array) or column.data.dtype != kind or column.data.ndim != 1:
        return None
    del found[_OWN + name]
    return column.data


class NewFile:
    """A file of pages that are in memory."""

    def __init__(
        self, fingerprint: str, pages: list[Page], keys: np.ndarray, seconds: float
    ) -> None:
        """`seconds` is the time it took to compute the entries."""
        self.name = f"{uuid.uuid4().hex}{SUFFIX}"
        self.seconds = seconds
        self._pages = pages
        self._spans, end = [], 0
        for page in pages:
            self._spans.append(PageSpan(end, page.size, page.checksum, page.entries))
            end += page.size
        header = msgspec.msgpack.encode(
            FileHeader(fingerprint, self._spans, keys.astype("<u8").tobytes())
        )
        worth = (len(header), len(keys), seconds)
        self._head = _START.pack(_MAGIC + _VERSION, _checksum(worth, header), *worth) + header
        self.size = len(self._head) + end

    @property
    def parts(self) -> list[Data]:
        """All its bytes, in order."""
        return [self._head, *(page.data for page in self._pages if page.data is not None)]

    def stored(self, item: Item) -> None:
        """Lets the pages point to the written file, and frees their memory."""
        for page, span in zip(self._pages, self._spans, strict=True):
            page.start = len(self._head) + span.start
            page.item, page.checked = item, False
            page.data = None


@dataclass(frozen=True)
class Start:
    """The first bytes of a file."""

    checksum: int
    length: int
    """Bytes of the header."""
    entries: int
    seconds: float
    """The time it took to compute the entries."""


def read_starts(shelf: Shelf, items: Sequence[Item]) -> Iterator[Start | DamagedError | OSError]:
    """The start of each file; DamagedError where it is no file of rows. The rest of the file is not
    checked."""
    found = shelf.read([(item, 0, _START.size) for item in items])
    for item, data in zip(items, found, strict=True):
        yield _found(_start, item, data)


def _found(
    decode: Callable[[Item, Data], _T], item: Item, data: Data | OSError
) -> _T | DamagedError | OSError:
    """What these bytes of a file hold, or why that cannot be known."""
    if isinstance(data, OSError):
        return data
    try:
        return decode(item, data)
    except (DamagedError, OSError) as error:
        return error


def _start(item: Item, data: Data) -> Start:
    if len(data) < _START.size or bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise DamagedError(f"{item.name}: not a file of rows")
    mark, *said = _START.unpack(data[: _START.size])
    if mark != _MAGIC + _VERSION:
        version = mark[len(_MAGIC) :].decode("ascii", "replace")
        raise DamagedError(
            f"{item.name}: a file of rows in format {version!r}; this version of silva reads "
            f"format {_VERSION.decode()!r}"
        )
    start = Start(*said)
    if not 0 <= start.seconds < math.inf or start.entries > item.size:
        raise DamagedError(f"{item.name}: not a file of rows")
    return start


def _checksum(worth: tuple[int, int, float], header: Data) -> int:
    return zlib.crc32(header, zlib.crc32(_WORTH.pack(*worth)))


Contents = tuple[list[Page], np.ndarray]
"""The pages of a file, and the keys of their entries' rows."""


def read_headers(
    shelf: Shelf, items: Sequence[Item]
) -> Iterator[tuple[Item, Contents | DamagedError | OSError]]:
    """The contents of each file, in order."""

    def contents(item: Item, data: Data) -> Contents:
        start = _start(item, data)
        header: Data = memoryview(data)[_START.size : _START.size + start.length]
        if len(header) < start.length <= item.size - _START.size:
            (whole,) = shelf.read([(item, _START.size, start.length)])
            if isinstance(whole, OSError):
                raise whole
            header = whole
        return _contents(item, start, header)

    begun = shelf.read([(item, 0, min(item.size, _FIRST_READ)) for item in items])
    for item, data in zip(items, begun, strict=True):
        yield item, _found(contents, item, data)


def _contents(item: Item, start: Start, data: Data) -> Contents:
    worth = (start.length, start.entries, start.seconds)
    if len(data) != start.length or _checksum(worth, data) != start.checksum:
        raise DamagedError(f"{item.name}: the checksum of the header is wrong")
    try:
        header = msgspec.msgpack.decode(data, type=FileHeader)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedError(f"{item.name}: {error}") from error
    if header.fingerprint != item.fingerprint:
        raise DamagedError(f"{item.name}: holds rows of another pipeline")
    body = end = _START.size + start.length
    for span in header.pages:
        if body + span.start != end or span.entries > 1 << ENTRY_BITS:
            raise DamagedError(f"{item.name}: its pages do not follow each other")
        end += span.size
    entries = sum(span.entries for span in header.pages)
    if entries != start.entries or len(header.keys) != 8 * entries or end > item.size:
        raise DamagedError(f"{item.name}: the file is truncated")
    pages = [Page(span, item, body + span.start, None) for span in header.pages]
    return pages, np.frombuffer(header.keys, dtype="<u8")


def is_sound(shelf: Shelf, item: Item) -> bool:
    """Whether all pages of a file decode. A file that cannot be read, or is being removed, counts
    as sound."""
    ((_, found),) = read_headers(shelf, [item])
    if not isinstance(found, tuple):
        return isinstance(found, OSError)
    pages, _ = found
    for page, data in zip(pages, shelf.read([page.span for page in pages]), strict=True):
        if isinstance(data, OSError):
            return True
        try:
            page.decode(data)
        except DamagedError:
            return False
    return True
