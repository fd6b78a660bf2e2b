"""Laws of operators on images that keep every bit.

Geometry that does not interpolate moves bytes; what works pixel by pixel on bytes is a table. So
they commute, and whatever makes the image smaller goes first.
"""

from __future__ import annotations

from silva.operators.image.laws.known import changes, channels, is_plain, size
from silva.operators.laws import inner, inner_that, on, param, swapped, with_params
from silva.plan.expr import Call, Term
from silva.plan.law import law
from silva.plan.operator import has_fact

_FIXED = ("image.crop", "image.center_crop")


@law(
    "crop_before_pixels",
    "crop(f(x)) = f(crop(x)), for pixelwise f on bytes",
    "exact",
    fails=(
        "a jitter of contrast, which depends on the mean of the whole image; floats, whose last "
        "bits OpenCV computes differently when a pixel is in another column"
    ),
)
def crop_before_pixels(call: Call) -> Term | None:
    first = inner_that(call, "pixelwise")
    if not has_fact(call.op, "crops") or first is None or channels(first.args[0]) is None:
        return None
    if first.op == "image.color_jitter" and changes(first, "contrast"):
        return None
    return swapped(call, first)


@law(
    "crop_before_flip",
    "crop(flip(x)) = flip(crop'(x)), the crop mirrored, where the size of x is known",
    "exact",
    fails=(
        "the middle 3 of 4 columns: in the mirrored image they are columns 1 to 3, not 0 to 2; "
        "boxes, whose floats are rounded in another order"
    ),
)
def crop_before_flip(call: Call) -> Term | None:
    first = inner_that(call, "flips")
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


@law(
    "crop_twice",
    "crop(crop(x)) = crop'(x), of images that are large enough for the first; also the middle",
    "exact",
    fails=(
        "a crop off the centre of a center_crop whose place is not known; the middle 2 of the "
        "middle 3 of 4 are not the middle 2 of 4; boxes, whose floats are rounded in another order"
    ),
)
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
    """The size of the smallest image on which the crop does not fail."""
    down, across = param(crop, "top") or 0, param(crop, "left") or 0
    height, width = _height_width(crop)
    return param(crop, "least") or (down + height, across + width)


@law(
    "gray_before_flip",
    "grayscale(flip(x)) = flip(grayscale(x)), for three channels to one",
    "exact",
    fails="floats, which grayscale therefore refuses",
)
def gray_before_flip(call: Call) -> Term | None:
    first = inner_that(call, "flips")
    gray = call.op == "image.grayscale" and param(call, "channels") == 1
    if not gray or first is None or channels(first.args[0]) != 3:
        return None
    return swapped(call, first)


@law(
    "flip_before_float",
    "flip(f(x)) = f(flip(x)), for f = to_float, normalize on bytes",
    "exact",
    fails="f = a blur of floats: its sums are computed in another order when the image is mirrored",
)
def flip_before_float(call: Call) -> Term | None:
    first = inner(call, "image.to_float", "image.normalize")
    if not has_fact(call.op, "flips") or first is None or channels(first.args[0]) is None:
        return None
    return swapped(call, first)


@law(
    "decode_upper_rows",
    "crop(decode(x)) = crop(decode down to its lower edge (x)), where damage is accepted",
    "exact",
    fails=(
        "decode(strict=True): of 199 photos in which 512 bytes were set to 0, 145 are refused when "
        "they are decoded whole, and none when their lower 40 % are not decoded"
    ),
    last=True,
)
def decode_upper_rows(call: Call) -> Term | None:
    first = inner(call, "image.decode")
    if not (has_fact(call.op, "crops") or call.op == "image.random_resized_crop") or first is None:
        return None
    if param(first, "strict") is not False or param(first, "partial") or not is_plain(call):
        return None
    return on(call, with_params(first, partial=True))


@law(
    "flip_twice",
    "flip(flip(x)) = x, in the same direction",
    "exact",
    fails="boxes: 100 - (100 - 0.1) is not 0.1 in float32; random flips, which draw independently",
)
def flip_twice(call: Call) -> Term | None:
    first = inner(call, "image.flip")
    if call.op != "image.flip" or first is None or first.params != call.params:
        return None
    below = first.args[0]
    return below if channels(below) is not None and is_plain(below) else None


@law(
    "resize_to_its_size",
    "resize(h, w)(x) = x, where x is known to be h × w",
    "exact",
    fails="resize_shorter to the size that one side has: the other side decides",
)
def resize_to_its_size(call: Call) -> Term | None:
    below = call.args[0] if call.op == "image.resize" else None
    if below is None or channels(below) is None or not is_plain(below):
        return None
    return below if size(below) == size(call) else None


@law(
    "grayscale_twice",
    "grayscale(c)(grayscale(d)(x)) = grayscale(c)(x)",
    "exact",
    fails="weights whose sum is not 1, with which gray would change each time",
)
def grayscale_twice(call: Call) -> Term | None:
    first = inner(call, "image.grayscale")
    return on(call, first.args[0]) if call.op == "image.grayscale" and first is not None else None


@law(
    "grayscale_of_gray",
    "grayscale(1)(x) = x, where x is known to have one channel",
    "exact",
    fails="grayscale(3), which makes three channels of one",
)
def grayscale_of_gray(call: Call) -> Term | None:
    if call.op != "image.grayscale" or param(call, "channels") != 1:
        return None
    return call.args[0] if channels(call.args[0]) == 1 else None


@law(
    "normalize_of_float",
    "normalize(to_float(x)) = normalize(x), on bytes",
    "exact",
    fails="x of floats from 0 to 255, which neither to_float nor normalize divides by 255",
)
def normalize_of_float(call: Call) -> Term | None:
    first = inner(call, "image.to_float")
    if call.op != "image.normalize" or first is None or channels(first.args[0]) is None:
        return None
    return on(call, first.args[0])


@law(
    "to_float_twice",
    "to_float(to_float(x)) = to_float(x)",
    "exact",
    fails="no counter-example is known: the first gives floats, which the second does not change",
)
def to_float_twice(call: Call) -> Term | None:
    return inner(call, "image.to_float") if call.op == "image.to_float" else None
