"""Tempting rewrites of steps on images that change the data: never used, but named by `explain`."""

from __future__ import annotations

from silva.operators.image_parts import BLURS, CROPS, MOVES, ON_COLOURS, changes
from silva.operators.law_parts import inner, on, param, swapped
from silva.plan.expr import Call, Term
from silva.plan.law import Law, register_law

_STEPS = ("brightness", "contrast", "saturation", "hue")
_BETWEEN = (*MOVES, *ON_COLOURS, "image.grayscale", "image.to_float")


def grayscale_before_jitter(call: Call) -> Term | None:
    return _before_jitter(call, call.args[0]) if call.op == "image.grayscale" else None


def normalize_before_jitter(call: Call) -> Term | None:
    return _before_jitter(call, call.args[0]) if call.op == "image.normalize" else None


def _before_jitter(call: Call, term: Term) -> Call | None:
    """`call` moved down to below the first color_jitter that it comes after."""
    if not isinstance(term, Call):
        return None
    if term.op == "image.color_jitter":
        void = not any(changes(term, name) for name in _STEPS)
        return None if void else on(term, on(call, term.args[0]))
    below = _before_jitter(call, term.args[0]) if term.op in _BETWEEN else None
    return None if below is None else on(term, below)


def grayscale_without_saturation(call: Call) -> Term | None:
    first = inner(call, "image.color_jitter")
    if call.op != "image.grayscale" or first is None or not changes(first, "saturation"):
        return None
    alone = not any(changes(first, name) for name in _STEPS if name != "saturation")
    return on(call, first.args[0]) if alone else None


def crop_before_blur(call: Call) -> Term | None:
    first = inner(call, *BLURS)
    return swapped(call, first) if call.op in CROPS and first is not None else None


def crop_before_resize(call: Call) -> Term | None:
    first = inner(call, "image.resize", "image.resize_shorter")
    return swapped(call, first) if call.op in CROPS and first is not None else None


def crop_before_contrast(call: Call) -> Term | None:
    first = inner(call, "image.color_jitter")
    if call.op not in CROPS or first is None or not changes(first, "contrast"):
        return None
    return swapped(call, first)


def resize_before_erasing(call: Call) -> Term | None:
    first = inner(call, "image.random_erasing")
    if call.op not in ("image.resize", "image.resize_shorter") or first is None:
        return None
    return swapped(call, first) if param(first, "probability") > 0 else None


register_law(
    Law(
        "grayscale_before_jitter",
        "grayscale(color_jitter(x)) = color_jitter(grayscale(x))",
        grayscale_before_jitter,
        "never",
        "(255, 0, 0) turned by a third of the circle is (0, 255, 0): its luminance goes from 76 to "
        "150, where gray has no hue to turn; and channels are clamped, not their luminance",
    )
)
register_law(
    Law(
        "normalize_before_jitter",
        "normalize(color_jitter(x)) = color_jitter(normalize(x))",
        normalize_before_jitter,
        "never",
        "brightness 2 of the level 200 is 255, clamped; of its normalised value 1.36 it would be "
        "2.71, which is no level at all: color_jitter refuses floats",
    )
)
register_law(
    Law(
        "grayscale_without_saturation",
        "grayscale(saturation(x)) = grayscale(x)",
        grayscale_without_saturation,
        "never",
        "(200, 0, 0) at saturation 2 is clamped to (255, 0, 0): its luminance goes from 60 to 76",
    )
)
register_law(
    Law(
        "crop_before_blur",
        "crop(gaussian_blur(x)) = gaussian_blur(crop(x))",
        crop_before_blur,
        "never",
        "at its new border the crop is mirrored, where there were real neighbours before",
    )
)
register_law(
    Law(
        "crop_before_resize",
        "crop(resize(x)) = resize(crop(x))",
        crop_before_resize,
        "never",
        "the crop counts pixels of another size; and even if it were scaled, its border would fall "
        "between pixels, where the resize blends with neighbours that are then cut off",
    )
)
register_law(
    Law(
        "crop_before_contrast",
        "crop(color_jitter(x)) = color_jitter(crop(x)), with contrast",
        crop_before_contrast,
        "never",
        "contrast blends with the mean of the whole image, which is not the mean of a part of it",
    )
)
register_law(
    Law(
        "resize_before_erasing",
        "resize(random_erasing(x)) = random_erasing(resize(x))",
        resize_before_erasing,
        "never",
        "the edge of the rectangle is blended with its surroundings on the left side only, and its "
        "place is rounded to pixels of another size",
    )
)
