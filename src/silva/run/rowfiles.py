"""Files of kept rows: a header that says what is inside, then pages of entries.

    magic · checksum · length of the header · entries · seconds · header · page · page · …

A page is read, checked and decoded as a whole, so it is small: a shuffled epoch asks for single
rows. A file is never changed. What it is worth, the seconds that computing its entries took, stands
at its start, so that a whole folder can be weighed by reading a few bytes of each file.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from silva.columns import Array, Column
from silva.columns.serial import decode_columns, encode_columns
from silva.run.entries import Entries
from silva.run.shelf import SUFFIX, Data, Item, Part, Shelf

_MAGIC = b"silva\0r2"
"""The number is the version of the format."""
_OWN = "\0"
"""Begins the names of what is not a column of the user's."""
_START = struct.Struct("<8sIQQd")
_WORTH = struct.Struct("<QQd")
"""The part of the start that the checksum covers, together with the header."""
_FIRST_READ = 64 << 10
"""Bytes of a file that are read for its header, before it is known how long that is."""


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

    __slots__ = ("checked", "checksum", "data", "entries", "item", "size", "start")

    def __init__(self, span: PageSpan, item: Item | None, start: int, data: Data | None) -> None:
        self.size, self.checksum, self.entries = span.size, span.checksum, span.entries
        self.item = item
        self.start = start
        """Bytes from the beginning of the file."""
        self.data = data
        """What is not written yet."""
        self.checked = data is not None
        """Checked once against its checksum; later reads trust the storage."""

    @property
    def part(self) -> Part:
        assert self.item is not None
        return self.item, self.start, self.size

    def check(self, shown: str, data: Data) -> None:
        """Raises DamagedError where this is not what was written."""
        if len(data) != self.size or (not self.checked and zlib.crc32(data) != self.checksum):
            raise DamagedError(f"{shown}: the checksum is wrong")
        self.checked = True


def new_page(entries: Entries, allocate: Callable[[int], memoryview]) -> Page:
    """A page in memory from `allocate`."""
    own = {"counts": entries.counts, "places": entries.places}
    own |= {f"sub {i}": part for i, part in enumerate(entries.subs)}
    arrays: dict[str, Column] = {_OWN + n: Array(a) for n, a in own.items() if a is not None}
    data = encode_columns({**arrays, **entries.columns}, allocate)
    return Page(PageSpan(0, len(data), zlib.crc32(data), len(entries)), None, 0, data)


def decode_page(data: Data) -> Entries:
    found = decode_columns(data)
    own = {n[1:]: c.data for n, c in found.items() if n[0] == _OWN and isinstance(c, Array)}
    subs = tuple(part for name, part in own.items() if name.startswith("sub "))
    columns = {name: column for name, column in found.items() if name[0] != _OWN}
    return Entries(own["counts"], columns, own.get("places"), subs)


class NewFile:
    """A file of pages that are in memory."""

    def __init__(
        self, fingerprint: str, pages: list[Page], keys: np.ndarray, seconds: float
    ) -> None:
        """`seconds` is what computing the entries took."""
        self.name = f"{uuid.uuid4().hex}{SUFFIX}"
        self.seconds = seconds
        self._pages = pages
        self._spans, end = [], 0
        for page in pages:
            self._spans.append(PageSpan(end, page.size, page.checksum, page.entries))
            end += page.size
        header = msgspec.msgpack.encode(
            Header(fingerprint, self._spans, keys.astype("<u8").tobytes())
        )
        worth = (len(header), len(keys), seconds)
        self._head = _START.pack(_MAGIC, _checksum(worth, header), *worth) + header
        self.size = len(self._head) + end

    @property
    def parts(self) -> list[Data]:
        """All its bytes, in order."""
        return [self._head, *(page.data for page in self._pages if page.data is not None)]

    def stored(self, item: Item) -> None:
        """It is written: lets the pages point there."""
        for page, span in zip(self._pages, self._spans, strict=True):
            page.start = len(self._head) + span.start
            page.item, page.checked = item, False
            page.data = None


@dataclass(frozen=True)
class Start:
    """What the first bytes of a file say."""

    checksum: int
    length: int
    """Bytes of the header."""
    entries: int
    seconds: float
    """What computing the entries took."""


def read_starts(shelf: Shelf, items: Sequence[Item]) -> Iterator[Start | DamagedError | OSError]:
    """What each file says of itself; DamagedError where it is no file of rows. What is in it is not
    checked."""
    found = shelf.read([(item, 0, _START.size) for item in items])
    for item, data in zip(items, found, strict=True):
        yield data if isinstance(data, OSError) else _start(item, data)


def _start(item: Item, data: Data) -> Start | DamagedError:
    if len(data) < _START.size or bytes(data[: len(_MAGIC)]) != _MAGIC:
        return DamagedError(f"{item.name}: not a file of rows in this format")
    return Start(*_START.unpack(data[: _START.size])[1:])


def _checksum(worth: tuple[int, int, float], header: Data) -> int:
    return zlib.crc32(header, zlib.crc32(_WORTH.pack(*worth)))


Contents = tuple[list[Page], np.ndarray]
"""The pages of a file, and the rows of their entries."""


def read_headers(
    shelf: Shelf, items: Sequence[Item]
) -> Iterator[tuple[Item, Contents | DamagedError | OSError]]:
    """What is in each file, in order."""
    begun = shelf.read([(item, 0, min(item.size, _FIRST_READ)) for item in items])
    for item, data in zip(items, begun, strict=True):
        if isinstance(data, OSError):
            yield item, data
            continue
        start = _start(item, data)
        if isinstance(start, DamagedError):
            yield item, start
            continue
        end = _START.size + start.length
        if len(data) < end <= item.size:
            (rest,) = shelf.read([(item, len(data), end - len(data))])
            if isinstance(rest, OSError):
                yield item, rest
                continue
            data = bytes(data) + bytes(rest)
        try:
            yield item, _contents(item, start, data[_START.size : end])
        except DamagedError as error:
            yield item, error


def _contents(item: Item, start: Start, data: Data) -> Contents:
    worth = (start.length, start.entries, start.seconds)
    if len(data) != start.length or _checksum(worth, data) != start.checksum:
        raise DamagedError(f"{item.name}: the checksum is wrong")
    try:
        header = msgspec.msgpack.decode(data, type=Header)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{item.name}: {error}") from error
    if header.fingerprint != item.fingerprint:
        raise DamagedError(f"{item.name}: holds rows of another pipeline")
    body = _START.size + start.length
    ends = [body + span.start + span.size for span in header.pages]
    lengths = 8 * sum(span.entries for span in header.pages)
    if len(header.keys) != lengths or max(ends, default=0) > item.size:
        raise DamagedError(f"{item.name}: cut short")
    pages = [Page(span, item, body + span.start, None) for span in header.pages]
    return pages, np.frombuffer(header.keys, dtype="<u8")


def is_sound(shelf: Shelf, item: Item) -> bool:
    """Whether a file is what was written; one that cannot be read, or is just being removed, is."""
    ((_, found),) = read_headers(shelf, [item])
    if not isinstance(found, tuple):
        return isinstance(found, OSError)
    pages, _ = found
    for page, data in zip(pages, shelf.read([page.part for page in pages]), strict=True):
        if isinstance(data, OSError):
            return True
        try:
            page.check(item.name, data)
        except DamagedError:
            return False
    return True
