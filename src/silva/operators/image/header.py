"""The size of an encoded image, and how to turn it, read from its first bytes.

A few bytes can announce an image of many gigabytes, so the size is checked before a decoder runs.
JPEG markers are found just as libjpeg finds them; whoever disagrees on where the size stands could
be tricked.
"""

from __future__ import annotations

from struct import error as StructError
from struct import unpack_from
from typing import NamedTuple


class Header(NamedTuple):
    format: str
    height: int
    width: int
    orientation: int = 1
    """EXIF's number, 1 to 8; read for JPEG only (OpenCV turns the other formats itself)."""
    height_at: int = 0
    """Where the height stands in a JPEG that is coded in one go from top to bottom, else 0."""


def read_header(data: bytes) -> Header | None:
    """What the header says, or None for a format that is not known here.

    >>> read_header(b"GIF89a" + bytes([3, 0, 2, 0]))
    Header(format='GIF', height=2, width=3, orientation=1, height_at=0)
    """
    try:
        if data[:2] == b"\xff\xd8":
            return _jpeg(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            width, height = unpack_from(">II", data, 16)
            return Header("PNG", height, width)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            width, height = unpack_from("<HH", data, 6)
            return Header("GIF", height, width)
        if data[:2] == b"BM":
            old = unpack_from("<I", data, 14)[0] == 12
            width, height = unpack_from("<HH" if old else "<ii", data, 18)
            return Header("BMP", abs(height), width)  # a negative height: rows go downwards
    except (StructError, IndexError):
        raise ValueError(f"the image is truncated within its header ({len(data)} bytes)") from None
    return None


def _webp(data: bytes) -> Header:
    form = data[12:16]
    if form == b"VP8X":  # 24 bits each, minus one
        width, height = (int.from_bytes(data[i : i + 3], "little") + 1 for i in (24, 27))
    elif form == b"VP8L":  # 14 bits each, minus one
        bits = unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (x & 0x3FFF for x in unpack_from("<HH", data, 26))
    return Header("WebP", height, width)


def _jpeg(data: bytes) -> Header:
    size: tuple[int, int] | None = None
    orientation = height_at = 0
    restarts = False
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0:
            raise IndexError
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in (0xDA, 0xD9):  # the scan begins, or the image ends
            break
        if marker <= 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a body
            continue
        (length,) = unpack_from(">H", data, at)
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            size = size or unpack_from(">HH", data, at + 3)
            height_at = at + 3 if marker <= 0xC1 else 0  # others are progressive, or odd
        elif marker == 0xDD:  # the scan has restarts
            restarts = True
        elif marker == 0xE1 and not orientation and data[at + 2 : at + 8] == b"Exif\0\0":
            orientation = _orientation(data[at + 8 : at + length])
        at += length
    if size is None:
        raise ValueError("the JPEG has no frame: it holds no image")
    in_frame, in_scan = data[height_at + 4 : height_at + 5], data[at + 2 : at + 3]  # components
    if restarts or in_frame != in_scan or in_frame not in (b"\1", b"\3"):
        height_at = 0
    return Header("JPEG", *size, orientation or 1, height_at)


def _orientation(tiff: bytes) -> int:
    """The orientation tag of an EXIF block; 1 where there is none, or where it makes no sense."""
    order = "<" if tiff[:2] == b"II" else ">"
    try:
        (start,) = unpack_from(order + "I", tiff, 4)
        (count,) = unpack_from(order + "H", tiff, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, _, _, value = unpack_from(order + "HHIH", tiff, entry)
            if tag == 0x0112:
                return value if 1 <= value <= 8 else 1
    except StructError:
        pass
    return 1
