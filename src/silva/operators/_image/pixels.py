"""What the numbers are: grayscale, float, normalised; and channels first.

Laws, exact and tested bit for bit (each works pixel by pixel, with the same operations):
    normalize(to_float(x)) = normalize(x)
    grayscale, to_float and normalize commute with crop and flip

Grayscale refuses floats for the sake of its law: OpenCV's float32 result depends, in the last bit,
on the column that a pixel stands in (vector body or scalar tail).
"""

from __future__ import annotations

import cv2
import numpy as np

from silva.columns import Column
from silva.operators._image.rows import Kind, Params, read_images, write_images

_FLOAT = np.dtype(np.float32)


def grayscale(columns: list[Column], params: Params, draw: object) -> Column:
    channels = params["channels"]

    def kind(image: np.ndarray) -> Kind:
        if image.dtype != np.uint8 or image.shape[2] not in (1, 3):
            raise ValueError(
                f"grayscale needs uint8 of 1 or 3 channels, not {image.dtype} of {image.shape[2]}; "
                "it comes before to_float() and normalize()"
            )
        return (*image.shape[:2], channels), image.dtype

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        if image.shape[2] == 1:
            np.copyto(out, image)  # repeats the channel where three are wanted
        elif channels == 1:
            cv2.cvtColor(image, cv2.COLOR_RGB2GRAY, dst=out)
        else:
            cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=out)

    return write_images(read_images(columns[0]), kind, write)


def normalize(columns: list[Column], params: Params, draw: object) -> Column:
    """((x / 255) - mean) / std, in this order, each result rounded to float32.

    For uint8 the 256 results of each channel are computed once, by that formula, and looked up.
    """
    mean, std = (np.array(params[name], _FLOAT) for name in ("mean", "std"))
    levels = np.arange(256, dtype=_FLOAT)[:, None] / _FLOAT.type(255)
    table = ((levels - mean) / std)[None]  # (1, 256, channels), as OpenCV wants it

    def kind(image: np.ndarray) -> Kind:
        if len(mean) not in (1, image.shape[2]):
            raise ValueError(
                f"normalize has {len(mean)} means for an image of {image.shape[2]} channels"
            )
        return _float_kind(image)

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        if image.dtype == np.uint8:
            cv2.LUT(image, table, dst=out)
            return
        np.copyto(out, image, casting="same_kind")
        # whole lines against a repeated line: far faster than broadcasting three channels
        lines = out.reshape(len(out), -1)
        repeats = lines.shape[1] // len(mean)
        np.subtract(lines, np.tile(mean, repeats), out=lines)
        np.divide(lines, np.tile(std, repeats), out=lines)

    return write_images(read_images(columns[0]), kind, write)


def to_float(columns: list[Column], params: Params, draw: object) -> Column:
    """x / 255 in float32 for uint8."""

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        if image.dtype == np.uint8:
            np.divide(image, _FLOAT.type(255), out=out)
        else:
            np.copyto(out, image, casting="same_kind")

    return write_images(read_images(columns[0]), _float_kind, write)


def to_chw(columns: list[Column], params: Params, draw: object) -> Column:
    def kind(image: np.ndarray) -> Kind:
        return (image.shape[2], *image.shape[:2]), image.dtype

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, image.transpose(2, 0, 1))

    return write_images(read_images(columns[0]), kind, write)


def _float_kind(image: np.ndarray) -> Kind:
    if image.dtype != np.uint8 and image.dtype.kind != "f":
        raise ValueError(f"an image of {image.dtype} has no known scale: give uint8 or floats")
    return image.shape, _FLOAT
