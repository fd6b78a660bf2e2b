"""What is known of an image before there is one: its numbers and its size, from the calls that make
it. Laws hold for bytes, and some for sizes that are known; elsewhere they are not used."""

from __future__ import annotations

from silva.operators.law_parts import param
from silva.plan.expr import Call, Term, width

CROPS = ("image.crop", "image.center_crop", "image.random_crop")
FLIPS = ("image.flip", "image.random_flip")
BLURS = ("image.gaussian_blur", "image.random_gaussian_blur")
RESIZES = ("image.resize", "image.resize_shorter", "image.random_resized_crop")
MOVES = (*CROPS, *FLIPS, *RESIZES, "image.random_iou_crop")
"""Geometry without a fill, so that it does not matter how many channels there are."""
_FILLED = (
    "image.pad", "image.pad_to", "image.rotate", "image.random_rotate", "image.random_zoom_out",
)  # fmt: skip
ON_COLOURS = ("image.color_jitter", *BLURS, "image.random_erasing")
_SIZED = (*CROPS, "image.resize", "image.random_resized_crop", "image.pad_to")
_SAME_SIZE = (
    *FLIPS, *ON_COLOURS, "image.grayscale", "image.to_float", "image.normalize", "image.rotate",
    "image.random_rotate",
)  # fmt: skip


def channels(term: Term) -> int | None:
    """The number of channels of an image of uint8; None where it is not known to be one. Nor is a
    decode that may shrink: what it gives depends on the step after it."""
    if not isinstance(term, Call):
        return None
    if term.op == "image.decode":
        return None if param(term, "shrink") else 1 if param(term, "mode") == "gray" else 3
    below = channels(term.args[0]) if term.args else None
    if term.op == "image.grayscale":
        return None if below is None else int(param(term, "channels"))
    return below if term.op in (*MOVES, *_FILLED, *ON_COLOURS) else None


def size(term: Term) -> tuple[int, int] | None:
    """Height and width of an image, where they follow from the calls alone."""
    if not isinstance(term, Call):
        return None
    if term.op in _SIZED:
        return param(term, "height"), param(term, "width")
    return size(term.args[0]) if term.op in _SAME_SIZE else None


def is_plain(term: Term) -> bool:
    """No boxes go along, whose floats would be rounded in another order."""
    return width(term) == 1


def changes(jitter: Call, name: str) -> bool:
    """Whether a color_jitter changes this at all."""
    return bool(param(jitter, name) != ((0.0, 0.0) if name == "hue" else (1.0, 1.0)))
