"""Bytes to pixels, and pixels to bytes.

JPEG goes to libjpeg-turbo by way of simplejpeg, the fastest there is, and to OpenCV where
simplejpeg refuses (odd subsamplings); everything else goes to OpenCV. Damaged data is an error,
unless `strict=False` asks for what most loaders do: fill the missing part with gray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import is_array, one_of, positive
from silva.operators.image.declare import image_operator
from silva.operators.image.header import Header, read_header
from silva.operators.image.scene import Scene, check, on_image, with_channels
from silva.operators.native import cv2, simplejpeg
from silva.operators.rows import Draw, Link, Params
from silva.plan.expr import Expr

MOST_PIXELS = 178_956_970
"""Larger images are refused as decompression bombs, as Pillow does: half a gigabyte of RGB."""

_TURNS: dict[int, Callable[[Any], Any]] = {
    2: lambda x: cv2.flip(x, 1),
    3: lambda x: cv2.rotate(x, cv2.ROTATE_180),
    4: lambda x: cv2.flip(x, 0),
    5: lambda x: cv2.transpose(x),
    6: lambda x: cv2.rotate(x, cv2.ROTATE_90_CLOCKWISE),
    7: lambda x: cv2.rotate(cv2.transpose(x), cv2.ROTATE_180),
    8: lambda x: cv2.rotate(x, cv2.ROTATE_90_COUNTERCLOCKWISE),
}
"""What makes an image upright, by EXIF orientation."""


class CodecMethods(Expr):
    """Methods that decode and encode images."""

    __slots__ = ()

    def decode(
        self,
        mode: Literal["rgb", "gray"] = "rgb",
        max_pixels: int = MOST_PIXELS,
        shrink: bool = False,
        strict: bool = True,
    ) -> Self:
        """Decodes a JPEG, PNG, WebP, BMP or GIF (first frame) to uint8 pixels of 3 channels, or 1.

        EXIF orientation is applied, alpha dropped, 16 bits reduced to the upper 8. Truncated data,
        and images of more than `max_pixels`, are errors. `"gray"` is the codec's own luminance: the
        fastest, but not bit-equal to `decode().grayscale()` (they differ in saturated colours).
        `shrink` decodes a JPEG at 1/2, 1/4 or 1/8 where the next step is a `resize` or
        `random_resized_crop` by `"area"` that makes it smaller anyway: much faster for large
        photos, and within a level or two (`options(fidelity="close")` sets it where it applies).
        `strict=False` decodes a damaged JPEG as far as it can be read, with gray for the rest, as
        most loaders do; then a crop that follows lets silva decode only the rows that it needs.

        >>> import silva as sv
        >>> sv.image("bytes").decode("gray", max_pixels=10**6)
        bytes.decode(mode='gray', max_pixels=1000000)
        """
        one_of("mode", mode, ("rgb", "gray"))
        limit = positive("max_pixels", max_pixels)
        given = {"mode": mode, "max_pixels": limit, "shrink": shrink, "strict": strict}
        usual = {"mode": "rgb", "max_pixels": MOST_PIXELS, "shrink": False, "strict": True}
        unusual = {n: v for n, v in given.items() if is_array(v) or v != usual[n]}
        return self._call("image.decode", **unusual)

    def info(self) -> Expr:
        """Reads (height, width) from the header alone, as decode() would give them.

        >>> import silva as sv
        >>> sv.image("bytes").info()
        bytes.info()
        """
        return self._any("image.info")

    def encode(self, format: Literal["jpeg", "png", "webp"] = "jpeg", quality: int = 95) -> Expr:
        """Encodes the image to bytes; `quality` (1 to 100) is for JPEG and WebP.

        >>> import silva as sv
        >>> sv.image("photo").resize(64, 64).encode("webp", quality=80)
        ... # doctest: +ELLIPSIS
        photo.resize(...).encode(format='webp', quality=80)
        """
        one_of("format", format, ("jpeg", "png", "webp"))
        if not 1 <= positive("quality", quality) <= 100:
            raise PlanError(f"quality is from 1 to 100, not {quality}")
        return Expr(self._call("image.encode", format=format, quality=quality).term)


@image_operator("decode")
def decode(params: Params, draw: Draw) -> Link:
    how = decode_options(params)

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if type(value) is Scene:
            return value.with_image(decode_bytes(value.image, how))
        return decode_bytes(value, how)

    return link


class DecodeOptions(NamedTuple):
    """How an image is to be decoded."""

    gray: bool = False
    limit: int = MOST_PIXELS
    """Pixels, at most."""
    strict: bool = True
    """A damaged image is an error."""


def decode_options(params: Params) -> DecodeOptions:
    limit = params.get("max_pixels", MOST_PIXELS)
    return DecodeOptions(params.get("mode") == "gray", limit, params.get("strict", True))


@image_operator("info")
def info(params: Params, draw: Draw) -> Link:
    """(height, width) as decode() would give them, without decoding bytes."""

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if isinstance(value, np.ndarray):
            check(value)
            return np.array(value.shape[:2], np.int64)
        data = as_bytes(value)
        header = read_header(data)
        if header is None:
            raise ValueError(f"the format of the image is unknown: it begins with {data[:8]!r}")
        return np.array(upright_size(header), np.int64)

    return link


def upright_size(header: Header) -> tuple[int, int]:
    """Height and width after the image is turned as EXIF says."""
    turned = header.orientation >= 5
    return (header.width, header.height) if turned else (header.height, header.width)


def decode_bytes(data: Any, how: DecodeOptions) -> np.ndarray:
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
        raise ValueError("the value is empty (0 bytes): there is no image to decode")
    return data


def upright(pixels: np.ndarray, header: Header) -> np.ndarray:
    if header.orientation == 1:
        return pixels
    return with_channels(_TURNS[header.orientation](pixels))


def _jpeg(data: bytes, how: DecodeOptions) -> np.ndarray:
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


def _with_opencv(data: bytes, how: DecodeOptions, form: str | None, flags: int = 0) -> np.ndarray:
    flags |= cv2.IMREAD_GRAYSCALE if how.gray else cv2.IMREAD_COLOR_RGB
    reason = ""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:  # e.g. above OpenCV's own limit of pixels
        pixels, reason = None, f": {getattr(error, 'err', error)}"
    if pixels is None and form is None:
        raise ValueError(f"the image cannot be decoded: it begins with {data[:8]!r}{reason}")
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


@image_operator("encode")
def encode(params: Params, draw: Draw) -> Link:
    form, quality = params["format"], params["quality"]

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> Any:
        channels = image.shape[2]
        if image.dtype != np.uint8 or channels not in (1, 3):
            raise ValueError(
                f"encode() takes uint8 of 1 or 3 channels, not {image.dtype} of {channels}"
            )
        image = np.ascontiguousarray(image)
        if form == "jpeg":
            return simplejpeg.encode_jpeg(image, quality, "GRAY" if channels == 1 else "RGB")
        flags = [cv2.IMWRITE_WEBP_QUALITY, quality] if form == "webp" else []
        pixels = image if channels == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        good, data = cv2.imencode(f".{form}", pixels, flags)
        if not good:
            raise ValueError(f"an image of {image.shape} cannot be written as {form}")
        return data.tobytes()

    return on_image(work)
