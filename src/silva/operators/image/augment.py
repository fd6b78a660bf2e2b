"""Policies of random augmentations: TrivialAugment and RandAugment, as torchvision defines them.

A policy is a table of augmentations, each with its magnitudes and whether their sign is drawn too.
Of a row's random numbers, one chooses the augmentation, one the sign and, in TrivialAugment, one
the magnitude. Geometric augmentations move boxes and masks along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import integer, numbers, one_of
from silva.operators.image import colour
from silva.operators.image.declare import image_operator
from silva.operators.image.filters import sharpened
from silva.operators.image.levels import equalized, look_up, posterized, solarized, stretched
from silva.operators.image.moves import Move, Warp, affine_matrix, moved, opencv_flag
from silva.operators.image.scene import Scene, check, on_image
from silva.operators.rows import Draw, Link, Params
from silva.plan.expr import Expr

_MOST_OPS = 1000
"""Random numbers are drawn for all of them, for each row of a block."""
_MOST_BINS = 1 << 20
"""Magnitudes are float32: more of them would be equal to each other."""


class AugmentMethods(Expr):
    """Methods that apply a policy of random augmentations."""

    __slots__ = ()

    def trivial_augment(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: float | Sequence[float] = 0,
    ) -> Self:
        """One random augmentation of random strength: torchvision's TrivialAugmentWide.

        One of 14 (identity, shears, translations, rotation, brightness, saturation, contrast,
        sharpness, posterize, solarize, autocontrast, equalize), each as likely, and one of
        `num_magnitude_bins` magnitudes. On uint8.

        >>> import silva as sv
        >>> sv.image("photo").trivial_augment()
        photo.trivial_augment(num_magnitude_bins=31, interpolation='nearest', fill=(0.0,))
        """
        return self._call(
            "image.trivial_augment", **_policy(num_magnitude_bins, interpolation, fill)
        )

    def rand_augment(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: float | Sequence[float] = 0,
    ) -> Self:
        """`num_ops` random augmentations of one strength, one after the other: RandAugment.

        As in torchvision: each is one of the 14 of `trivial_augment`, at magnitude `magnitude` of
        `num_magnitude_bins` in its own, narrower range. On uint8.

        >>> import silva as sv
        >>> sv.image("photo").rand_augment(3, magnitude=5)
        ... # doctest: +ELLIPSIS
        photo.rand_augment(num_ops=3, magnitude=5, num_magnitude_bins=31, ...)
        """
        policy = _policy(num_magnitude_bins, interpolation, fill)
        if integer("magnitude", magnitude, 0) >= policy["num_magnitude_bins"]:
            raise PlanError(
                f"magnitude is one of num_magnitude_bins={num_magnitude_bins}, counted from 0, not "
                f"{magnitude}"
            )
        count = integer("num_ops", num_ops, 1, _MOST_OPS)
        return self._call("image.rand_augment", num_ops=count, magnitude=magnitude, **policy)


def _policy(bins: Any, interpolation: Any, fill: Any) -> dict[str, Any]:
    one_of("interpolation", interpolation, ("nearest", "bilinear"))
    return {
        "num_magnitude_bins": integer("num_magnitude_bins", bins, 2, _MOST_BINS),
        "interpolation": interpolation,
        "fill": numbers("fill", fill),
    }


class Chosen(NamedTuple):
    """An augmentation that was drawn for one image."""

    name: str
    bin: int
    negative: bool


class _Augmentation(NamedTuple):
    last: float
    """The magnitude of the last bin."""
    first: float = 0
    """The magnitude of the first bin; those between divide the range evenly."""
    of_side: bool = False
    """The magnitude is a share of the image's width or height."""
    signed: bool = True


_RANDOM = {
    "identity": _Augmentation(0, signed=False),
    "shear_x": _Augmentation(0.3),
    "shear_y": _Augmentation(0.3),
    "translate_x": _Augmentation(150 / 331, of_side=True),
    "translate_y": _Augmentation(150 / 331, of_side=True),
    "rotate": _Augmentation(30),
    "brightness": _Augmentation(0.9),
    "saturation": _Augmentation(0.9),
    "contrast": _Augmentation(0.9),
    "sharpness": _Augmentation(0.9),
    "posterize": _Augmentation(4, first=8, signed=False),
    "solarize": _Augmentation(0, first=1, signed=False),
    "autocontrast": _Augmentation(0, signed=False),
    "equalize": _Augmentation(0, signed=False),
}
"""RandAugment's table."""

_TRIVIAL = _RANDOM | {
    "shear_x": _Augmentation(0.99),
    "shear_y": _Augmentation(0.99),
    "translate_x": _Augmentation(32),
    "translate_y": _Augmentation(32),
    "rotate": _Augmentation(135),
    "brightness": _Augmentation(0.99),
    "saturation": _Augmentation(0.99),
    "contrast": _Augmentation(0.99),
    "sharpness": _Augmentation(0.99),
    "posterize": _Augmentation(2, first=8, signed=False),
}
"""TrivialAugmentWide's table."""

NAMES = tuple(_RANDOM)


@image_operator("trivial_augment", keeps_size=True, keeps_bytes=True, random=True)
def trivial_augment(params: Params, draw: Draw) -> Link:
    bins = params["num_magnitude_bins"]
    chosen = [
        [Chosen(NAMES[int(which * len(NAMES))], int(strength * bins), sign < 0.5)]
        for which, strength, sign in draw.uniform(3).tolist()
    ]
    return augmenting(_TRIVIAL, chosen, params)


@image_operator("rand_augment", keeps_size=True, keeps_bytes=True, random=True)
def rand_augment(params: Params, draw: Draw) -> Link:
    strength = params["magnitude"]
    drawn = draw.uniform(2 * params["num_ops"]).reshape(-1, params["num_ops"], 2).tolist()
    chosen = [
        [Chosen(NAMES[int(which * len(NAMES))], strength, sign < 0.5) for which, sign in row]
        for row in drawn
    ]
    return augmenting(_RANDOM, chosen, params)


def augmenting(
    table: dict[str, _Augmentation], chosen: Sequence[Sequence[Chosen]], params: Params
) -> Link:
    """A link that applies to each row the augmentations that were drawn for it."""
    bins, fill = params["num_magnitude_bins"], params["fill"]
    how = opencv_flag(params["interpolation"])
    name = "rand_augment" if table is _RANDOM else "trivial_augment"

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        image = value.image if type(value) is Scene else value
        check(image)
        colour.check_colours(image, name)
        for one in chosen[row]:
            magnitude = _magnitude(table[one.name], one, bins, image.shape[:2])
            if one.name in _MATRICES:
                value = moved(_warp(one.name, magnitude, how, fill))(row, value, None)
            elif one.name in _CHANGES:
                value = _changing(_CHANGES[one.name], magnitude)(row, value, None)
        return value

    return link


def _magnitude(augmentation: _Augmentation, one: Chosen, bins: int, size: tuple[int, int]) -> float:
    side = size[1] if one.name.endswith("_x") else size[0]
    last = augmentation.last * (side if augmentation.of_side else 1)
    magnitude = _evenly(augmentation.first, last, bins, one.bin)
    return -magnitude if augmentation.signed and one.negative else magnitude


def _evenly(first: float, last: float, bins: int, place: int) -> float:
    """One of `bins` numbers from `first` to `last`, to the bit that of `torch.linspace`: steps of
    float32 from the nearer end, rounded once. A translation by whole pixels depends on it."""
    step = float(np.float32(last - first) / np.float32(bins - 1))
    if place < bins // 2:
        return float(np.float32(first + step * place))
    return float(np.float32(float(np.float32(last)) - step * (bins - 1 - place)))


def _warp(name: str, magnitude: float, how: int, fill: Any) -> Callable[..., Move]:
    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        return Warp((height, width), _MATRICES[name]((height, width), magnitude), how, fill)

    return decide


def _changing(change: Callable[[np.ndarray, float], np.ndarray], magnitude: float) -> Link:
    return on_image(lambda row, image, out: change(image, magnitude))


_MATRICES: dict[str, Callable[[tuple[int, int], float], np.ndarray]] = {
    "shear_x": lambda size, m: affine_matrix(size, 0, (0, 0), 1, (_angle(m), 0), (0, 0)),
    "shear_y": lambda size, m: affine_matrix(size, 0, (0, 0), 1, (0, _angle(m)), (0, 0)),
    "translate_x": lambda size, m: affine_matrix(size, 0, (int(m), 0), 1, (0, 0), None),
    "translate_y": lambda size, m: affine_matrix(size, 0, (0, int(m)), 1, (0, 0), None),
    "rotate": lambda size, m: affine_matrix(size, -m, (0, 0), 1, (0, 0), None),
}
"""Where each geometric augmentation sends the pixels of an image of a size."""

_CHANGES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "brightness": lambda image, m: colour.brightness(image, 1 + m),
    "saturation": lambda image, m: colour.saturation(image, 1 + m),
    "contrast": lambda image, m: colour.contrast(image, 1 + m),
    "sharpness": lambda image, m: sharpened(image, 1 + m),
    "posterize": lambda image, m: look_up(image, posterized(round(m))),
    "solarize": lambda image, m: look_up(image, solarized(255 * m)),
    "autocontrast": lambda image, m: look_up(image, stretched(image)),
    "equalize": lambda image, m: look_up(image, equalized(image)),
}
"""What each of the other augmentations does to the pixels; `identity` is in neither table."""


def _angle(shear: float) -> float:
    """The angle in degrees by which `affine` shears as far as this, per pixel."""
    return math.degrees(math.atan(shear))
