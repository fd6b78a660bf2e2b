"""An image together with what is drawn on it: boxes, their labels, and a mask.

`sv.image("bytes", boxes="boxes")` starts a chain of scenes instead of plain images. Geometric steps
move all parts alike; other steps see the image alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from silva.columns import Column, Values
from silva.operators.declare import column_operator
from silva.operators.native import cv2
from silva.operators.rows import Draw, Link, Params

PARTS = ("boxes", "labels", "mask")


@dataclass(frozen=True, eq=False, slots=True)
class Scene:
    image: Any
    """Encoded bytes before decode, then an array."""
    parts: tuple[str, ...]
    boxes: np.ndarray | None = None
    """float32 (n, 4): left, top, right, bottom in pixels."""
    labels: np.ndarray | None = None
    """(n, …): whatever belongs to each box."""
    mask: np.ndarray | None = None
    """(height, width) of numbers, one a pixel."""

    is_bundle: ClassVar[bool] = True

    def __iter__(self) -> Iterator[Any]:
        yield self.image
        for part in self.parts:
            yield getattr(self, part)

    def with_image(self, image: Any) -> Scene:
        return replace(self, image=image)


@column_operator("image.scene")
def gather(columns: list[Column], params: Params, draw: Draw) -> Column:
    """Makes scenes of the column of images and the columns that go along."""
    parts = params["carries"]
    rows = zip(*(column.rows() for column in columns), strict=True)
    return Values([None if row[0] is None else _scene(parts, *row) for row in rows])


def _scene(parts: tuple[str, ...], image: Any, *values: Any) -> Scene:
    given = dict(zip(parts, values, strict=True))
    boxes, labels, mask = (given.get(part) for part in PARTS)
    if boxes is None and "boxes" in given:
        boxes = np.empty((0, 4), np.float32)
    if boxes is not None:
        boxes = np.array(list(boxes), np.float32).reshape(-1, 4) if len(boxes) else _no_boxes()
    if labels is not None:
        labels = np.asarray(labels)
        if boxes is None or len(labels) != len(boxes):
            count = 0 if boxes is None else len(boxes)
            raise ValueError(f"there are {len(labels)} labels for {count} boxes")
    elif "labels" in given:
        labels = np.empty(0, np.int64)
    if mask is not None and np.ndim(mask) != 2:
        raise ValueError(f"a mask has the shape (height, width), not {np.shape(mask)}")
    return Scene(image, parts, boxes, labels, mask)


def _no_boxes() -> np.ndarray:
    return np.empty((0, 4), np.float32)


def on_image(work: Callable[[int, np.ndarray, np.ndarray | None], np.ndarray]) -> Link:
    """A link that works on the pixels of a plain image, or of a scene."""

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if type(value) is Scene:
            return value.with_image(guarded(work, row, value.image, out))
        return guarded(work, row, value, out)

    return link


def guarded(work: Any, row: int, image: Any, out: np.ndarray | None) -> Any:
    """Calls `work(row, image, out)` after a check of the image, and rewords OpenCV's errors."""
    check(image)
    try:
        return work(row, image, out)
    except cv2.error as error:
        raise ValueError(
            f"OpenCV cannot process an image of shape {image.shape} and type {image.dtype}: "
            f"{getattr(error, 'err', error)}"
        ) from error


def check(image: Any) -> None:
    if type(image) is np.ndarray and image.ndim == 3 and image.size and image.dtype.isnative:
        return
    if not isinstance(image, np.ndarray):
        hint = "; decode() comes first" if isinstance(image, bytes) else ""
        raise ValueError(f"an image is an array, not {type(image).__name__}{hint}")
    if image.ndim != 3 or image.size == 0:
        hint = "; x[..., None] adds the channels" if image.ndim == 2 else ""
        raise ValueError(
            f"an image has the shape (height, width, channels), not {image.shape}{hint}"
        )
    if not image.dtype.isnative:
        raise ValueError(f"the numbers of an image must be in native order, not {image.dtype}")


def with_channels(pixels: Any) -> np.ndarray:
    """Restores the channel axis of gray images, which OpenCV drops."""
    array: np.ndarray = pixels
    return array[:, :, None] if array.ndim == 2 else array
