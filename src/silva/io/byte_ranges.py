"""Files of lines, cut into units by byte: any unit can be read without those before it.

A unit owns the lines that *start* in its byte range, and reads past its end to finish the last one.
So every line belongs to exactly one unit, wherever the borders are, and a line longer than a unit
leaves some units empty. A compressed file cannot be entered in the middle: it is one unit, read as
a stream. Units grow with the data, so that there are enough to shuffle and few enough to schedule.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np

from silva.errors import SourceError
from silva.io.file_source import FileSource

SMALLEST, LARGEST, MANY = 4 << 10, 4 << 20, 4096
PIECE = 1 << 20
"""Bytes of lines that are decoded at once: their Python objects take several times as much."""

_TAIL = 2 << 10
"""Bytes read past the end of a unit, in which its last line usually ends."""

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED = tuple(_OPENERS)
BROKEN = (EOFError, zlib.error, lzma.LZMAError, OSError)
"""What decompressors raise for damaged or truncated files."""


class LineSource(FileSource):
    """A source of lines: a unit is a byte range of a file, or a whole file if it is compressed."""

    unit_bytes: int | None
    """The size of a unit; by default 1/4096 of all bytes, between 4 KiB and 4 MiB."""

    @functools.cached_property
    def _size(self) -> int:
        total = int(self.files.listing.sizes.sum())
        return self.unit_bytes or min(max(total // MANY, SMALLEST), LARGEST)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        """The number of units up to and including each file."""
        listing = self.files.listing
        counts = -(-listing.sizes // self._size)
        packed = np.array([path.endswith(COMPRESSED) for path in listing.paths], dtype=bool)
        return np.cumsum(np.where(packed, np.minimum(counts, 1), counts))

    def fingerprint(self) -> str:
        """The files and the size of units: a state names a row by its unit and its place in it."""
        return f"{self.unit_bytes or 'auto'}:{self.files.fingerprint}"

    def units(self) -> int:
        return int(self._ends[-1])

    def place(self, unit: int) -> tuple[int, int]:
        """The file of a unit, and the byte at which the unit begins."""
        file = int(np.searchsorted(self._ends, unit, side="right"))
        before = int(self._ends[file - 1]) if file else 0
        return file, (unit - before) * self._size

    def path_of(self, unit: int) -> str:
        """The file that holds a unit."""
        return self.files.listing.paths[self.place(unit)[0]]

    def pieces(self, unit: int) -> Iterator[tuple[int, bytes]]:
        """The whole lines of a unit, in pieces of about 1 MiB, each with its byte offset."""
        file, start = self.place(unit)
        path = self.files.listing.paths[file]
        if path.endswith(COMPRESSED):
            with self.files.open(file) as stream:
                yield from whole_lines(decompressed(stream, path))
            return
        offset, data = self._owned(file, start)
        view = memoryview(data)
        at = 0
        while at < len(data):
            stop = at + PIECE
            if stop < len(data):
                stop = data.find(b"\n", stop - 1) + 1 or len(data)
            yield offset + at, bytes(view[at:stop])
            at = stop

    def _owned(self, file: int, start: int) -> tuple[int, bytes]:
        """The offset and the bytes of all lines that start in this unit."""
        first = max(start - 1, 0)  # the byte before shows whether a line starts at `start`
        length = start + self._size - first
        data = self.files.read_range(file, first, length + _TAIL)
        own = min(length, len(data))
        skip = data.find(b"\n", 0, own) + 1 if start else 0
        if (start and not skip) or skip == own:
            return start, b""
        end = data.find(b"\n", own - 1) + 1
        if end or len(data) < length + _TAIL:
            return first + skip, data[skip : end or None]
        return first + skip, data[skip:] + self._rest_of_line(file, first + len(data))

    def _rest_of_line(self, file: int, start: int) -> bytes:
        """From `start` up to and including the next newline, or to the end of the file."""
        found: list[bytes] = []
        while True:
            data = self.files.read_range(file, start, PIECE)
            end = data.find(b"\n") + 1
            found.append(data[: end or None])
            if end or len(data) < PIECE:
                return b"".join(found)
            start += PIECE


def plain_stream(stream: BinaryIO, path: str) -> BinaryIO:
    """The content of a file, decompressed if its name says that it is compressed."""
    suffix = next((s for s in COMPRESSED if path.endswith(s)), None)
    return stream if suffix is None else cast(BinaryIO, _OPENERS[suffix](stream, "rb"))


def decompressed(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """The content of a compressed file, 1 MiB at a time."""
    with plain_stream(stream, path) as plain:
        while True:
            try:
                data = plain.read(PIECE)
            except BROKEN as error:
                raise SourceError(
                    f"{path} is truncated, damaged or not compressed as its name says: {error}"
                ) from error
            if not data:
                return
            yield data


def whole_lines(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The same bytes, cut at line ends, each piece with its offset."""
    offset, pending = 0, [b""]
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            piece = b"".join([*pending, chunk[:cut]])
            yield offset, piece
            offset, pending = offset + len(piece), []
        pending.append(chunk[cut:])
    last = b"".join(pending)
    if last:
        yield offset, last
