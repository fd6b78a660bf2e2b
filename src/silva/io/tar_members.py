"""Finds the members of a tar file without reading their data.

`tarfile` takes about 30 µs per header, and a shard has tens of thousands. So the plain headers,
which are nearly all of a shard, are parsed here, and only the others by `tarfile`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from silva.errors import SourceError
from silva.io.byte_ranges import BROKEN

BLOCK = 512
_PIECE = 64 << 20
_MOST_BYTES, _DIGITS = 1 << 60, 18
"""The largest member: file offsets have 64 bits."""
_END = bytes(BLOCK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_LONG_NAME, _EXTENDED = tarfile.GNUTYPE_LONGNAME, (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_ABOUT_NEXT = (_LONG_NAME, *_EXTENDED)


class Member(NamedTuple):
    name: str
    offset: int
    """The byte at which the data starts."""
    size: int


def members(stream: BinaryIO, path: str, size: int | None) -> Iterator[Member]:
    """The regular files in order. If `size`, the size of the archive, is known, a truncated one is
    noticed at once."""
    at = 0
    name, length = "", -1  # set by an extended header for the next member
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
        if not 0 <= own_length < _MOST_BYTES:
            raise SourceError(
                f"{path} is damaged: the member at byte {at:,} claims to have {own_length} bytes"
            )
        data, at = at + BLOCK, at + BLOCK + -(-own_length // BLOCK) * BLOCK
        if size is not None and data + own_length > size:
            raise _truncated(path, data)
        if kind == _LONG_NAME:
            name = _text(_read(stream, data, own_length, path).rstrip(b"\0"))
            continue
        if kind in _EXTENDED:
            said = _records(_read(stream, data, own_length, path), path, data)
            name, length = said.path or name, length if said.size is None else said.size
            continue
        if kind in _FILES:
            yield Member(name or own_name, data, own_length)
        elif kind == tarfile.GNUTYPE_SPARSE:
            raise SourceError(
                f"{path}: the member {name or own_name!r} is a sparse file, which silva does not "
                "read: write the archive without --sparse"
            )
        name, length = "", -1


def read_data(stream: BinaryIO, member: Member, path: str) -> bytes:
    return _read(stream, member.offset, member.size, path)


def _read(stream: BinaryIO, offset: int, length: int, path: str) -> bytes:
    """Reads `length` bytes. Memory grows as they arrive, since a header may claim any length."""
    pieces: list[bytes] = []
    left = length
    try:
        stream.seek(offset)
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise _truncated(path, offset + length - left)
            pieces.append(piece)
            left -= len(piece)
    except BROKEN as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{path} is damaged or truncated at byte {offset:,}: {error}") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _truncated(path: str, offset: int) -> SourceError:
    return SourceError(f"{path} is truncated: it ends at byte {offset:,}, without its end mark")


def _header(block: bytes) -> tuple[str, int, bytes]:
    """The name, size and type of a member, after the checksum of the header was verified."""
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
            # old archives mark a folder only by its name
            is_folder = kind == tarfile.AREGTYPE and name.endswith("/")
            return name, size, tarfile.DIRTYPE if is_folder else kind
    info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    return info.name, info.size, info.type


class _Said(NamedTuple):
    """What an extended header says about the next member."""

    path: str = ""
    size: int | None = None


def _records(data: bytes, path: str, offset: int) -> _Said:
    """The records of an extended header: `length key=value`, one per line."""
    found: dict[bytes, bytes] = {}
    at = 0
    try:
        while at < len(data) and data[at] != 0:
            digits = data[at : data.index(b" ", at)]
            stop = at + _number(digits)
            if stop <= at + len(digits):
                raise ValueError(digits)
            key, _, value = data[at + len(digits) + 1 : stop - 1].partition(b"=")
            found[key] = value
            at = stop
        size = _number(found[b"size"]) if b"size" in found else None
    except ValueError as error:
        raise SourceError(f"{path} is damaged: extended header at byte {offset:,}") from error
    return _Said(_text(found.get(b"path", b"")), size)


def _number(digits: bytes) -> int:
    """An integer of digits only: `int` would also accept a sign and underscores."""
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise ValueError(f"not a number: {digits[:20]!r}")
    return int(digits)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
