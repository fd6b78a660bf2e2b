"""Types and axes of an image: grayscale, float, normalised, channels first.

Laws, exact and tested bit for bit (each works pixel by pixel, with the same operations):
    normalize(to_float(x)) = normalize(x)
    grayscale, to_float and normalize commute with crop, flip and pad (the fill mapped likewise)
    to_chw(normalize(x)) = one pass by look-up table, one plane after the other

Grayscale refuses floats for the sake of its law: OpenCV's float32 result depends, in the last bit,
on the column that a pixel stands in (vector body or scalar tail).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import numbers, one_of
from silva.operators.image.declare import image_operator
from silva.operators.image.scene import on_image
from silva.operators.native import cv2
from silva.operators.rows import Draw, Link, Params, room
from silva.plan.expr import Expr

_FLOAT = np.dtype(np.float32)
_BYTE = np.dtype(np.uint8)


class PixelMethods(Expr):
    """Methods that change the type, the scale and the axes of an image."""

    __slots__ = ()

    def grayscale(self, channels: Literal[1, 3] = 1) -> Self:
        """Computes the luminance (0.299 R + 0.587 G + 0.114 B) of uint8, in 1 channel or in 3.

        >>> import silva as sv
        >>> sv.image("photo").grayscale(3)
        photo.grayscale(channels=3)
        """
        one_of("channels", channels, (1, 3))
        return self._call("image.grayscale", channels=channels)

    def normalize(self, mean: float | Sequence[float], std: float | Sequence[float]) -> Self:
        """Computes (x - mean) / std as float32, per channel; uint8 is divided by 255 first.

        One number for each channel, or one for all.

        >>> import silva as sv
        >>> sv.image("photo").normalize(0.5, 0.25)
        photo.normalize(mean=(0.5,), std=(0.25,))
        """
        means, stds = numbers("mean", mean), numbers("std", std)
        if len(means) != len(stds):
            raise PlanError(f"mean has {len(means)} numbers and std has {len(stds)}")
        if min(stds) <= 0:
            raise PlanError(f"std must be positive, not {stds}")
        return self._call("image.normalize", mean=means, std=stds)

    def to_float(self) -> Self:
        """Converts to float32; uint8 is divided by 255, floats keep their values.

        >>> import silva as sv
        >>> sv.image("photo").to_float()
        photo.to_float()
        """
        return self._call("image.to_float")

    def to_chw(self) -> Expr:
        """Puts channels first, as torch expects. The result is no image, so it ends a chain.

        >>> import silva as sv
        >>> sv.image("photo").to_float().to_chw()
        photo.to_float().to_chw()
        """
        return self._any("image.to_chw")


@image_operator("grayscale", pixelwise=True, keeps_size=True)
def grayscale(params: Params, draw: Draw) -> Link:
    channels = params["channels"]

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if image.dtype != _BYTE or image.shape[2] not in (1, 3):
            raise ValueError(
                f"grayscale needs uint8 of 1 or 3 channels, not {image.dtype} of {image.shape[2]}; "
                "it comes before to_float() and normalize()"
            )
        out = room(out, (*image.shape[:2], channels), image.dtype)
        if image.shape[2] == 1:
            np.copyto(out, image)  # repeats the channel where three are wanted
        elif channels == 1:
            cv2.cvtColor(image, cv2.COLOR_RGB2GRAY, dst=out)
        else:
            cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=out)
        return out

    return on_image(work)


@image_operator("normalize", pixelwise=True, keeps_size=True)
def normalize(params: Params, draw: Draw) -> Link:
    """((x / 255) - mean) / std, in this order, each result rounded to float32.

    For uint8 the 256 results of each channel are computed once, by that formula, and looked up.
    """
    mean, std, table = _tables(params)

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        _check_means(mean, image)
        out = room(out, image.shape, _FLOAT)
        if image.dtype == _BYTE:
            cv2.LUT(image, table, dst=out)
            return out
        np.copyto(out, image, casting="same_kind")
        # whole lines against a repeated line: far faster than broadcasting three channels
        lines = out.reshape(len(out), -1)
        repeats = lines.shape[1] // len(mean)
        np.subtract(lines, np.tile(mean, repeats), out=lines)
        np.divide(lines, np.tile(std, repeats), out=lines)
        return out

    return on_image(work)


def _tables(params: Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """mean, std, and the results for uint8: (1, 256, channels), as OpenCV wants it."""
    mean, std = (np.array(params[name], _FLOAT) for name in ("mean", "std"))
    levels = np.arange(256, dtype=_FLOAT)[:, None] / _FLOAT.type(255)
    return mean, std, ((levels - mean) / std)[None]


def _check_means(mean: np.ndarray, image: np.ndarray) -> None:
    if len(mean) not in (1, image.shape[2]):
        raise ValueError(
            f"normalize has {len(mean)} means for an image of {image.shape[2]} channels"
        )
    _check_scale(image)


def _check_scale(image: np.ndarray) -> None:
    if image.dtype != _BYTE and image.dtype.kind != "f":
        raise ValueError(f"an image of {image.dtype} has no known scale: give uint8 or floats")


@image_operator("to_float", pixelwise=True, keeps_size=True)
def to_float(params: Params, draw: Draw) -> Link:
    """x / 255 in float32 for uint8."""
    table = np.arange(256, dtype=_FLOAT) / _FLOAT.type(255)

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        _check_scale(image)
        out = room(out, image.shape, _FLOAT)
        if image.dtype == _BYTE:
            cv2.LUT(image, table, dst=out)
        else:
            np.copyto(out, image, casting="same_kind")
        return out

    return on_image(work)


def normalize_to_chw(params: Params, draw: Draw, _: Params, __: Draw) -> Link:
    """`to_chw(normalize(x))`: uint8 is looked up plane by plane, straight into its place."""
    mean, table = _tables(params)[::2]
    return _planes(
        [np.ascontiguousarray(table[0, :, c]) for c in range(len(mean))],
        lambda image: _check_means(mean, image),
        normalize(params, draw),
    )


def to_float_to_chw(params: Params, draw: Draw, _: Params, __: Draw) -> Link:
    table = np.arange(256, dtype=_FLOAT) / _FLOAT.type(255)
    return _planes([table], _check_scale, to_float(params, draw))


def _planes(tables: list[np.ndarray], fits: Callable[[np.ndarray], None], otherwise: Link) -> Link:
    turn = to_chw({}, None)  # type: ignore[arg-type]

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if image.dtype != _BYTE:
            made: np.ndarray = turn(row, otherwise(row, image, None), out)
            return made
        fits(image)
        out = room(out, (image.shape[2], *image.shape[:2]), _FLOAT)
        planes = [image] if image.shape[2] == 1 else cv2.split(image)
        for channel, plane in enumerate(planes):
            cv2.LUT(plane, tables[channel % len(tables)], dst=out[channel])
        return out

    return on_image(work)


@image_operator(
    "to_chw", after={"image.normalize": normalize_to_chw, "image.to_float": to_float_to_chw}
)
def to_chw(params: Params, draw: Draw) -> Link:
    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        out = room(out, (image.shape[2], *image.shape[:2]), image.dtype)
        np.copyto(out, image.transpose(2, 0, 1))
        return out

    return on_image(work)
