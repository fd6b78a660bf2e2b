"""Colours: brightness, contrast, saturation and hue, as torchvision means them.

Each works on uint8 and rounds to it, as there; results are within a level or two of torchvision's,
which rounds down. Hue turns in HSV of 256 steps a circle, where torchvision turns in floats: mean
difference below two levels.

Laws, exact: brightness commutes with crop and flip; so do saturation and hue (pixel by pixel).
Not laws: contrast blends with the mean of the *whole* image, so it does not cross a crop; none
crosses another where values are clamped (they come in a random order for that reason); grayscale
does not cross hue (turning a colour changes its luminance); saturation before grayscale is void
only where no channel was clamped: (255, 0, 0) at saturation 2 is (255, 0, 0), of luminance 76, but
(200, 0, 0) becomes (255, 0, 0) and goes from 60 to 76.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import factors, number, ordered
from silva.operators.image.declare import image_operator
from silva.operators.image.scene import on_image
from silva.operators.native import cv2
from silva.operators.rows import Draw, Link, Params
from silva.plan.expr import Expr

_WEIGHTS = (0.299, 0.587, 0.114)
"""The weights of red, green and blue in the luminance."""
_STEPS = ("brightness", "contrast", "saturation", "hue")


class ColourMethods(Expr):
    """Methods that change colours."""

    __slots__ = ()

    def color_jitter(
        self,
        brightness: float | tuple[float, float] = 0,
        contrast: float | tuple[float, float] = 0,
        saturation: float | tuple[float, float] = 0,
        hue: float | tuple[float, float] = 0,
    ) -> Self:
        """Changes brightness, contrast, saturation and hue at random, in random order.

        As in torchvision: `x` stands for factors from max(0, 1 - x) to 1 + x (hue: turns of the
        circle from -x to x, at most 0.5); a pair gives them exactly. uint8 only.

        >>> import silva as sv
        >>> sv.image("photo").color_jitter(0.4, contrast=(0.5, 1.5), hue=0.1)
        ... # doctest: +ELLIPSIS
        photo.color_jitter(brightness=(0.6, 1.4), contrast=(0.5, 1.5), ...)
        """
        turns = ordered("hue", hue if isinstance(hue, tuple | list) else (-number("hue", hue), hue))
        if not -0.5 <= turns[0] <= turns[1] <= 0.5:
            raise PlanError(f"hue is a part of the circle, from -0.5 to 0.5, not {hue!r}")
        return self._call(
            "image.color_jitter",
            brightness=factors("brightness", brightness),
            contrast=factors("contrast", contrast),
            saturation=factors("saturation", saturation),
            hue=turns,
        )


@image_operator("color_jitter", pixelwise=True, keeps_size=True, keeps_bytes=True, random=True)
def color_jitter(params: Params, draw: Draw) -> Link:
    """Each row draws one factor for each of the four changes, and their order."""
    drawn = draw.uniform(8)
    bounds = [params[name] for name in _STEPS]
    low, high = (np.array([b[side] for b in bounds]) for side in (0, 1))
    factors = (low + (high - low) * drawn[:, :4]).tolist()
    orders = drawn[:, 4:].argsort(axis=1, kind="stable").tolist()
    void = [b == (0.0, 0.0) if step == "hue" else b == (1.0, 1.0)
            for step, b in zip(_STEPS, bounds, strict=True)]  # fmt: skip

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image, "color_jitter")
        for step in orders[row]:
            if not void[step]:
                image = _ADJUST[step](image, factors[row][step])
        return image

    return on_image(work)


def check_colours(image: np.ndarray, name: str) -> None:
    if image.dtype != np.uint8 or image.shape[2] not in (1, 3):
        raise ValueError(
            f"{name}() takes uint8 of 1 or 3 channels, not {image.dtype} of {image.shape[2]}; it "
            "comes before to_float() and normalize()"
        )


def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    """factor · x"""
    made: np.ndarray = cv2.convertScaleAbs(image, alpha=factor)
    return made.reshape(image.shape)


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """factor · x + (1 - factor) · the image's mean luminance"""
    means = cv2.mean(image)
    if image.shape[2] == 1:
        luminance = means[0]
    else:
        luminance = sum(w * m for w, m in zip(_WEIGHTS, means[:3], strict=True))
    made: np.ndarray = cv2.addWeighted(image, factor, image, 0.0, (1 - factor) * luminance)
    return made.reshape(image.shape)


def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """factor · x + (1 - factor) · the pixel's luminance: a matrix of colours"""
    if image.shape[2] == 1:
        return image
    matrix = np.tile(np.array(_WEIGHTS) * (1 - factor), (3, 1)) + factor * np.eye(3)
    made: np.ndarray = cv2.transform(image, matrix.astype(np.float32))
    return made


def hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Rotates the hues by a part of the colour circle, from -0.5 to 0.5."""
    if image.shape[2] == 1:
        return image
    colours = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    angles = colours[:, :, 0]
    np.add(angles, np.uint8(round(turn * 256) % 256), out=angles)  # wraps around, as a circle does
    made: np.ndarray = cv2.cvtColor(colours, cv2.COLOR_HSV2RGB_FULL)
    return made


_ADJUST = (brightness, contrast, saturation, hue)
