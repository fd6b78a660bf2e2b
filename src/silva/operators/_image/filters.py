"""Blur, and erased rectangles.

Laws, exact for uint8: gaussian_blur commutes with flip (kernels are symmetric, and sums of a pixel
and its mirror are made in the same order). Not a law for floats, in the last bits; nor with crop,
whose new border is mirrored where there were real neighbours.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from silva.operators._image.scene import on_image
from silva.operators.rows import Draw, Link, Params, room

_ATTEMPTS = 10


def gaussian_blur(params: Params, draw: Draw) -> Link:
    """The borders are mirrored; uint8 is rounded once, at the end."""
    kernel = kernel_of(params["size"], params["sigma"])
    return on_image(lambda row, image, out: _blur(image, kernel, out))


def random_gaussian_blur(params: Params, draw: Draw) -> Link:
    """One sigma a row."""
    size, (low, high) = params["size"], params["sigma"]
    sigmas = (low + (high - low) * draw.uniform(1)[:, 0]).tolist()
    return on_image(lambda row, image, out: _blur(image, kernel_of(size, sigmas[row]), out))


def _blur(image: np.ndarray, kernel: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    out = room(out, image.shape, image.dtype)
    cv2.sepFilter2D(image, -1, kernel, kernel, dst=out, borderType=cv2.BORDER_REFLECT_101)
    return out


def kernel_of(size: int, sigma: float) -> np.ndarray:
    """The weights of `size` neighbours in a line; their sum is 1."""
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (places / sigma) ** 2)
    kernel: np.ndarray = (weights / weights.sum()).astype(np.float32)
    return kernel


def random_erasing(params: Params, draw: Draw) -> Link:
    """A rectangle of one value, by torchvision's recipe: ten attempts, then none."""
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
                out[top : top + tall, left : left + wide] = np.asarray(fill, image.dtype)
                return out
        return image

    return on_image(work)
