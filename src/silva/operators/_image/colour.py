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

import cv2
import numpy as np

from silva.operators._image.scene import on_image
from silva.operators.rows import Draw, Link, Params

_WEIGHTS = (0.299, 0.587, 0.114)
"""Of red, green and blue in the luminance."""
_STEPS = ("brightness", "contrast", "saturation", "hue")


def color_jitter(params: Params, draw: Draw) -> Link:
    """Each row draws a factor a step, and the order of the steps."""
    drawn = draw.uniform(8)
    bounds = [params[name] for name in _STEPS]
    low, high = (np.array([b[side] for b in bounds]) for side in (0, 1))
    factors = (low + (high - low) * drawn[:, :4]).tolist()
    orders = drawn[:, 4:].argsort(axis=1, kind="stable").tolist()
    void = [b == (0.0, 0.0) if step == "hue" else b == (1.0, 1.0)
            for step, b in zip(_STEPS, bounds, strict=True)]  # fmt: skip

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        check_colours(image)
        for step in orders[row]:
            if not void[step]:
                image = _ADJUST[step](image, factors[row][step])
        return image

    return on_image(work)


def check_colours(image: np.ndarray) -> None:
    if image.dtype != np.uint8 or image.shape[2] not in (1, 3):
        raise ValueError(
            f"colours are changed on uint8 of 1 or 3 channels, not {image.dtype} of "
            f"{image.shape[2]}; color_jitter() comes before to_float() and normalize()"
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
    """The colours turned by a part of the circle, -0.5 to 0.5."""
    if image.shape[2] == 1:
        return image
    colours = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    angles = colours[:, :, 0]
    np.add(angles, np.uint8(round(turn * 256) % 256), out=angles)  # wraps around, as a circle does
    made: np.ndarray = cv2.cvtColor(colours, cv2.COLOR_HSV2RGB_FULL)
    return made


_ADJUST = (brightness, contrast, saturation, hue)
