"""Bytes to pixels.

JPEG goes to libjpeg-turbo by way of simplejpeg, the fastest there is, and to OpenCV where
simplejpeg refuses (odd subsamplings); everything else goes to OpenCV. Damaged data is an error,
unless somebody asks for what most loaders do: to fill what is missing with gray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import simplejpeg

from silva.operators._image.header import Header, read_header
from silva.operators._image.scene import Scene, check, with_channels
from silva.operators.image_expr import MOST_PIXELS
from silva.operators.rows import Draw, Link, Params

_TURNS: dict[int, Callable[[Any], Any]] = {
    2: lambda x: cv2.flip(x, 1),
    3: lambda x: cv2.rotate(x, cv2.ROTATE_180),
    4: lambda x: cv2.flip(x, 0),
    5: cv2.transpose,
    6: lambda x: cv2.rotate(x, cv2.ROTATE_90_CLOCKWISE),
    7: lambda x: cv2.rotate(cv2.transpose(x), cv2.ROTATE_180),
    8: lambda x: cv2.rotate(x, cv2.ROTATE_90_COUNTERCLOCKWISE),
}
"""What makes an image upright, by EXIF orientation."""


def decode(params: Params, draw: Draw) -> Link:
    how = wanted(params)

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if type(value) is Scene:
            return value.with_image(decode_bytes(value.image, how))
        return decode_bytes(value, how)

    return link


class Wanted(NamedTuple):
    """What somebody wants of an image."""

    gray: bool = False
    limit: int = MOST_PIXELS
    """Pixels, at most."""
    strict: bool = True
    """A damaged image is an error."""


def wanted(params: Params) -> Wanted:
    limit = params.get("max_pixels", MOST_PIXELS)
    return Wanted(params.get("mode") == "gray", limit, params.get("strict", True))


def info(params: Params, draw: Draw) -> Link:
    """(height, width) as decode() would give them; of bytes, without decoding."""

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if isinstance(value, np.ndarray):
            check(value)
            return np.array(value.shape[:2], np.int64)
        data = as_bytes(value)
        header = read_header(data)
        if header is None:
            raise ValueError(f"not an image that is known: it begins with {data[:8]!r}")
        return np.array(upright_size(header), np.int64)

    return link


def upright_size(header: Header) -> tuple[int, int]:
    """Height and width once the image is turned as EXIF says."""
    turned = header.orientation >= 5
    return (header.width, header.height) if turned else (header.height, header.width)


def decode_bytes(data: Any, how: Wanted) -> np.ndarray:
    data = as_bytes(data)
    header = read_header(data)
    if header is not None:
        check_size(header.height, header.width, how.limit)
    if header is None or header.format != "JPEG":
        return _with_opencv(data, how, header.format if header else None)
    return upright(_jpeg(data, how), header)


def as_bytes(data: Any) -> bytes:
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if not isinstance(data, bytes):
        raise ValueError(f"decode() reads bytes, not {type(data).__name__}")
    if not data:
        raise ValueError("there is no image: the value is empty (0 bytes)")
    return data


def upright(pixels: np.ndarray, header: Header) -> np.ndarray:
    if header.orientation == 1:
        return pixels
    return with_channels(_TURNS[header.orientation](pixels))


def _jpeg(data: bytes, how: Wanted) -> np.ndarray:
    colours = "GRAY" if how.gray else "RGB"
    pixels: np.ndarray
    try:
        pixels = simplejpeg.decode_jpeg(data, colours)
        return pixels
    except (ValueError, KeyError) as error:  # KeyError: a subsampling that it has no name for
        reason = str(error)
    damaged = "Premature end" in reason or "Corrupt" in reason
    # extraneous bytes are common, harmless padding that every decoder steps over
    if "extraneous bytes" in reason or (damaged and not how.strict):
        pixels = simplejpeg.decode_jpeg(data, colours, strict=False)
        return pixels
    if damaged:
        raise ValueError(f"the JPEG is truncated or damaged ({len(data)} bytes): {reason}")
    return _with_opencv(data, how, "JPEG", cv2.IMREAD_IGNORE_ORIENTATION)


def _with_opencv(data: bytes, how: Wanted, form: str | None, flags: int = 0) -> np.ndarray:
    flags |= cv2.IMREAD_GRAYSCALE if how.gray else cv2.IMREAD_COLOR_RGB
    reason = ""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:  # e.g. above OpenCV's own limit of pixels
        pixels, reason = None, f": {getattr(error, 'err', error)}"
    if pixels is None and form is None:
        raise ValueError(f"not an image that can be decoded: it begins with {data[:8]!r}{reason}")
    if pixels is None:
        raise ValueError(f"the {form} is truncated or damaged ({len(data)} bytes){reason}")
    check_size(pixels.shape[0], pixels.shape[1], how.limit)
    return with_channels(pixels)


def check_size(height: int, width: int, limit: int) -> None:
    if height * width > limit:
        raise ValueError(
            f"the image is {height} × {width}, more than max_pixels={limit}: if it is not an "
            "attack, allow it with decode(max_pixels=…)"
        )
