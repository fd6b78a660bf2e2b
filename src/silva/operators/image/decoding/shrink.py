"""Decoding at a smaller scale, where the next step shrinks the image anyway.

Law, `close`: area-resize(crop(decode(x))) ≈ sample(crop / f (decode at 1/f (x))), f = 2, 4, 8, as
long as the crop at 1/f has a quarter more pixels a side than are wanted. libjpeg makes each pixel
of the smaller image from the low frequencies of its block, which is nearly the mean of the pixels
it replaces. A crop's border then falls between pixels: its part is sampled there, denser than
wanted, and averaged. Bound, on photos: a mean difference of 2.5 levels of 255, 99 % within 16.
Counter-example where it is not close: an image of noise, or a resize that does not average
(bilinear takes two pixels of hundreds), which is never shrunk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from silva.operators.image.codecs import as_bytes, check_size, decode_options, upright, upright_size
from silva.operators.image.decoding.partial import decoded_and_moved, rows_of, upper_rows
from silva.operators.image.header import Header, read_header
from silva.operators.image.moves import (
    AVERAGING,
    Choose,
    Crop,
    CropResize,
    Move,
    Resize,
    move_scene,
)
from silva.operators.image.scene import Scene
from silva.operators.native import cv2, simplejpeg
from silva.operators.rows import Draw, Fuse, Link, Params, room

_FACTORS = (8, 4, 2)
_MARGIN = 1.25
"""Pixels, along a side, that must be left for each one that is wanted."""
_ROWS = 8
"""Below a crop, at the smaller scale: more than sampling between pixels looks at."""


def shrinking(choose: Choose) -> Fuse:
    """One kernel for decode() and a resize, from the function that chooses the move."""

    def fuse(params: Params, draw: Draw, next_params: Params, next_draw: Draw) -> Link | None:
        shrinks = params.get("shrink") and next_params["interpolation"] in AVERAGING
        if not shrinks and not params.get("partial"):
            return None
        decide = choose(next_params, next_draw)
        at_full_scale = decoded_and_moved(params, draw, decide)
        if not shrinks:
            return at_full_scale
        how = decode_options(params)
        allowed = params.get("partial", False)

        def link(row: int, value: Any, out: np.ndarray | None) -> Any:
            scene = value if type(value) is Scene else None
            data = as_bytes(value if scene is None else scene.image)
            header = read_header(data)
            if header is not None and header.format == "JPEG":
                check_size(header.height, header.width, how.limit)
                move = decide(row, *upright_size(header), scene)
                factor = _factor(move)
                if header.orientation != 1 and (header.height % factor or header.width % factor):
                    factor = 1  # the part of a pixel at the end would come to the front
                rows = rows_of(move, header, _ROWS * factor) if allowed else header.height
                pixels = _decode_at(data, how.gray, header, rows, factor)
                if pixels is not None:
                    image = _sample(upright(pixels, header), move, factor, out)
                    if scene is None:
                        return image
                    return move_scene(_Parts(move), scene.with_image(image))
            return at_full_scale(row, value, out)

        return link

    return fuse


def _factor(move: Move) -> int:
    """The largest factor that leaves as many pixels as the move needs."""
    if isinstance(move, CropResize):
        have = move.crop.size
    elif isinstance(move, Resize):
        have = move.old
    else:
        return 1
    for factor in _FACTORS:
        least = factor * _MARGIN
        if have[0] >= least * move.size[0] and have[1] >= least * move.size[1]:
            return factor
    return 1


def _decode_at(
    data: bytes, gray: bool, header: Header, rows: int, factor: int
) -> np.ndarray | None:
    """Decodes the upper rows at 1 / factor; None where this JPEG cannot be decoded that way."""
    if factor == 1:
        return None
    pixels = upper_rows(data, gray, header, rows, factor)
    if pixels is not None:
        return pixels
    size = -(-header.height // factor), -(-header.width // factor)
    try:
        pixels = simplejpeg.decode_jpeg(
            data, "GRAY" if gray else "RGB",
            min_height=size[0], min_width=size[1], min_factor=factor,
        )  # fmt: skip
    except (ValueError, KeyError):  # damaged, or odd: the plain way says what is wrong
        return None
    return pixels if pixels.shape[:2] == size else None


def _sample(image: np.ndarray, move: Move, factor: int, out: np.ndarray | None) -> np.ndarray:
    """Applies a move of the full image to the image at 1 / factor."""
    if isinstance(move, CropResize):
        crop = move.crop
    else:
        assert isinstance(move, Resize)
        crop = Crop(0, 0, *move.old)
    height, width = move.size
    across, down = crop.width / factor / width, crop.height / factor / height
    dense = max(2, math.ceil(across), math.ceil(down))
    across, down = across / dense, down / dense
    matrix = np.array(
        [
            [across, 0, crop.left / factor + across / 2 - 0.5],
            [0, down, crop.top / factor + down / 2 - 0.5],
        ]
    )
    sampled = cv2.warpAffine(
        image, matrix, (dense * width, dense * height),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE,
    )  # fmt: skip
    out = room(out, (height, width, image.shape[2]), image.dtype)
    cv2.resize(sampled, (width, height), dst=out, interpolation=cv2.INTER_AREA)
    return out


class _Parts:
    """Moves all parts of a scene but the image, which has been moved already."""

    __slots__ = ("_move",)

    def __init__(self, move: Move) -> None:
        self._move = move

    @property
    def size(self) -> tuple[int, int]:
        return self._move.size

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        return image

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        return self._move.boxes(boxes)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return self._move.mask(mask)
