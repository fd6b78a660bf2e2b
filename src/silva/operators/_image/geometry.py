"""Which move each image makes: decided from its size and its row's random numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from silva.operators._image.moves import (
    INTERPOLATIONS,
    Crop,
    CropResize,
    Flip,
    Move,
    Pad,
    Resize,
    Rotate,
    Stay,
    move_scene,
)
from silva.operators._image.scene import Scene, check, guarded
from silva.operators.rows import Bind, Draw, Link, Params

Decide = Callable[[int, int, int, Any], Move]
"""`decide(row, height, width, scene)`: the move of that row's image (the scene, where it has boxes,
else None)."""

_AXES = {"vertical": 0, "horizontal": 1}
_ATTEMPTS = 10
_IOU_ATTEMPTS = 40


def moving(choose: Callable[[Params, Draw], Decide]) -> Bind:
    """The kernel of a geometric step, made of how it chooses its moves."""
    return lambda params, draw: moved(choose(params, draw))


def moved(decide: Decide) -> Link:
    def move_image(row: int, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        return decide(row, image.shape[0], image.shape[1], None).image(image, out)

    def link(row: int, value: Any, out: np.ndarray | None) -> Any:
        if type(value) is not Scene:
            return guarded(move_image, row, value, out)
        check(value.image)
        height, width = value.image.shape[:2]
        if value.mask is not None and value.mask.shape != (height, width):
            raise ValueError(
                f"the mask is {value.mask.shape[0]} × {value.mask.shape[1]} and its image "
                f"{height} × {width}"
            )
        return move_scene(decide(row, height, width, value), value, out)

    return link


def resize(params: Params, draw: Draw) -> Decide:
    size = params["height"], params["width"]
    how = INTERPOLATIONS[params["interpolation"]]
    return lambda row, height, width, scene: Resize((height, width), size, how)


def resize_shorter(params: Params, draw: Draw) -> Decide:
    """As torchvision's Resize of one number: the longer side is rounded down."""
    size, how = params["size"], INTERPOLATIONS[params["interpolation"]]

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        if height <= width:
            new = size, int(size * width / height)
        else:
            new = int(size * height / width), size
        return Resize((height, width), new, how)

    return decide


def crop(params: Params, draw: Draw) -> Decide:
    box = Crop(params["top"], params["left"], params["height"], params["width"])
    return _of_at_least(params.get("least"), lambda row, height, width, scene: box)


def center_crop(params: Params, draw: Draw) -> Decide:
    tall, wide = params["height"], params["width"]
    return _of_at_least(
        params.get("least"),
        lambda row, height, width, scene: Crop(
            (height - tall) // 2, (width - wide) // 2, tall, wide
        ),
    )


def _of_at_least(least: tuple[int, int] | None, decide: Decide) -> Decide:
    """Of two crops that became one: it fails on images that are too small for the first."""
    if least is None:
        return decide
    tall, wide = least

    def checked(row: int, height: int, width: int, scene: Any) -> Move:
        if height < tall or width < wide:
            raise ValueError(f"an image of {height} × {width} is cropped to {tall} × {wide}")
        return decide(row, height, width, scene)

    return checked


def random_crop(params: Params, draw: Draw) -> Decide:
    tall, wide = params["height"], params["width"]
    drawn = draw.uniform(2).tolist()

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        down, across = drawn[row]  # below 1, so a corner is below the number of places
        return Crop(
            math.floor(down * (height - tall + 1)), math.floor(across * (width - wide + 1)),
            tall, wide,
        )  # fmt: skip

    return decide


def random_resized_crop(params: Params, draw: Draw) -> Decide:
    size = params["height"], params["width"]
    how = INTERPOLATIONS[params["interpolation"]]
    drawn = draw.uniform(2 * _ATTEMPTS + 2).tolist()
    scale, ratio = params["scale"], params["ratio"]
    return lambda row, height, width, scene: CropResize(
        random_box(height, width, drawn[row], scale, ratio), size, how
    )


def random_box(
    height: int,
    width: int,
    drawn: list[float],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Crop:
    """torchvision's recipe: ten attempts at an area and a ratio, then the middle of the image.

    `drawn` holds the attempts' areas, their ratios, and the place.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        area = (scale[0] + (scale[1] - scale[0]) * drawn[attempt]) * height * width
        aspect = math.exp(low + (high - low) * drawn[_ATTEMPTS + attempt])
        tall, wide = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < tall <= height and 0 < wide <= width:
            top = math.floor(drawn[-2] * (height - tall + 1))
            return Crop(top, math.floor(drawn[-1] * (width - wide + 1)), tall, wide)
    tall = min(height, max(round(width / ratio[0]), 1))
    wide = min(width, max(round(height * ratio[1]), 1))
    return Crop((height - tall) // 2, (width - wide) // 2, tall, wide)


def flip(params: Params, draw: Draw) -> Decide:
    axis = _AXES[params["direction"]]
    return lambda row, height, width, scene: Flip((height, width), axis)


def random_flip(params: Params, draw: Draw) -> Decide:
    axis = _AXES[params["direction"]]
    chosen = (draw.uniform(1)[:, 0] < params["probability"]).tolist()
    return lambda row, height, width, scene: (
        Flip((height, width), axis) if chosen[row] else Stay((height, width))
    )


def pad(params: Params, draw: Draw) -> Decide:
    top, left, bottom, right = params["sides"]
    fill = params["fill"]
    return lambda row, height, width, scene: Pad(
        (height, width), top, left, (height + top + bottom, width + left + right), fill
    )


def pad_to(params: Params, draw: Draw) -> Decide:
    tall, wide, fill = params["height"], params["width"], params["fill"]

    def decide(row: int, height: int, width: int, scene: Any) -> Move:
        if height > tall or width > wide:
            raise ValueError(
                f"an image of {height} × {width} is larger than the {tall} × {wide} that "
                "pad_to() wants; resize it first"
            )
        return Pad((height, width), 0, 0, (tall, wide), fill)

    return decide


def rotate(params: Params, draw: Draw) -> Decide:
    degrees, how = params["degrees"], INTERPOLATIONS[params["interpolation"]]
    fill = params["fill"]
    return lambda row, height, width, scene: Rotate((height, width), degrees, how, fill)


def random_rotate(params: Params, draw: Draw) -> Decide:
    low, high = params["degrees"]
    how, fill = INTERPOLATIONS[params["interpolation"]], params["fill"]
    degrees = (low + (high - low) * draw.uniform(1)[:, 0]).tolist()
    return lambda row, height, width, scene: Rotate((height, width), degrees[row], how, fill)


def random_zoom_out(params: Params, draw: Draw) -> Decide:
    """The image on a larger canvas, at any place of it: small objects, as SSD wants them."""
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


def random_iou_crop(params: Params, draw: Draw) -> Decide:
    """A part of the image that keeps enough of some box, as SSD's paper has it: a least overlap is
    drawn first (or none: the whole image), then parts until one overlaps that much."""
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
