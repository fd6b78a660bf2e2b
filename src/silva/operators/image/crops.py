"""Resizes and crops.

A move is decided from an image's size and its random numbers alone, so that a crop can be chosen
before its image is decoded.
"""

from __future__ import annotations

import math
from typing import Any, Self

from silva.errors import PlanError
from silva.operators.arguments import height_width, integer, interval, one_of, positive
from silva.operators.image.declare import image_move
from silva.operators.image.decoding.partial import partly
from silva.operators.image.decoding.shrink import shrinking
from silva.operators.image.moves import (
    Crop,
    CropResize,
    Decide,
    Interpolation,
    Move,
    Resize,
    opencv_flag,
)
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr

Size = int | tuple[int, int]
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area", "lanczos", "antialias")
_ATTEMPTS = 10


class CropMethods(Expr):
    """Methods that choose a part of an image, or another size."""

    __slots__ = ()

    def resize(
        self, height: Size, width: int | None = None, interpolation: Interpolation = "bilinear"
    ) -> Self:
        """Resizes the image: `resize(32, 48)`, `resize((32, 48))`, or `resize(32)` for a square.
        `"area"` averages when shrinking; `"antialias"` does so too, and is bilinear when enlarging.

        >>> import silva as sv
        >>> sv.image("photo").resize(32, 48, "area")
        photo.resize(height=32, width=48, interpolation='area')
        """
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        tall, wide = height_width("height", height) if width is None else (height, width)
        height, width = positive("height", tall), positive("width", wide)
        return self._call("image.resize", height=height, width=width, interpolation=interpolation)

    def resize_shorter(self, size: int, interpolation: Interpolation = "bilinear") -> Self:
        """Resizes the image to `size` pixels along its shorter side, in its proportions.

        >>> import silva as sv
        >>> sv.image("photo").resize_shorter(256, "antialias").center_crop(224)
        ... # doctest: +ELLIPSIS
        photo.resize_shorter(size=256, interpolation='antialias').center_crop(...)
        """
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        size = positive("size", size)
        return self._call("image.resize_shorter", size=size, interpolation=interpolation)

    def crop(self, top: int, left: int, height: int, width: int) -> Self:
        """Crops the box at (`top`, `left`), which must lie inside the image.

        >>> import silva as sv
        >>> sv.image("photo").crop(10, 20, 64, 64)
        photo.crop(top=10, left=20, height=64, width=64)
        """
        return self._call(
            "image.crop",
            top=integer("top", top, 0),
            left=integer("left", left, 0),
            height=positive("height", height),
            width=positive("width", width),
        )

    def center_crop(self, size: Size) -> Self:
        """Crops the middle; where it cannot be exact, half a pixel up and to the left.

        >>> import silva as sv
        >>> sv.image("photo").center_crop((224, 160))
        photo.center_crop(height=224, width=160)
        """
        height, width = height_width("size", size)
        return self._call("image.center_crop", height=height, width=width)

    def random_crop(self, height: int, width: int | None = None) -> Self:
        """Crops a box of this size (a square without `width`) at a uniformly random place.

        >>> import silva as sv
        >>> sv.image("photo").random_crop(32)
        photo.random_crop(height=32, width=32)
        """
        height = positive("height", height)
        width = height if width is None else positive("width", width)
        return self._call("image.random_crop", height=height, width=width)

    def random_resized_crop(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Interpolation = "bilinear",
    ) -> Self:
        """Crops a random part and resizes it: the usual augmentation of image classifiers.

        As in torchvision: the part covers a share of the area from `scale`, with width / height
        from `ratio` (uniform in its logarithm); ten attempts, then the largest central part whose
        shape is within `ratio`.

        >>> import silva as sv
        >>> sv.image("photo").random_resized_crop(224, scale=(0.5, 1.0), ratio=(1.0, 1.0))
        ... # doctest: +ELLIPSIS
        photo.random_resized_crop(height=224, width=224, scale=(0.5, 1.0), ratio=(1.0, 1.0), ...)
        """
        height, width = height_width("size", size)
        scale, ratio = interval("scale", scale), interval("ratio", ratio)
        if scale[1] > 1:
            raise PlanError(f"scale is a share of the image's area, at most 1, not {scale}")
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        return self._call(
            "image.random_resized_crop",
            height=height,
            width=width,
            scale=scale,
            ratio=ratio,
            interpolation=interpolation,
        )


@image_move("resize", resizes=True, sets_size=True, with_decode=shrinking)
def resize(params: Params, draw: Draw) -> Decide:
    size = params["height"], params["width"]
    how = opencv_flag(params["interpolation"])
    return lambda row, height, width, scene: Resize((height, width), size, how)


@image_move("resize_shorter", resizes=True, with_decode=shrinking)
def resize_shorter(params: Params, draw: Draw) -> Decide:
    """As torchvision's Resize of one number: the longer side is rounded down."""
    size, how = params["size"], opencv_flag(params["interpolation"])

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        if height <= width:
            new = size, int(size * width / height)
        else:
            new = int(size * height / width), size
        return Resize((height, width), new, how)

    return decide


@image_move("crop", crops=True, sets_size=True, with_decode=partly)
def crop(params: Params, draw: Draw) -> Decide:
    box = Crop(params["top"], params["left"], params["height"], params["width"])
    return _of_at_least(params.get("least"), lambda row, height, width, scene: box)


@image_move("center_crop", crops=True, sets_size=True, with_decode=partly)
def center_crop(params: Params, draw: Draw) -> Decide:
    tall, wide = params["height"], params["width"]
    return _of_at_least(
        params.get("least"),
        lambda row, height, width, scene: Crop(
            (height - tall) // 2, (width - wide) // 2, tall, wide
        ),
    )


def _of_at_least(least: tuple[int, int] | None, decide: Decide) -> Decide:
    """Two crops that a law made one: fails on images that are too small for the first."""
    if least is None:
        return decide
    tall, wide = least

    def checked(row: int, height: int, width: int, scene: Any) -> Move:
        if height < tall or width < wide:
            raise ValueError(f"an image of {height} × {width} is cropped to {tall} × {wide}")
        return decide(row, height, width, scene)

    return checked


@image_move("random_crop", crops=True, sets_size=True, random=True, with_decode=partly)
def random_crop(params: Params, draw: Draw) -> Decide:
    tall, wide = params["height"], params["width"]
    drawn = draw.uniform(2).tolist()

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        down, across = drawn[row]  # below 1, so a corner is below the number of places
        return Crop(
            math.floor(down * (height - tall + 1)), math.floor(across * (width - wide + 1)),
            tall, wide,
        )  # fmt: skip

    return decide


@image_move("random_resized_crop", resizes=True, sets_size=True, random=True, with_decode=shrinking)
def random_resized_crop(params: Params, draw: Draw) -> Decide:
    size = params["height"], params["width"]
    how = opencv_flag(params["interpolation"])
    drawn = draw.uniform(2 * _ATTEMPTS + 2).tolist()
    scale, ratio = params["scale"], params["ratio"]
    return lambda row, height, width, scene: CropResize(
        random_box(height, width, drawn[row], scale, ratio), size, how
    )


def random_box(
    height: int,
    width: int,
    drawn: list[float],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Crop:
    """Chooses a crop as torchvision does: ten attempts at an area and a ratio, then the middle.

    `drawn` holds the attempts' areas, their ratios, and the place.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        area = (scale[0] + (scale[1] - scale[0]) * drawn[attempt]) * height * width
        aspect = math.exp(low + (high - low) * drawn[_ATTEMPTS + attempt])
        tall, wide = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < tall <= height and 0 < wide <= width:
            top = math.floor(drawn[-2] * (height - tall + 1))
            return Crop(top, math.floor(drawn[-1] * (width - wide + 1)), tall, wide)
    tall = min(height, max(round(width / ratio[0]), 1))
    wide = min(width, max(round(height * ratio[1]), 1))
    return Crop((height - tall) // 2, (width - wide) // 2, tall, wide)
