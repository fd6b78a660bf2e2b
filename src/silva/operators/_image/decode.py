"""Bytes to pixels.

JPEG goes to libjpeg-turbo by way of simplejpeg, the fastest there is, and to OpenCV where
simplejpeg refuses (odd subsamplings); everything else goes to OpenCV. Damaged data is an error:
other loaders fill what is missing with gray, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import simplejpeg

from silva.columns import Column, Values
from silva.operators._image.header import read_header
from silva.operators._image.rows import Params

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


def decode(columns: list[Column], params: Params, draw: object) -> Column:
    gray, limit = params["mode"] == "gray", params["max_pixels"]
    rows = columns[0].rows()
    return Values([None if data is None else _decode(data, gray, limit) for data in rows])


def _decode(data: Any, gray: bool, limit: int) -> np.ndarray:
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if not isinstance(data, bytes):
        raise ValueError(f"decode() reads bytes, not {type(data).__name__}")
    if not data:
        raise ValueError("there is no image: the value is empty (0 bytes)")
    header = read_header(data)
    if header is not None:
        _check_size(header.height, header.width, limit)
    if header is None or header.format != "JPEG":
        return _with_opencv(data, gray, limit, header.format if header else None)
    pixels = _jpeg(data, gray, limit)
    if header.orientation == 1:
        return pixels
    return _with_channels(_TURNS[header.orientation](pixels))


def _jpeg(data: bytes, gray: bool, limit: int) -> np.ndarray:
    colours = "GRAY" if gray else "RGB"
    pixels: np.ndarray
    try:
        pixels = simplejpeg.decode_jpeg(data, colours)
        return pixels
    except (ValueError, KeyError) as error:  # KeyError: a subsampling that it has no name for
        reason = str(error)
    if "extraneous bytes" in reason:  # common, harmless padding that every decoder steps over
        pixels = simplejpeg.decode_jpeg(data, colours, strict=False)
        return pixels
    if "Premature end" in reason or "Corrupt" in reason:
        raise ValueError(f"the JPEG is truncated or damaged ({len(data)} bytes): {reason}")
    return _with_opencv(data, gray, limit, "JPEG", cv2.IMREAD_IGNORE_ORIENTATION)


def _with_opencv(
    data: bytes, gray: bool, limit: int, form: str | None, flags: int = 0
) -> np.ndarray:
    flags |= cv2.IMREAD_GRAYSCALE if gray else cv2.IMREAD_COLOR_RGB
    reason = ""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:  # e.g. above OpenCV's own limit of pixels
        pixels, reason = None, f": {getattr(error, 'err', error)}"
    if pixels is None and form is None:
        raise ValueError(f"not an image that can be decoded: it begins with {data[:8]!r}{reason}")
    if pixels is None:
        raise ValueError(f"the {form} is truncated or damaged ({len(data)} bytes){reason}")
    _check_size(pixels.shape[0], pixels.shape[1], limit)
    return _with_channels(pixels)


def _check_size(height: int, width: int, limit: int) -> None:
    if height * width > limit:
        raise ValueError(
            f"the image is {height} × {width}, more than max_pixels={limit}: if it is not an "
            "attack, allow it with decode(max_pixels=…)"
        )


def _with_channels(pixels: Any) -> np.ndarray:
    """OpenCV drops the channel axis of gray images; here it is put back."""
    array: np.ndarray = pixels
    return array[:, :, None] if array.ndim == 2 else array
