"""Sharpness, blur, and erased rectangles.

Not laws: gaussian_blur and flip, whose sums are made in another order for a mirrored image, so that
a level is rounded to the other side now and then; nor gaussian_blur and crop, whose new border is
mirrored where there were real neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import interval, number, numbers, positive, share
from silva.operators.image.colour import check_colours
from silva.operators.image.declare import image_operator, with_probability
from silva.operators.image.moves import level
from silva.operators.image.scene import on_image
from silva.operators.native import cv2
from silva.operators.rows import Draw, Link, Params, room
from silva.plan.expr import Expr

_ATTEMPTS = 10
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
_ROUND_DOWN = -0.499
"""Added before OpenCV rounds to the nearest level, so that it rounds down, as torchvision does: not
-0.5, which would round whole levels to the even one of their neighbours."""


class FilterMethods(Expr):
    """Methods that sharpen, blur and erase."""

    __slots__ = ()

    def sharpness(self, factor: float, probability: float = 1.0) -> Self:
        """Blends the image with a smoothed one: 0 is smoothed, 1 the image, 2 sharpened.

        As torchvision's `adjust_sharpness`, on uint8: the border stays as it is. With `probability`
        below 1, only some rows are changed, as by RandomAdjustSharpness.

        >>> import silva as sv
        >>> sv.image("photo").sharpness(1.5)
        photo.sharpness(factor=1.5)
        >>> sv.image("photo").sharpness(2, probability=0.5)
        photo.random_sharpness(factor=2.0, probability=0.5)
        """
        amount = number("factor", factor)
        if amount < 0:
            raise PlanError(f"factor is a number of at least 0, not {factor!r}")
        return with_probability(self, "sharpness", probability, factor=amount)

    def gaussian_blur(self, size: int, sigma: float | tuple[float, float] = (0.1, 2.0)) -> Self:
        """Blurs by a Gaussian of `size` × `size` pixels (odd); sigma is random within a pair.

        >>> import silva as sv
        >>> sv.image("photo").gaussian_blur(5, sigma=1.5)
        photo.gaussian_blur(size=5, sigma=1.5)
        >>> sv.image("photo").gaussian_blur(23)
        photo.random_gaussian_blur(size=23, sigma=(0.1, 2.0))
        """
        if positive("size", size) % 2 == 0:
            raise PlanError(f"size is odd, so that there is a pixel in the middle, not {size}")
        if not isinstance(sigma, tuple | list):
            if number("sigma", sigma) <= 0:
                raise PlanError(f"sigma is positive, not {sigma}")
            return self._call("image.gaussian_blur", size=size, sigma=float(sigma))
        sigmas = interval("sigma", sigma)
        return self._call("image.random_gaussian_blur", size=size, sigma=sigmas)

    def random_erasing(
        self,
        probability: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] = 0,
    ) -> Self:
        """Sets one random rectangle to `value`, or none, as in torchvision.

        >>> import silva as sv
        >>> sv.image("photo").random_erasing(0.25, value=127)
        ... # doctest: +ELLIPSIS
        photo.random_erasing(probability=0.25, ..., value=(127.0,))
        """
        return self._call(
            "image.random_erasing",
            probability=share("probability", probability),
            scale=interval("scale", scale),
            ratio=interval("ratio", ratio),
            value=numbers("value", value),
        )


@image_operator("sharpness", keeps_size=True, keeps_bytes=True, also_random=True)
def sharpness(params: Params, draw: Draw) -> Link:
    factor = params["factor"]

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image, "sharpness")
        return sharpened(image, factor, out)

    return on_image(work)


def sharpened(image: np.ndarray, factor: float, out: np.ndarray | None = None) -> np.ndarray:
    """factor · x + (1 - factor) · smoothed x, rounded down; the outermost pixels stay."""
    if min(image.shape[:2]) <= 2:
        return image
    out = room(out, image.shape, image.dtype)
    np.copyto(out, image)
    inner = image[1:-1, 1:-1]
    smooth = cv2.filter2D(image, -1, _SMOOTH)[1:-1, 1:-1]
    made = cv2.addWeighted(inner, factor, smooth.reshape(inner.shape), 1 - factor, _ROUND_DOWN)
    out[1:-1, 1:-1] = made.reshape(inner.shape)
    return out


@image_operator("gaussian_blur", keeps_size=True, keeps_bytes=True, blurs=True)
def gaussian_blur(params: Params, draw: Draw) -> Link:
    """The borders are mirrored; uint8 is rounded once, at the end."""
    kernel = kernel_of(params["size"], params["sigma"])
    return on_image(lambda row, image, out: _blur(image, kernel, out))


@image_operator("random_gaussian_blur", keeps_size=True, keeps_bytes=True, blurs=True, random=True)
def random_gaussian_blur(params: Params, draw: Draw) -> Link:
    """Draws one sigma per row."""
    size, (low, high) = params["size"], params["sigma"]
    sigmas = (low + (high - low) * draw.uniform(1)[:, 0]).tolist()
    return on_image(lambda row, image, out: _blur(image, kernel_of(size, sigmas[row]), out))


def _blur(image: np.ndarray, kernel: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    out = room(out, image.shape, image.dtype)
    cv2.sepFilter2D(image, -1, kernel, kernel, dst=out, borderType=cv2.BORDER_REFLECT_101)
    return out


def kernel_of(size: int, sigma: float) -> np.ndarray:
    """The weights of `size` neighbours along one axis; their sum is 1."""
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (places / sigma) ** 2)
    kernel: np.ndarray = (weights / weights.sum()).astype(np.float32)
    return kernel


@image_operator("random_erasing", keeps_size=True, keeps_bytes=True, random=True)
def random_erasing(params: Params, draw: Draw) -> Link:
    """Chooses the rectangle as torchvision does: ten attempts, then none."""
    probability, fill = params["probability"], params["value"]
    scale, ratio = params["scale"], params["ratio"]
    low, high = math.log(ratio[0]), math.log(ratio[1])
    drawn = draw.uniform(3 + 2 * _ATTEMPTS).tolist()

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        chance, down, across, *attempts = drawn[row]
        if chance >= probability:
            return image
        height, width = image.shape[:2]
        for area, aspect in zip(attempts[::2], attempts[1::2], strict=True):
            area = (scale[0] + (scale[1] - scale[0]) * area) * height * width
            aspect = math.exp(low + (high - low) * aspect)
            tall, wide = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < tall < height and 0 < wide < width:
                out = room(out, image.shape, image.dtype)
                np.copyto(out, image)
                top = math.floor(down * (height - tall + 1))
                left = math.floor(across * (width - wide + 1))
                out[top : top + tall, left : left + wide] = level(fill, image.dtype)
                return out
        return image

    return on_image(work)
