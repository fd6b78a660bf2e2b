"""Walking through a tar file: where each member's bytes are, without reading them.

`tarfile` reads a header in some 30 µs; a shard has tens of thousands. The plain headers that make
up nearly all of a shard are therefore read here, and only the rest by `tarfile`'s own parser.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from silva.errors import SourceError
from silva.io.ranges import BROKEN

BLOCK = 512
_END = bytes(BLOCK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_LONG_NAME, _EXTENDED = tarfile.GNUTYPE_LONGNAME, (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_ABOUT_NEXT = (_LONG_NAME, *_EXTENDED)


class Member(NamedTuple):
    name: str
    offset: int
    """Of the data."""
    size: int


def members(stream: BinaryIO, path: str, size: int | None) -> Iterator[Member]:
    """Regular files in order; `size` of the archive, where known, tells a cut one at once."""
    at = 0
    name, length = "", -1  # what an extended header says about the next member
    while True:
        block = _read(stream, at, BLOCK, path)
        if block == _END:
            return
        try:
            own_name, own_length, kind = _header(block)
        except tarfile.HeaderError as error:
            raise SourceError(f"{path}: no valid tar header at byte {at:,}: {error}") from error
        if length >= 0 and kind not in _ABOUT_NEXT:
            own_length = length
        data, at = at + BLOCK, at + BLOCK + -(-own_length // BLOCK) * BLOCK
        if size is not None and data + own_length > size:
            raise _truncated(path, data)
        if kind == _LONG_NAME:
            name = _text(_read(stream, data, own_length, path).rstrip(b"\0"))
            continue
        if kind in _EXTENDED:
            said = _records(_read(stream, data, own_length, path), path, data)
            name, length = said.get("path", name), int(said.get("size", length))
            continue
        if kind in _FILES:
            yield Member(name or own_name, data, own_length)
        elif kind == tarfile.GNUTYPE_SPARSE:
            raise SourceError(f"{path}: {name or own_name} is a sparse file: not supported")
        name, length = "", -1


def read_data(stream: BinaryIO, member: Member, path: str) -> bytes:
    return _read(stream, member.offset, member.size, path)


def _read(stream: BinaryIO, offset: int, length: int, path: str) -> bytes:
    try:
        stream.seek(offset)
        data = stream.read(length)
    except BROKEN as error:
        raise SourceError(f"{path} is damaged or truncated at byte {offset:,}: {error}") from error
    if len(data) < length:
        raise _truncated(path, offset + len(data))
    return data


def _truncated(path: str, offset: int) -> SourceError:
    return SourceError(f"{path} is truncated: it ends at byte {offset:,}, without its end mark")


def _header(block: bytes) -> tuple[str, int, bytes]:
    """Name, size and kind; checked by the header's sum, as `tarfile` does."""
    plain = block[124] < 0x80 and block[257:262] == b"ustar" and not block[345]
    if plain:
        try:
            size = int(block[124:136].strip(b" \0") or b"0", 8)
            total = int(block[148:156].strip(b" \0") or b"0", 8)
        except ValueError as error:
            raise tarfile.HeaderError(str(error)) from error
        if total == sum(block) - sum(block[148:156]) + 8 * ord(" "):
            kind = block[156:157]
            name = _text(block[:100].partition(b"\0")[0])
            # old archives mark a folder by its name alone
            is_folder = kind == tarfile.AREGTYPE and name.endswith("/")
            return name, size, tarfile.DIRTYPE if is_folder else kind
    info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    return info.name, info.size, info.type


def _records(data: bytes, path: str, offset: int) -> dict[str, str]:
    """The records of an extended header: `length key=value`, one a line."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data) and data[at] != 0:
            digits = data[at : data.index(b" ", at)]
            stop = at + int(digits)
            key, _, value = data[at + len(digits) + 1 : stop - 1].partition(b"=")
            found[_text(key)] = _text(value)
            at = stop
    except ValueError as error:
        raise SourceError(f"{path}: a damaged extended header at byte {offset:,}") from error
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
