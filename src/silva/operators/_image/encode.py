"""Pixels to bytes."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import simplejpeg

from silva.operators._image.scene import on_image
from silva.operators.rows import Draw, Link, Params


def encode(params: Params, draw: Draw) -> Link:
    form, quality = params["format"], params["quality"]

    def work(row: int, image: np.ndarray, out: np.ndarray | None) -> Any:
        channels = image.shape[2]
        if image.dtype != np.uint8 or channels not in (1, 3):
            raise ValueError(
                f"encode() takes uint8 of 1 or 3 channels, not {image.dtype} of {channels}"
            )
        image = np.ascontiguousarray(image)
        if form == "jpeg":
            return simplejpeg.encode_jpeg(image, quality, "GRAY" if channels == 1 else "RGB")
        flags = [cv2.IMWRITE_WEBP_QUALITY, quality] if form == "webp" else []
        pixels = image if channels == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        good, data = cv2.imencode(f".{form}", pixels, flags)
        if not good:
            raise ValueError(f"an image of {image.shape} cannot be written as {form}")
        return data.tobytes()

    return on_image(work)
