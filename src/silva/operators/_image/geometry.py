"""Which pixels, and where: resize, crops, flips.

Laws, exact for every dtype and tested bit for bit:
    crop(t, l, h, w)(crop(T, L, H, W)(x)) = crop(T + t, L + l, h, w)(x)
    flip(flip(x)) = x
    crop(t, l, h, w)(flip(x)) = flip(crop(t, width(x) - l - w, h, w)(x))
    resize(h, w)(x) = x  where x is h × w
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from silva.columns import Column
from silva.operators._image.rows import Draw, Kind, Params, read_images, sizes, write_images

_INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}
_AXES = {"vertical": 0, "horizontal": 1}
_ATTEMPTS = 10


def resize(columns: list[Column], params: Params, draw: object) -> Column:
    height, width = params["height"], params["width"]
    how = _INTERPOLATIONS[params["interpolation"]]

    def kind(image: np.ndarray) -> Kind:
        return (height, width, image.shape[2]), image.dtype

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        cv2.resize(image, (width, height), dst=out, interpolation=how)

    return write_images(read_images(columns[0]), kind, write)


def crop(columns: list[Column], params: Params, draw: object) -> Column:
    images = read_images(columns[0])
    corner = np.array([params["top"], params["left"]])
    return _crops(images, np.broadcast_to(corner, (len(images), 2)), params)


def center_crop(columns: list[Column], params: Params, draw: object) -> Column:
    images = read_images(columns[0])
    return _crops(images, (sizes(images) - _wanted(params)) // 2, params)


def random_crop(columns: list[Column], params: Params, draw: Draw) -> Column:
    images = read_images(columns[0])
    places = sizes(images) - _wanted(params) + 1
    corners = np.floor(draw.uniform(2) * places)  # u < 1, so a corner is below the places
    return _crops(images, corners.astype(np.int64), params)


def _wanted(params: Params) -> np.ndarray:
    return np.array([params["height"], params["width"]])


def _crops(images: list[Any], corners: np.ndarray, params: Params) -> Column:
    """The box of one size at each row's (top, left)."""
    height, width = params["height"], params["width"]
    starts = corners.tolist()

    def kind(image: np.ndarray) -> Kind:
        return (height, width, image.shape[2]), image.dtype

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        top, left = starts[row]
        if top + height > image.shape[0] or left + width > image.shape[1] or min(top, left) < 0:
            raise ValueError(
                f"a crop of {height} × {width} at {top}, {left} does not lie inside an image of "
                f"{image.shape[0]} × {image.shape[1]}"
            )
        np.copyto(out, image[top : top + height, left : left + width])

    return write_images(images, kind, write)


def random_resized_crop(columns: list[Column], params: Params, draw: Draw) -> Column:
    images = read_images(columns[0])
    height, width = params["height"], params["width"]
    how = _INTERPOLATIONS[params["interpolation"]]
    drawn = draw.uniform(2 * _ATTEMPTS + 2)
    boxes = random_boxes(sizes(images), drawn, params["scale"], params["ratio"]).tolist()

    def kind(image: np.ndarray) -> Kind:
        return (height, width, image.shape[2]), image.dtype

    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        top, left, tall, wide = boxes[row]
        part = image[top : top + tall, left : left + wide]
        cv2.resize(part, (width, height), dst=out, interpolation=how)

    return write_images(images, kind, write)


def random_boxes(
    sizes: np.ndarray, drawn: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """(rows, 4): top, left, height and width of each row's part, by torchvision's recipe.

    All attempts are made at once: `drawn` holds their areas, their ratios, and the place.
    """
    heights, widths = sizes[:, 0], sizes[:, 1]
    areas = scale[0] + (scale[1] - scale[0]) * drawn[:, :_ATTEMPTS]
    areas = areas * (heights * widths)[:, None]
    low, high = np.log(ratio)
    ratios = np.exp(low + (high - low) * drawn[:, _ATTEMPTS : 2 * _ATTEMPTS])
    wide = np.rint(np.sqrt(areas * ratios))
    tall = np.rint(np.sqrt(areas / ratios))
    fits = (wide > 0) & (tall > 0) & (wide <= widths[:, None]) & (tall <= heights[:, None])
    rows, first = np.arange(len(sizes)), fits.argmax(axis=1)
    found = fits[rows, first]
    part = np.stack([tall[rows, first], wide[rows, first]], axis=1)
    part = np.where(found[:, None], part, _central(heights, widths, ratio))
    free = sizes - part
    corner = np.where(found[:, None], np.floor(drawn[:, -2:] * (free + 1)), free // 2)
    return np.concatenate([corner, part], axis=1).astype(np.int64)


def _central(heights: np.ndarray, widths: np.ndarray, ratio: tuple[float, float]) -> np.ndarray:
    """(rows, 2): the largest height and width whose ratio is allowed, at least one pixel."""
    tall = np.minimum(heights, np.maximum(np.rint(widths / ratio[0]), 1))
    wide = np.minimum(widths, np.maximum(np.rint(heights * ratio[1]), 1))
    return np.stack([tall, wide], axis=1)


def flip(columns: list[Column], params: Params, draw: object) -> Column:
    images = read_images(columns[0])
    return _flips(images, [True] * len(images), _AXES[params["direction"]])


def random_flip(columns: list[Column], params: Params, draw: Draw) -> Column:
    images = read_images(columns[0])
    chosen = draw.uniform(1)[:, 0] < params["probability"]
    return _flips(images, chosen.tolist(), _AXES[params["direction"]])


def _flips(images: list[Any], chosen: list[bool], axis: int) -> Column:
    def write(row: int, image: np.ndarray, out: np.ndarray) -> None:
        if chosen[row]:
            cv2.flip(image, axis, dst=out)
        else:
            np.copyto(out, image)

    return write_images(images, lambda image: (image.shape, image.dtype), write)
