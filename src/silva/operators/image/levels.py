"""Operators that look each level of a uint8 image up in a table of 256.

Each gives the bytes that torchvision's operator of that name gives for a uint8 tensor. Where the
table follows from the arguments alone, the operator is declared `pixelwise`, and crops move before
it. Where it follows from all pixels of the image, the operator is not.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import integer, number
from silva.operators.image.colour import check_colours
from silva.operators.image.declare import image_operator, with_probability
from silva.operators.image.scene import on_image
from silva.operators.native import cv2
from silva.operators.rows import Draw, Link, Params, room
from silva.plan.expr import Expr

_LEVELS = np.arange(256, dtype=np.uint8)
_EXACT_COUNT = 1 << 24
"""Pixels up to which OpenCV's histogram of float32 counts exactly."""


class LevelMethods(Expr):
    """Methods that look the levels of an image up in a table."""

    __slots__ = ()

    def solarize(self, threshold: float = 128, probability: float = 1.0) -> Self:
        """Inverts all levels from `threshold` (0 to 255) on: x becomes 255 - x.

        With `probability` below 1, only some rows are changed, as by torchvision's RandomSolarize.

        >>> import silva as sv
        >>> sv.image("photo").solarize(192)
        photo.solarize(threshold=192.0)
        >>> sv.image("photo").solarize(probability=0.2)
        photo.random_solarize(threshold=128.0, probability=0.2)
        """
        level = number("threshold", threshold)
        if not 0 <= level <= 255:
            raise PlanError(f"threshold is a level from 0 to 255, not {threshold!r}")
        return with_probability(self, "solarize", probability, threshold=level)

    def invert(self, probability: float = 1.0) -> Self:
        """Inverts all levels: x becomes 255 - x.

        With `probability` below 1, only some rows are changed, as by torchvision's RandomInvert.

        >>> import silva as sv
        >>> sv.image("photo").invert()
        photo.invert()
        >>> sv.image("photo").invert(0.5)
        photo.random_invert(probability=0.5)
        """
        return with_probability(self, "invert", probability)

    def posterize(self, bits: int, probability: float = 1.0) -> Self:
        """Keeps the upper `bits` (0 to 8) of each level and sets the others to 0.

        With `probability` below 1, only some rows are changed, as by torchvision's RandomPosterize.

        >>> import silva as sv
        >>> sv.image("photo").posterize(4)
        photo.posterize(bits=4)
        >>> sv.image("photo").posterize(2, probability=0.5)
        photo.random_posterize(bits=2, probability=0.5)
        """
        if integer("bits", bits, 0) > 8:
            raise PlanError(f"bits is a number from 0 to 8, not {bits!r}")
        return with_probability(self, "posterize", probability, bits=bits)

    def equalize(self, probability: float = 1.0) -> Self:
        """Spreads the levels of each channel so that all are about equally frequent.

        With `probability` below 1, only some rows are changed, as by torchvision's RandomEqualize.

        >>> import silva as sv
        >>> sv.image("photo").equalize()
        photo.equalize()
        >>> sv.image("photo").equalize(0.5)
        photo.random_equalize(probability=0.5)
        """
        return with_probability(self, "equalize", probability)

    def autocontrast(self, probability: float = 1.0) -> Self:
        """Stretches the levels of each channel linearly, so that they reach from 0 to 255.

        With `probability` below 1, only some rows are changed, as by torchvision's
        RandomAutocontrast.

        >>> import silva as sv
        >>> sv.image("photo").autocontrast()
        photo.autocontrast()
        >>> sv.image("photo").autocontrast(0.5)
        photo.random_autocontrast(probability=0.5)
        """
        return with_probability(self, "autocontrast", probability)


@image_operator("solarize", pixelwise=True, keeps_size=True, keeps_bytes=True, also_random=True)
def solarize(params: Params, draw: Draw) -> Link:
    return _by_table(solarized(params["threshold"]), "solarize")


@image_operator("invert", pixelwise=True, keeps_size=True, keeps_bytes=True, also_random=True)
def invert(params: Params, draw: Draw) -> Link:
    return _by_table(255 - _LEVELS, "invert")


@image_operator("posterize", pixelwise=True, keeps_size=True, keeps_bytes=True, also_random=True)
def posterize(params: Params, draw: Draw) -> Link:
    return _by_table(posterized(params["bits"]), "posterize")


@image_operator("equalize", keeps_size=True, keeps_bytes=True, also_random=True)
def equalize(params: Params, draw: Draw) -> Link:
    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image, "equalize")
        return look_up(image, equalized(image), out)

    return on_image(work)


@image_operator("autocontrast", keeps_size=True, keeps_bytes=True, also_random=True)
def autocontrast(params: Params, draw: Draw) -> Link:
    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image, "autocontrast")
        return look_up(image, stretched(image), out)

    return on_image(work)


def _by_table(table: np.ndarray, name: str) -> Link:
    """A link that looks all channels up in one table."""

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image, name)
        return look_up(image, table, out)

    return on_image(work)


def look_up(image: np.ndarray, table: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The image through a table of (256,) for all channels, or (1, 256, channels)."""
    out = room(out, image.shape, image.dtype)
    cv2.LUT(image, table, dst=out)
    return out


def solarized(threshold: float) -> np.ndarray:
    """Compared in float32, as torchvision does."""
    return np.where(np.float32(threshold) <= _LEVELS, 255 - _LEVELS, _LEVELS)


def posterized(bits: int) -> np.ndarray:
    return _LEVELS & np.uint8((0xFF << (8 - bits)) & 0xFF)


def equalized(image: np.ndarray) -> np.ndarray:
    """(1, 256, channels): Pillow's table, which torchvision takes too. A channel in which fewer
    than 255 pixels are below its highest level stays as it is."""
    tables = np.empty((1, 256, image.shape[2]), np.uint8)
    for channel in range(image.shape[2]):
        counts = _histogram(image, channel)
        below_highest = int(counts.sum() - counts[np.flatnonzero(counts)[-1]])
        step = below_highest // 255
        if step == 0:
            tables[0, :, channel] = _LEVELS
            continue
        before = np.cumsum(counts) - counts
        tables[0, :, channel] = np.minimum((before + step // 2) // step, 255)
    return tables


def _histogram(image: np.ndarray, channel: int) -> np.ndarray:
    """How often each level occurs."""
    if image.shape[0] * image.shape[1] >= _EXACT_COUNT:
        return np.bincount(image[:, :, channel].ravel(), minlength=256)
    counts: np.ndarray = cv2.calcHist([image], [channel], None, [256], [0, 256])
    return counts.ravel().astype(np.int64)


def stretched(image: np.ndarray) -> np.ndarray:
    """(1, 256, channels): 255 · (x - lowest) / (highest - lowest), rounded down, computed in
    float32 as torchvision does. A channel of one level stays as it is."""
    tables = np.empty((1, 256, image.shape[2]), np.uint8)
    for channel in range(image.shape[2]):
        lowest, highest, _, _ = cv2.minMaxLoc(image[:, :, channel])
        if lowest == highest:
            tables[0, :, channel] = _LEVELS
            continue
        scale = np.float32(highest - lowest) * np.float32(1 / 255)
        levels = (_LEVELS.astype(np.float32) - np.float32(lowest)) / scale
        tables[0, :, channel] = np.clip(levels, 0, 255)
    return tables
