"""One native call a row, written straight into the place where the result will stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import cv2
import numpy as np

from silva.columns import Array, Column, Values

Params = dict[str, Any]
Kind = tuple[tuple[int, ...], np.dtype]
"""The shape and dtype of one result."""


class Draw(Protocol):
    def uniform(self, k: int) -> np.ndarray:
        """(rows, k) numbers in [0, 1); row i's depend on nothing but row i."""


def write_images(
    images: list[Any],
    kind: Callable[[np.ndarray], Kind],
    write: Callable[[int, np.ndarray, np.ndarray], object],
) -> Column:
    """A column of what `write(row, image, out)` puts into `out`, which is of `kind(image)`.

    One array when every row has the same kind, else an array a row; nulls stay nulls.
    """
    kinds = [None if image is None else kind(image) for image in images]
    first = kinds[0] if kinds else None
    whole: np.ndarray | None = None
    outs: list[Any]
    if first is not None and kinds.count(first) == len(kinds):
        whole = np.empty((len(images), *first[0]), first[1])
        outs = list(whole)
    else:
        outs = [None if k is None else np.empty(*k) for k in kinds]
    for row, (image, out) in enumerate(zip(images, outs, strict=True)):
        if image is None:
            continue
        try:
            write(row, image, out)
        except cv2.error as error:
            raise ValueError(
                f"OpenCV cannot do this to an image of shape {image.shape} and type "
                f"{image.dtype}: {getattr(error, 'err', error)}"
            ) from error
    return Values(outs) if whole is None else Array(whole)


def read_images(column: Column) -> list[Any]:
    """The rows, each None or an array (height, width, channels)."""
    images = column.rows()
    for image in images:
        if image is None:
            continue
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
    return images


def sizes(images: list[Any]) -> np.ndarray:
    """(rows, 2): height and width; 1 × 1 stands for a null."""
    return np.array([(1, 1) if x is None else x.shape[:2] for x in images]).reshape(-1, 2)
