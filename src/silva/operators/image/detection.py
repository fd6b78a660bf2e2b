"""Augmentations for detectors: canvases and crops that are chosen by their boxes, as SSD trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from silva.errors import PlanError
from silva.operators.arguments import interval, numbers, share
from silva.operators.image.declare import image_move
from silva.operators.image.moves import Crop, Decide, Move, Pad, Stay
from silva.operators.rows import Draw, Params
from silva.plan.expr import Expr

_IOU_ATTEMPTS = 40


class DetectionMethods(Expr):
    """Methods for images with boxes."""

    __slots__ = ()

    def random_iou_crop(
        self,
        scale: tuple[float, float] = (0.3, 1.0),
        ratio: tuple[float, float] = (0.5, 2.0),
        overlaps: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    ) -> Self:
        """Crops a part that overlaps enough with some box, as SSD trains; needs `boxes=`.

        A least overlap is drawn from `overlaps` (1: the whole image stays), then up to 40 parts
        until one holds the centre of a box and overlaps that much with it. Boxes whose centre lies
        outside are dropped.

        >>> import silva as sv
        >>> sv.image("photo", boxes="boxes").random_iou_crop(overlaps=(0.5, 1.0))
        ... # doctest: +ELLIPSIS
        photo.scene(boxes, carries=('boxes',)).random_iou_crop(...)
        """
        overlaps = numbers("overlaps", overlaps)
        scale, ratio = interval("scale", scale), interval("ratio", ratio)
        if scale[1] > 1:
            raise PlanError(f"scale is a share of the image's sides, at most 1, not {scale}")
        return self._call("image.random_iou_crop", scale=scale, ratio=ratio, overlaps=overlaps)

    def random_zoom_out(
        self,
        scale: tuple[float, float] = (1.0, 4.0),
        probability: float = 0.5,
        fill: float | Sequence[float] = 0,
    ) -> Self:
        """Places the image at random on a canvas that is larger by a factor from `scale`.

        >>> import silva as sv
        >>> sv.image("photo").random_zoom_out((1.0, 2.0), fill=128)
        photo.random_zoom_out(scale=(1.0, 2.0), probability=0.5, fill=(128.0,))
        """
        scale = interval("scale", scale)
        if scale[0] < 1:
            raise PlanError(f"scale is at least 1: the canvas is no smaller than the image {scale}")
        probability = share("probability", probability)
        fills = numbers("fill", fill)
        return self._call("image.random_zoom_out", scale=scale, probability=probability, fill=fills)


@image_move("random_zoom_out", fills=True, random=True)
def random_zoom_out(params: Params, draw: Draw) -> Decide:
    """Puts the image at a random place of a larger canvas, so that objects become small (SSD)."""
    low, high = params["scale"]
    fill, probability = params["fill"], params["probability"]
    drawn = draw.uniform(4).tolist()

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        chance, how_much, down, across = drawn[row]
        if chance >= probability:
            return Stay((height, width))
        times = low + (high - low) * how_much
        tall, wide = int(height * times), int(width * times)
        top, left = int((tall - height) * down), int((wide - width) * across)
        return Pad((height, width), top, left, (tall, wide), fill)

    return decide


@image_move("random_iou_crop", random=True)
def random_iou_crop(params: Params, draw: Draw) -> Decide:
    """Draws the least overlap first (or none: the whole image), then crops until one overlaps that
    much with some box, as in the paper on SSD."""
    low, high = params["scale"]
    least_ratio, most_ratio = params["ratio"]
    options = params["overlaps"]
    drawn = draw.uniform(1 + 4 * _IOU_ATTEMPTS)

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        if scene is None or scene.boxes is None:
            raise ValueError('random_iou_crop needs boxes: sv.image("bytes", boxes="boxes")')
        wanted = options[int(drawn[row, 0] * len(options))]
        if wanted >= 1 or not len(scene.boxes):
            return Stay((height, width))
        # all attempts at once: the first that will do is the one that would have been found
        sides, places = np.split(drawn[row, 1:].reshape(-1, 4), 2, axis=1)
        size = np.array([height, width])
        parts = (size * (low + (high - low) * sides)).astype(np.int64)
        corners = ((size - parts) * places).astype(np.int64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = parts[:, 1] / parts[:, 0]
        fit = (least_ratio <= ratios) & (ratios <= most_ratio) & (parts > 0).all(axis=1)
        fit &= _best_overlap(scene.boxes, corners, parts) >= wanted
        if not fit.any():
            return Stay((height, width))
        first = int(fit.argmax())
        return _CentresInside(Crop(*corners[first].tolist(), *parts[first].tolist()))

    return decide


def _best_overlap(boxes: np.ndarray, corners: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """For each part of an image (top and left, height and width): the best overlap (intersection
    over union) with a box whose centre it holds, or -1 where it holds none."""
    start = corners[:, None, ::-1].astype(np.float32)
    stop = start + parts[:, None, ::-1]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside = ((start < centres) & (centres < stop)).all(axis=2)
    shared = np.minimum(boxes[:, 2:], stop) - np.maximum(boxes[:, :2], start)
    common = np.prod(np.maximum(shared, 0), axis=2)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    overlap = common / np.maximum(areas + np.prod(parts, axis=1)[:, None] - common, 1e-9)
    best: np.ndarray = np.where(inside, overlap, -1.0).max(axis=1)
    return best


def _centres_inside(boxes: np.ndarray, crop: Crop) -> np.ndarray:
    across, down = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    inside: np.ndarray = (
        (crop.left < across)
        & (across < crop.left + crop.width)
        & (crop.top < down)
        & (down < crop.top + crop.height)
    )
    return inside


class _CentresInside:
    """A crop after which only boxes whose centre lay inside it remain."""

    __slots__ = ("_crop",)

    def __init__(self, crop: Crop) -> None:
        self._crop = crop

    @property
    def size(self) -> tuple[int, int]:
        return self._crop.size

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        return self._crop.image(image, out)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return self._crop.mask(mask)

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        crop = self._crop
        inside = _centres_inside(boxes, crop)
        moved = crop.boxes(boxes)
        moved[~inside] = 0  # no area: dropped with their labels
        return moved
