"""Decoding a JPEG only as far down as the next step, a crop, looks.

Law, exact: crop(decode(x)) = crop(decode down to its lower edge (x)), where damage is accepted
(`strict=False`). A JPEG is coded from top to bottom, and a decoder that reads a smaller height
stops there; so the height is changed in the header of a copy of the bytes. The decoder then skips
the rest in search of the end, and warns about it if nothing else was wrong before: after any other
warning, the image is decoded whole. Counter-example for `strict=True`:
data that is damaged is most often found by its ending too early, which a decoder that stops before
cannot see.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from silva.operators.image.codecs import as_bytes, check_size, decode, decode_options
from silva.operators.image.header import Header, read_header
from silva.operators.image.moves import Choose, Crop, CropResize, Decide, Move, moved
from silva.operators.image.scene import Scene, guarded
from silva.operators.native import simplejpeg
from silva.operators.rows import Draw, Fuse, Link, Params

_MARGIN = 8
"""Rows below the edge: colours of fewer rows than the image's are blended with the next ones."""
_WORTH = 15 / 16
"""Of the rows, at most: the last few are decoded as fast as a copy with another height is made."""
_REST = "extraneous bytes before marker 0xd9"
"""The complaint about rows that the header does not speak of, followed by the end of the image."""


def partly(choose: Choose) -> Fuse:
    """One kernel for decode() and a crop, from the function that chooses the crop."""

    def fuse(params: Params, draw: Draw, next_params: Params, next_draw: Draw) -> Link | None:
        if not params.get("partial"):
            return None
        return decoded_and_moved(params, draw, choose(next_params, next_draw))

    return fuse


def decoded_and_moved(params: Params, draw: Draw, decide: Decide) -> Link:
    """Decodes and moves an image; decodes only a part where that is allowed and enough."""
    how = decode_options(params)
    allowed = params.get("partial", False)
    whole, move_whole = decode(params, draw), moved(decide)

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if allowed and type(value) is not Scene:
            value = as_bytes(value)
            header = read_header(value)
            if header is not None and header.format == "JPEG":
                check_size(header.height, header.width, how.limit)
                move = decide(row, header.height, header.width, None)
                pixels = upper_rows(value, how.gray, header, rows_of(move, header))
                if pixels is not None:
                    return guarded(lambda _, image, out: move.image(image, out), row, pixels, out)
        return move_whole(row, whole(row, value, None), out)

    return link


def rows_of(move: Move, header: Header, margin: int = _MARGIN) -> int:
    """How many rows of the image as it is stored must be decoded for a move."""
    crop = move.crop if isinstance(move, CropResize) else move
    if not isinstance(crop, Crop) or not header.height_at or header.orientation != 1:
        return header.height
    if min(crop.top, crop.left) < 0 or crop.left + crop.width > header.width:
        return header.height  # to fail as ever
    rows = crop.top + crop.height + margin
    return rows if rows <= _WORTH * header.height else header.height


def upper_rows(
    data: bytes, gray: bool, header: Header, rows: int, factor: int = 1
) -> np.ndarray | None:
    """Decodes the upper rows at 1 / factor; None where that is all rows, or is not possible."""
    if rows >= header.height:
        return None
    lower = bytearray(data)
    lower[header.height_at : header.height_at + 2] = rows.to_bytes(2, "big")
    height, width = -(-rows // factor), -(-header.width // factor)
    pixels = np.empty((height, width, 1 if gray else 3), np.uint8)
    try:
        simplejpeg.decode_jpeg(
            lower, "GRAY" if gray else "RGB", min_height=height, min_width=width,
            min_factor=factor, buffer=pixels,
        )  # fmt: skip
    except (ValueError, KeyError) as error:  # all rows are decoded when it finds the rest
        return pixels if str(error).endswith(_REST) else None
    return pixels
