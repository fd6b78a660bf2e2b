"""Image steps by hand: simplejpeg and OpenCV on uint8, with torchvision's rules for random numbers.

Used by the limits; nothing here knows of silva. Each function takes and gives uint8 RGB unless it
says otherwise.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator


def read(path: str) -> np.ndarray:
    import simplejpeg

    pixels: np.ndarray = simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB")
    return pixels


def draw_box(
    rng: Rng, height: int, width: int, scale: tuple[float, float] = (0.08, 1.0)
) -> tuple[int, int, int, int]:
    """Top, left, height, width of a random resized crop, by torchvision's rules."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
            return int(top), int(left), h, w
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (height - h) // 2, (width - w) // 2, h, w


def resized(
    photo: np.ndarray, box: tuple[int, int, int, int], size: int, area: bool = False
) -> np.ndarray:
    """A part of a photo, bilinear without antialiasing, or averaged where it shrinks."""
    import cv2

    top, left, height, width = box
    kind = cv2.INTER_AREA if area else cv2.INTER_LINEAR
    part = photo[top : top + height, left : left + width]
    return cv2.resize(part, (size, size), interpolation=kind)


def flipped(photo: np.ndarray) -> np.ndarray:
    import cv2

    return cv2.flip(photo, 1)


def jittered(
    photo: np.ndarray, rng: Rng, amounts: tuple[float, float, float], hue: float
) -> np.ndarray:
    """Brightness, contrast, saturation and hue, each by a random factor, in random order."""
    factors = [rng.uniform(max(0.0, 1 - a), 1 + a) for a in amounts]
    shift = rng.uniform(-hue, hue)
    steps: tuple[Any, ...] = (
        lambda x: brighter(x, factors[0]),
        lambda x: more_contrast(x, factors[1]),
        lambda x: more_colour(x, factors[2]),
        lambda x: other_hue(x, shift),
    )
    for number in rng.permutation(4):
        photo = steps[number](photo)
    return photo


def brighter(photo: np.ndarray, factor: float) -> np.ndarray:
    import cv2

    return cv2.LUT(photo, _line(factor, 0.0))


def more_contrast(photo: np.ndarray, factor: float) -> np.ndarray:
    """Away from, or towards, the mean of the gray photo."""
    import cv2

    mean = cv2.mean(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY))[0]
    return cv2.LUT(photo, _line(factor, (1 - factor) * mean))


def more_colour(photo: np.ndarray, factor: float) -> np.ndarray:
    """Away from, or towards, the gray photo."""
    import cv2

    gray = cv2.cvtColor(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return cv2.addWeighted(photo, factor, gray, 1 - factor, 0)


def other_hue(photo: np.ndarray, shift: float) -> np.ndarray:
    """`shift` is a share of the full circle; one table turns the hue and leaves the rest."""
    import cv2

    hsv = cv2.cvtColor(photo, cv2.COLOR_RGB2HSV)
    table = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    table[0, :180, 0] = (np.arange(180) + round(shift * 180)) % 180
    return cv2.cvtColor(cv2.LUT(hsv, table), cv2.COLOR_HSV2RGB)


def gray(photo: np.ndarray) -> np.ndarray:
    import cv2

    return cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)


def normal_table(mean: Any, std: Any) -> np.ndarray:
    """float32 of every uint8, scaled to [0, 1] and normalised; (1, 256, channels)."""
    levels = np.arange(256, dtype=np.float32)[:, None] / np.float32(255)
    mean, std = np.atleast_1d(np.float32(mean)), np.atleast_1d(np.float32(std))
    table: np.ndarray = ((levels - mean) / std)[None]
    return table


def _line(slope: float, offset: float) -> np.ndarray:
    """slope * x + offset of every uint8, cut off as uint8."""
    values = np.arange(256, dtype=np.float32) * slope + offset
    return np.clip(values, 0, 255).astype(np.uint8)
