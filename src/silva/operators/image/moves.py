"""Moves: what a geometric step has decided to do to one image, and so to its boxes and its mask.

A move knows nothing of random numbers: `geometry` draws them, from the image's size alone, and
makes moves of them. That is why a crop can be chosen before its image is decoded.

Laws, exact for every dtype and tested bit for bit:
    Crop(t, l, h, w) ∘ Crop(T, L, H, W) = Crop(T + t, L + l, h, w)
    Flip ∘ Flip = nothing
    Crop(t, l, h, w) ∘ Flip = Flip ∘ Crop(t, width - l - w, h, w)
    Resize to the size that it has = nothing
    Resize(h, w) ∘ Crop(…) = CropResize(…, h, w)
Not laws: Resize ∘ Crop ≠ Crop ∘ Resize (interpolation reaches across the crop's border), and
Flip ∘ Resize = Resize ∘ Flip holds for uint8 only where the sizes divide evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from silva.operators.image.scene import Scene, check, guarded, with_channels
from silva.operators.native import cv2
from silva.operators.rows import Bind, Draw, Link, Params, room

Interpolation = Literal["nearest", "bilinear", "bicubic", "area", "lanczos", "antialias"]
AVERAGING = ("area", "antialias")
"""The interpolations that take the mean of all pixels when they shrink."""


def opencv_flag(interpolation: Interpolation) -> int:
    """OpenCV's number for an interpolation; -1 for `antialias`, which is chosen by the sizes."""
    if interpolation == "antialias":
        return -1
    flags = {
        "nearest": cv2.INTER_NEAREST,
        "bilinear": cv2.INTER_LINEAR,
        "bicubic": cv2.INTER_CUBIC,
        "area": cv2.INTER_AREA,
        "lanczos": cv2.INTER_LANCZOS4,
    }
    return int(flags[interpolation])


class Move(Protocol):
    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray: ...

    def boxes(self, boxes: np.ndarray) -> np.ndarray: ...

    def mask(self, mask: np.ndarray) -> np.ndarray: ...

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the result."""


Decide = Callable[[int, int, int, Any], Move]
"""`decide(row, height, width, scene)`: the move of that row's image (the scene, where it has boxes,
else None)."""

Choose = Callable[[Params, Draw], Decide]
"""Binds a geometric operator to its parameters and to the random numbers of a block."""


def moving(choose: Choose) -> Bind:
    """The kernel of a geometric operator."""
    return lambda params, draw: moved(choose(params, draw))


def moved(decide: Decide) -> Link:
    """A link that moves a plain image, or all parts of a scene."""

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


def move_scene(move: Move, scene: Scene, out: np.ndarray | None = None) -> Scene:
    """Moves all parts of a scene. Boxes are clipped to the image; empty ones are dropped with their
    labels."""
    image = move.image(scene.image, out)
    mask = None if scene.mask is None else move.mask(scene.mask)
    if scene.boxes is None:
        return replace(scene, image=image, mask=mask)
    height, width = move.size
    boxes = move.boxes(scene.boxes).astype(np.float32, copy=False)
    boxes = np.clip(boxes, 0, np.array([width, height, width, height], np.float32))
    left = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    labels = None if scene.labels is None else scene.labels[left]
    return replace(scene, image=image, mask=mask, boxes=boxes[left], labels=labels)


@dataclass(slots=True)
class Stay:
    size: tuple[int, int]

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        return image

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        return boxes

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return mask


@dataclass(slots=True)
class Crop:
    top: int
    left: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        part = self.mask(image)
        if out is None or out.shape != part.shape or out.dtype != part.dtype:
            return part
        np.copyto(out, part)
        return out

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        return boxes - np.array([self.left, self.top] * 2, np.float32)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        top, left, height, width = self.top, self.left, self.height, self.width
        if top + height > mask.shape[0] or left + width > mask.shape[1] or min(top, left) < 0:
            raise ValueError(
                f"a crop of {height} × {width} at {top}, {left} does not lie inside an image of "
                f"{mask.shape[0]} × {mask.shape[1]}"
            )
        return mask[top : top + height, left : left + width]


@dataclass(slots=True)
class Resize:
    """Resizes an image of `old` (height, width) to `size`."""

    old: tuple[int, int]
    size: tuple[int, int]
    how: int

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        shape = (*self.size, image.shape[2])
        if self.old == self.size and out is None:
            return image
        out = room(out, shape, image.dtype)
        cv2.resize(image, self.size[::-1], dst=out, interpolation=self._how())
        return out

    def _how(self) -> int:
        if self.how >= 0:
            return self.how
        shrinks = self.old[0] >= self.size[0] and self.old[1] >= self.size[1]
        return cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        down, across = self.size[0] / self.old[0], self.size[1] / self.old[1]
        return boxes * np.array([across, down] * 2, np.float32)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return cv2.resize(mask, self.size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


@dataclass(slots=True)
class CropResize:
    crop: Crop
    size: tuple[int, int]
    how: int

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        return self._resize().image(self.crop.mask(image), out)

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        return self._resize().boxes(self.crop.boxes(boxes))

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return self._resize().mask(self.crop.mask(mask))

    def _resize(self) -> Resize:
        return Resize(self.crop.size, self.size, self.how)


@dataclass(slots=True)
class Flip:
    size: tuple[int, int]
    axis: int
    """OpenCV's number: 1 left to right, 0 top to bottom."""

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        out = room(out, image.shape, image.dtype)
        cv2.flip(image, self.axis, dst=out)
        return out

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        out = boxes.copy()
        near, far = (0, 2) if self.axis == 1 else (1, 3)
        out[:, near] = self.size[self.axis] - boxes[:, far]
        out[:, far] = self.size[self.axis] - boxes[:, near]
        return out

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.flip(mask, self.axis))


@dataclass(slots=True)
class Pad:
    """Puts an image of `old` (height, width) at (`top`, `left`) on a canvas of `size`."""

    old: tuple[int, int]
    top: int
    left: int
    size: tuple[int, int]
    fill: Any

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        out = room(out, (*self.size, image.shape[2]), image.dtype)
        out[...] = level(self.fill, image.dtype)
        self._inside(out)[...] = image
        return out

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        return boxes + np.array([self.left, self.top] * 2, np.float32)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        out = np.zeros(self.size, mask.dtype)
        self._inside(out)[...] = mask
        return out

    def _inside(self, canvas: np.ndarray) -> np.ndarray:
        return canvas[self.top : self.top + self.old[0], self.left : self.left + self.old[1]]


_WARPED = ("uint8", "uint16", "int16", "float32", "float64")
"""What OpenCV warps without another type in between; it would cut int64 to 32 bits."""


_FIXED_POINT = 1 << 20
"""Pixels: OpenCV's `warpAffine` computes places as 32 bits, 10 of them after the point, and wraps
around beyond."""
_OUTSIDE = 16
"""Pixels beyond the border that no interpolation reaches."""
_SINGULAR = 1e-14
"""A determinant that is a smaller share of its terms is rounding error."""


@dataclass(slots=True)
class Warp:
    """An affine map of an image, on a canvas of the same size."""

    size: tuple[int, int]
    matrix: np.ndarray
    """(2, 3): where the centre of a pixel, (x, y) from 0, goes."""
    how: int
    fill: Any

    def image(self, image: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        if image.dtype.name not in _WARPED:
            raise ValueError(
                f"rotate() and affine() take {', '.join(_WARPED)}, not {image.dtype}: convert the "
                "image first"
            )
        channels = image.shape[2]
        if np.size(self.fill) not in (1, channels):
            raise ValueError(
                f"fill has {np.size(self.fill)} values, but the image has {channels} channels"
            )
        fill = np.broadcast_to(_within(self.fill, image.dtype), (channels,)).tolist()
        return with_channels(self._warped(image, self.how, fill))

    def _warped(self, image: np.ndarray, how: int, fill: list[float]) -> np.ndarray:
        inverse = _inverse(self.matrix)
        if inverse is None:  # the image has become a line or a point
            return np.full(image.shape, level(fill, image.dtype), image.dtype)
        height, width = self.size
        reach = (np.abs(inverse) @ (width, height, 1)).max()
        if max(reach, np.abs(self.matrix).max()) < _FIXED_POINT:
            return cv2.warpAffine(
                image, self.matrix, (width, height), flags=how,
                borderMode=cv2.BORDER_CONSTANT, borderValue=fill,
            )  # fmt: skip
        down, across = np.mgrid[:height, :width]
        from_x, from_y = (a * across + (b * down + c) for a, b, c in inverse)
        return cv2.remap(
            image,
            from_x.clip(-_OUTSIDE, width + _OUTSIDE).astype(np.float32),
            from_y.clip(-_OUTSIDE, height + _OUTSIDE).astype(np.float32),
            how, borderMode=cv2.BORDER_CONSTANT, borderValue=fill,
        )  # fmt: skip

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """The upright boxes around the mapped corners, which are a little too large."""
        if _inverse(self.matrix) is None:
            return np.zeros_like(boxes)
        corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
        mapped = (corners - 0.5) @ self.matrix[:, :2].T + self.matrix[:, 2] + 0.5
        return np.concatenate([mapped.min(axis=1), mapped.max(axis=1)], axis=1)

    def mask(self, mask: np.ndarray) -> np.ndarray:
        return self._warped(mask, cv2.INTER_NEAREST, [0.0])


def level(fill: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A fill as values of an image's dtype; what is beyond its range is the end of the range."""
    return _within(fill, dtype).astype(dtype)


def _within(fill: Any, dtype: np.dtype[Any]) -> np.ndarray:
    values = np.asarray(fill, np.float64)
    if dtype.kind not in "iu":
        return values
    ends = np.iinfo(dtype)
    most = float(ends.max)
    return values.clip(ends.min, most if most <= ends.max else math.nextafter(most, 0))


def _inverse(matrix: np.ndarray) -> np.ndarray | None:
    """The matrix of the map back; None where it has none that floats can hold."""
    largest = float(np.abs(matrix[:, :2]).max())
    if not (np.isfinite(matrix).all() and largest > 0):
        return None
    (a, b), (c, d) = (matrix[:, :2] / largest).tolist()
    determinant = a * d - b * c
    if abs(determinant) <= _SINGULAR * (abs(a * d) + abs(b * c)):
        return None
    with np.errstate(all="ignore"):
        linear = np.array([[d, -b], [-c, a]]) / determinant / largest
        found = np.concatenate([linear, -linear @ matrix[:, 2:]], axis=1)
    return found if np.isfinite(found).all() else None


def rotation(size: tuple[int, int], degrees: float) -> np.ndarray:
    """The matrix of a rotation about the centre, counter-clockwise."""
    centre = ((size[1] - 1) / 2, (size[0] - 1) / 2)
    matrix: np.ndarray = cv2.getRotationMatrix2D(centre, degrees, 1.0)
    return matrix


def affine_matrix(
    size: tuple[int, int],
    degrees: float,
    translate: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
    center: tuple[float, float] | None,
) -> np.ndarray:
    """The matrix of torchvision's `affine`: shear along x, then y, scale, clockwise rotation about
    `center` (x, y, in pixels from the upper left corner; None is the middle), and translation."""
    turn, across, down = (math.radians(angle) for angle in (degrees, *shear))
    cosine, sine = math.cos(turn - down) / math.cos(down), math.sin(turn - down) / math.cos(down)
    linear = scale * np.array(
        [
            [cosine, -cosine * math.tan(across) - math.sin(turn)],
            [sine, -sine * math.tan(across) + math.cos(turn)],
        ]
    )
    height, width = size
    fixed = np.array((width / 2, height / 2) if center is None else center) - 0.5
    moved = fixed + np.array(translate) - linear @ fixed
    return np.concatenate([linear, moved[:, None]], axis=1)
