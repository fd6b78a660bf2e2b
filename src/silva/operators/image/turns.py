"""Flips, padding, rotations and affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import (
    height_width,
    integer,
    number,
    numbers,
    one_of,
    ordered,
    pair,
    share,
)
from silva.operators.image.declare import image_move
from silva.operators.image.moves import (
    Decide,
    Flip,
    Interpolation,
    Move,
    Pad,
    Stay,
    Warp,
    affine_matrix,
    opencv_flag,
    rotation,
)
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr

Direction = Literal["horizontal", "vertical"]
Size = int | tuple[int, int]
_AXES = {"vertical": 0, "horizontal": 1}


class TurnMethods(Expr):
    """Methods that mirror, pad and turn an image."""

    __slots__ = ()

    def flip(self, direction: Direction = "horizontal") -> Self:
        """Mirrors the image left to right, or top to bottom.

        >>> import silva as sv
        >>> sv.image("photo").flip("vertical")
        photo.flip(direction='vertical')
        """
        one_of("direction", direction, ("horizontal", "vertical"))
        return self._call("image.flip", direction=direction)

    def random_flip(self, probability: float = 0.5, direction: Direction = "horizontal") -> Self:
        """Mirrors the image with a probability.

        >>> import silva as sv
        >>> sv.image("photo").random_flip(0.25)
        photo.random_flip(probability=0.25, direction='horizontal')
        """
        probability = share("probability", probability)
        one_of("direction", direction, ("horizontal", "vertical"))
        return self._call("image.random_flip", probability=probability, direction=direction)

    def pad(
        self, sides: int | tuple[int, int, int, int], fill: float | Sequence[float] = 0
    ) -> Self:
        """Pads the image by `sides` pixels all around, or by (top, left, bottom, right).

        >>> import silva as sv
        >>> sv.image("photo").pad(4).random_crop(32)
        photo.pad(sides=(4, 4, 4, 4), fill=(0.0,)).random_crop(height=32, width=32)
        """
        four = sides if isinstance(sides, tuple | list) else (sides,) * 4
        if len(four) != 4:
            raise PlanError(f"sides is a number or (top, left, bottom, right), not {sides!r}")
        whole = tuple(integer("sides", side, 0) for side in four)
        return self._call("image.pad", sides=whole, fill=numbers("fill", fill))

    def pad_to(self, size: Size, fill: float | Sequence[float] = 0) -> Self:
        """Pads the image at the right and below to this size; a larger image is an error.

        >>> import silva as sv
        >>> sv.image("photo").pad_to((640, 640))
        photo.pad_to(height=640, width=640, fill=(0.0,))
        """
        height, width = height_width("size", size)
        return self._call("image.pad_to", height=height, width=width, fill=numbers("fill", fill))

    def rotate(
        self,
        degrees: float | tuple[float, float],
        interpolation: Interpolation = "bilinear",
        fill: float | Sequence[float] = 0,
    ) -> Self:
        """Rotates counter-clockwise about the centre; random within (least, most) degrees.

        >>> import silva as sv
        >>> sv.image("photo").rotate(15, fill=128)
        photo.rotate(degrees=15.0, interpolation='bilinear', fill=(128.0,))
        >>> sv.image("photo").rotate((-10, 10))
        photo.random_rotate(degrees=(-10.0, 10.0), interpolation='bilinear', fill=(0.0,))
        """
        one_of("interpolation", interpolation, ("nearest", "bilinear", "bicubic", "lanczos"))
        fills = numbers("fill", fill)
        if not isinstance(degrees, tuple | list):
            angle = number("degrees", degrees)
            return self._call(
                "image.rotate", degrees=angle, interpolation=interpolation, fill=fills
            )
        return self._call(
            "image.random_rotate", degrees=ordered("degrees", degrees),
            interpolation=interpolation, fill=fills,
        )  # fmt: skip

    def affine(
        self,
        degrees: float = 0,
        translate: tuple[float, float] = (0, 0),
        scale: float = 1,
        shear: float | tuple[float, float] = 0,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: float | Sequence[float] = 0,
        center: tuple[float, float] | None = None,
    ) -> Self:
        """Shears, scales, rotates clockwise and translates the image, as torchvision's `affine`.

        `translate` and `center` are (x, y) in pixels, `shear` is (x, y) or x in degrees. The size
        stays; pixels from outside the image are `fill`. `center` is the middle by default.

        >>> import silva as sv
        >>> sv.image("photo").affine(10, translate=(4, 0), shear=5)
        ... # doctest: +ELLIPSIS
        photo.affine(degrees=10.0, translate=(4.0, 0.0), scale=1.0, shear=(5.0, 0.0), ...)
        """
        one_of("interpolation", interpolation, ("nearest", "bilinear"))
        if number("scale", scale) <= 0:
            raise PlanError(f"scale is a positive number, not {scale!r}")
        return self._call(
            "image.affine",
            degrees=number("degrees", degrees),
            translate=pair("translate", translate),
            scale=float(scale),
            shear=pair("shear", shear if np.ndim(shear) else (shear, 0)),
            interpolation=interpolation,
            fill=numbers("fill", fill),
            center=None if center is None else pair("center", center),
        )


@image_move("flip", flips=True, keeps_size=True)
def flip(params: Params, draw: Draw) -> Decide:
    axis = _AXES[params["direction"]]
    return lambda row, height, width, scene: Flip((height, width), axis)


@image_move("random_flip", flips=True, keeps_size=True, random=True)
def random_flip(params: Params, draw: Draw) -> Decide:
    axis = _AXES[params["direction"]]
    chosen = (draw.uniform(1)[:, 0] < params["probability"]).tolist()
    return lambda row, height, width, scene: (
        Flip((height, width), axis) if chosen[row] else Stay((height, width))
    )


@image_move("pad", fills=True)
def pad(params: Params, draw: Draw) -> Decide:
    top, left, bottom, right = params["sides"]
    fill = params["fill"]
    return lambda row, height, width, scene: Pad(
        (height, width), top, left, (height + top + bottom, width + left + right), fill
    )


@image_move("pad_to", fills=True, sets_size=True)
def pad_to(params: Params, draw: Draw) -> Decide:
    tall, wide, fill = params["height"], params["width"], params["fill"]

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        if height > tall or width > wide:
            raise ValueError(
                f"an image of {height} × {width} does not fit into pad_to({tall}, {wide}): "
                "resize it first"
            )
        return Pad((height, width), 0, 0, (tall, wide), fill)

    return decide


@image_move("rotate", fills=True, keeps_size=True)
def rotate(params: Params, draw: Draw) -> Decide:
    degrees, how = params["degrees"], opencv_flag(params["interpolation"])
    fill = params["fill"]
    return lambda row, height, width, scene: Warp(
        (height, width), rotation((height, width), degrees), how, fill
    )


@image_move("random_rotate", fills=True, keeps_size=True, random=True)
def random_rotate(params: Params, draw: Draw) -> Decide:
    low, high = params["degrees"]
    how, fill = opencv_flag(params["interpolation"]), params["fill"]
    degrees = (low + (high - low) * draw.uniform(1)[:, 0]).tolist()
    return lambda row, height, width, scene: Warp(
        (height, width), rotation((height, width), degrees[row]), how, fill
    )


@image_move("affine", fills=True, keeps_size=True)
def affine(params: Params, draw: Draw) -> Decide:
    how, fill = opencv_flag(params["interpolation"]), params["fill"]
    names = ("degrees", "translate", "scale", "shear", "center")
    degrees, translate, scale, shear, center = (params[name] for name in names)

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        size = height, width
        return Warp(size, affine_matrix(size, degrees, translate, scale, shear, center), how, fill)

    return decide
