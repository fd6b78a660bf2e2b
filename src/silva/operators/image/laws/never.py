"""Tempting rewrites of steps on images that change the data: never used, but named by `explain`."""

from __future__ import annotations

from silva.operators.image.laws.known import changes, only_moves
from silva.operators.laws import inner, inner_that, on, param, swapped
from silva.plan.expr import Call, Term
from silva.plan.law import law
from silva.plan.operator import has_fact

_STEPS = ("brightness", "contrast", "saturation", "hue")


@law(
    "grayscale_before_jitter",
    "grayscale(color_jitter(x)) = color_jitter(grayscale(x))",
    "never",
    fails=(
        "(255, 0, 0) turned by a third of the circle is (0, 255, 0): its luminance goes from 76 to "
        "150, where gray has no hue to turn; and channels are clamped, not their luminance"
    ),
)
def grayscale_before_jitter(call: Call) -> Term | None:
    return _before_jitter(call, call.args[0]) if call.op == "image.grayscale" else None


@law(
    "normalize_before_jitter",
    "normalize(color_jitter(x)) = color_jitter(normalize(x))",
    "never",
    fails=(
        "brightness 2 of the level 200 is 255, clamped; of its normalised value 1.36 it would be "
        "2.71, which is no level at all: color_jitter refuses floats"
    ),
)
def normalize_before_jitter(call: Call) -> Term | None:
    return _before_jitter(call, call.args[0]) if call.op == "image.normalize" else None


def _before_jitter(call: Call, term: Term) -> Call | None:
    """The term with `call` moved in front of the color_jitter that comes before it."""
    if not isinstance(term, Call):
        return None
    if term.op == "image.color_jitter":
        void = not any(changes(term, name) for name in _STEPS)
        return None if void else on(term, on(call, term.args[0]))
    below = _before_jitter(call, term.args[0]) if _is_between(term) else None
    return None if below is None else on(term, below)


def _is_between(call: Call) -> bool:
    """Whether people expect that the moved call could pass this one as well."""
    changes_values = has_fact(call.op, "keeps_bytes") and not has_fact(call.op, "moves")
    return only_moves(call) or changes_values or call.op in ("image.grayscale", "image.to_float")


@law(
    "grayscale_without_saturation",
    "grayscale(saturation(x)) = grayscale(x)",
    "never",
    fails="(200, 0, 0) at saturation 2 is clamped to (255, 0, 0): its luminance goes from 60 to 76",
)
def grayscale_without_saturation(call: Call) -> Term | None:
    first = inner(call, "image.color_jitter")
    if call.op != "image.grayscale" or first is None or not changes(first, "saturation"):
        return None
    alone = not any(changes(first, name) for name in _STEPS if name != "saturation")
    return on(call, first.args[0]) if alone else None


@law(
    "crop_before_blur",
    "crop(gaussian_blur(x)) = gaussian_blur(crop(x))",
    "never",
    fails="at its new border the crop is mirrored, where there were real neighbours before",
)
def crop_before_blur(call: Call) -> Term | None:
    first = inner_that(call, "blurs")
    return swapped(call, first) if has_fact(call.op, "crops") and first is not None else None


@law(
    "crop_before_resize",
    "crop(resize(x)) = resize(crop(x))",
    "never",
    fails=(
        "the crop counts pixels of another size; and even if it were scaled, its border would fall "
        "between pixels, where the resize blends with neighbours that are then cut off"
    ),
)
def crop_before_resize(call: Call) -> Term | None:
    first = inner(call, "image.resize", "image.resize_shorter")
    return swapped(call, first) if has_fact(call.op, "crops") and first is not None else None


@law(
    "crop_before_contrast",
    "crop(color_jitter(x)) = color_jitter(crop(x)), with contrast",
    "never",
    fails="contrast blends with the mean of the whole image, which is not the mean of a part of it",
)
def crop_before_contrast(call: Call) -> Term | None:
    first = inner(call, "image.color_jitter")
    if not has_fact(call.op, "crops") or first is None or not changes(first, "contrast"):
        return None
    return swapped(call, first)


@law(
    "resize_before_erasing",
    "resize(random_erasing(x)) = random_erasing(resize(x))",
    "never",
    fails=(
        "the edge of the rectangle is blended with its surroundings on the left side only, and its "
        "place is rounded to pixels of another size"
    ),
)
def resize_before_erasing(call: Call) -> Term | None:
    first = inner(call, "image.random_erasing")
    if call.op not in ("image.resize", "image.resize_shorter") or first is None:
        return None
    return swapped(call, first) if param(first, "probability") > 0 else None
