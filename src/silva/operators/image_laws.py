"""Laws of operators on images that keep every bit.

Geometry that does not interpolate moves bytes; what works pixel by pixel on bytes is a table. So
they commute, and whatever makes the image smaller goes first.
"""

from __future__ import annotations

import silva.operators.image_laws_close
import silva.operators.image_laws_never  # noqa: F401  registers them
from silva.operators.image_parts import CROPS, FLIPS, changes, channels, is_plain, size
from silva.operators.law_parts import inner, on, param, swapped, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import Law, register_law

_FIXED = ("image.crop", "image.center_crop")


def crop_before_pixels(call: Call) -> Term | None:
    first = inner(
        call, "image.grayscale", "image.color_jitter", "image.to_float", "image.normalize"
    )
    if call.op not in CROPS or first is None or channels(first.args[0]) is None:
        return None
    if first.op == "image.color_jitter" and changes(first, "contrast"):
        return None
    return swapped(call, first)


def crop_before_flip(call: Call) -> Term | None:
    first = inner(call, *FLIPS)
    if call.op not in _FIXED or first is None or not is_plain(call):
        return None
    whole, part = size(first.args[0]), size(call)
    if whole is None or part is None or part == whole or part[0] > whole[0] or part[1] > whole[1]:
        return None
    side = param(first, "direction") == "horizontal"
    room = whole[side] - part[side]
    if call.op == "image.center_crop":
        return swapped(call, first) if room % 2 == 0 else None
    name = "left" if side else "top"
    if param(call, "top") + part[0] > whole[0] or param(call, "left") + part[1] > whole[1]:
        return None
    mirrored = room - param(call, name)
    if first.op == "image.random_flip" and mirrored != param(call, name):
        return None
    return swapped(with_params(call, **{name: mirrored}), first)


def decode_upper_rows(call: Call) -> Term | None:
    first = inner(call, "image.decode")
    if call.op not in (*CROPS, "image.random_resized_crop") or first is None:
        return None
    if param(first, "strict") is not False or param(first, "partial") or not is_plain(call):
        return None
    return on(call, with_params(first, partial=True))


def crop_twice(call: Call) -> Term | None:
    first = inner(call, *_FIXED)
    if call.op not in _FIXED or first is None or not is_plain(call):
        return None
    (tall, wide), (height, width) = _height_width(first), _height_width(call)
    least = _least(call)
    if least[0] > tall or least[1] > wide:
        return None
    down, across = (tall - height) // 2, (wide - width) // 2
    if call.op == "image.crop":
        down, across = param(call, "top"), param(call, "left")
    place = {}
    if first.op == "image.crop":
        place = {"top": param(first, "top") + down, "left": param(first, "left") + across}
    elif 2 * down != tall - height or 2 * across != wide - width:
        return None
    return with_params(first, **place, height=height, width=width, least=_least(first))


def _height_width(crop: Call) -> tuple[int, int]:
    return param(crop, "height"), param(crop, "width")


def _least(crop: Call) -> tuple[int, int]:
    """The smallest image on which it does not fail."""
    down, across = param(crop, "top") or 0, param(crop, "left") or 0
    height, width = _height_width(crop)
    return param(crop, "least") or (down + height, across + width)


def gray_before_flip(call: Call) -> Term | None:
    first = inner(call, *FLIPS)
    gray = call.op == "image.grayscale" and param(call, "channels") == 1
    if not gray or first is None or channels(first.args[0]) != 3:
        return None
    return swapped(call, first)


def flip_before_float(call: Call) -> Term | None:
    first = inner(call, "image.to_float", "image.normalize")
    if call.op not in FLIPS or first is None or channels(first.args[0]) is None:
        return None
    return swapped(call, first)


def flip_twice(call: Call) -> Term | None:
    first = inner(call, "image.flip")
    if call.op != "image.flip" or first is None or first.params != call.params:
        return None
    below = first.args[0]
    return below if channels(below) is not None and is_plain(below) else None


def resize_to_its_size(call: Call) -> Term | None:
    below = call.args[0] if call.op == "image.resize" else None
    if below is None or channels(below) is None or not is_plain(below):
        return None
    return below if size(below) == size(call) else None


def grayscale_twice(call: Call) -> Term | None:
    first = inner(call, "image.grayscale")
    return on(call, first.args[0]) if call.op == "image.grayscale" and first is not None else None


def grayscale_of_gray(call: Call) -> Term | None:
    if call.op != "image.grayscale" or param(call, "channels") != 1:
        return None
    return call.args[0] if channels(call.args[0]) == 1 else None


def normalize_of_float(call: Call) -> Term | None:
    first = inner(call, "image.to_float")
    if call.op != "image.normalize" or first is None or channels(first.args[0]) is None:
        return None
    return on(call, first.args[0])


def to_float_twice(call: Call) -> Term | None:
    return inner(call, "image.to_float") if call.op == "image.to_float" else None


register_law(
    Law(
        "crop_before_pixels",
        "crop(f(x)) = f(crop(x)), for f = grayscale, color_jitter, to_float, normalize on bytes",
        crop_before_pixels,
        "exact",
        "a jitter of contrast, which looks at the mean of the whole image; floats, of which OpenCV "
        "makes other last bits where a pixel stands in another column",
    )
)
register_law(
    Law(
        "crop_before_flip",
        "crop(flip(x)) = flip(crop'(x)), the crop mirrored, where the size of x is known",
        crop_before_flip,
        "exact",
        "the middle 3 of 4 columns: those of the mirrored image are columns 1 to 3, not 0 to 2; "
        "boxes, whose floats are rounded in another order",
    )
)
register_law(
    Law(
        "crop_twice",
        "crop(crop(x)) = crop'(x), of images that are large enough for the first; also the middle",
        crop_twice,
        "exact",
        "a box off the middle of a middle whose place is not known; the middle 2 of the middle 3 "
        "of 4 are not the middle 2 of 4; boxes, whose floats are rounded in another order",
    )
)
register_law(
    Law(
        "gray_before_flip",
        "grayscale(flip(x)) = flip(grayscale(x)), for three channels to one",
        gray_before_flip,
        "exact",
        "floats, which grayscale refuses for that reason",
    )
)
register_law(
    Law(
        "flip_before_float",
        "flip(f(x)) = f(flip(x)), for f = to_float, normalize on bytes",
        flip_before_float,
        "exact",
        "a blur of floats in the place of f: its sums are made in another order when mirrored",
    )
)
register_law(
    Law(
        "decode_upper_rows",
        "crop(decode(x)) = crop(decode down to its lower edge (x)), where damage is let pass",
        decode_upper_rows,
        "exact",
        "decode(strict=True): of 199 photos with 512 bytes of zeros within, 145 are refused when "
        "they are decoded whole, and none when their lower 40 % are left out",
        last=True,
    )
)
register_law(
    Law(
        "flip_twice",
        "flip(flip(x)) = x, in the same direction",
        flip_twice,
        "exact",
        "boxes: 100 - (100 - 0.1) is not 0.1 in float32; random flips, which draw apart",
    )
)
register_law(
    Law(
        "resize_to_its_size",
        "resize(h, w)(x) = x, where x is known to be h × w",
        resize_to_its_size,
        "exact",
        "resize_shorter to the size that one side has: the other side decides",
    )
)
register_law(
    Law(
        "grayscale_twice",
        "grayscale(c)(grayscale(d)(x)) = grayscale(c)(x)",
        grayscale_twice,
        "exact",
        "weights that do not sum up to 1, which would make gray darker each time",
    )
)
register_law(
    Law(
        "grayscale_of_gray",
        "grayscale(1)(x) = x, where x is known to have one channel",
        grayscale_of_gray,
        "exact",
        "grayscale(3), which makes three channels of one",
    )
)
register_law(
    Law(
        "normalize_of_float",
        "normalize(to_float(x)) = normalize(x), on bytes",
        normalize_of_float,
        "exact",
        "x of floats from 0 to 255: to_float leaves them as they are, and so does normalize",
    )
)
register_law(
    Law(
        "to_float_twice",
        "to_float(to_float(x)) = to_float(x)",
        to_float_twice,
        "exact",
        "no image is known to fail: the first gives floats, which the second leaves as they are",
    )
)
