"""Mixup and cutmix: each image of a batch is mixed with the image before it.

They combine rows, so they come after `batch`, where a row is a batch. Row i is mixed with row
i - 1, and the first row with the last. They compute what torchvision's `v2.MixUp` and `v2.CutMix`
compute. The random numbers are those of the batch's first row, so a batch is mixed in the same way
on every backend.

Exact law: cutmix moves pixels and changes none, so it commutes with steps that work pixel by pixel,
such as normalize. Mixup does so only up to rounding, because it rounds uint8 images to uint8.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from silva.columns import empty
from silva.errors import PlanError
from silva.operators.arguments import integer
from silva.operators.items.arguments import number

Layout = Literal["hwc", "chw"]
_FLOAT = np.float32


@dataclass(frozen=True)
class Mixup:
    """Called with a batch's images and labels; `inspect.signature` names the columns."""

    images: str
    labels: str
    classes: int
    alpha: float

    @property
    def __signature__(self) -> inspect.Signature:
        return _signature(self.images, self.labels)

    def __call__(self, images: Any, labels: Any, rng: np.random.Generator) -> Any:
        images, targets = _check(images, labels, self.classes, "mixup")
        share = rng.beta(self.alpha, self.alpha)
        return _blend(images, share), _blend(targets, share)


@dataclass(frozen=True)
class Cutmix:
    """Called with a batch's images and labels; `inspect.signature` names the columns."""

    images: str
    labels: str
    classes: int
    alpha: float
    layout: Layout

    @property
    def __signature__(self) -> inspect.Signature:
        return _signature(self.images, self.labels)

    def __call__(self, images: Any, labels: Any, rng: np.random.Generator) -> Any:
        images, targets = _check(images, labels, self.classes, "cutmix")
        if images.ndim != 4:
            raise ValueError(f"cutmix needs images of 3 dimensions, not {images.ndim - 1}")
        rows = 1 if self.layout == "hwc" else 2
        height, width = images.shape[rows : rows + 2]
        tall, wide = _box(height, width, rng.beta(self.alpha, self.alpha), rng)
        inside = (slice(None),) * rows + (tall, wide)
        out = empty(images.shape, images.dtype)
        np.copyto(out, images)
        out[inside][1:] = images[inside][:-1]
        out[inside][0] = images[inside][-1]
        area = (tall.stop - tall.start) * (wide.stop - wide.start)
        return out, _blend(targets, 1 - area / (height * width))


def mixup(images: str, labels: str, *, classes: int, alpha: float = 1.0) -> Mixup:
    """Blends each image and label of a batch with those of the row before it: a step for `derive`
    after `batch`, into the two columns.

    The weight of the row itself is drawn once per batch from Beta(alpha, alpha). Labels are class
    numbers, or arrays of `classes` numbers, which are blended as they are; they become float32 of
    shape (rows, classes). Images are arrays of any shape and keep their type; uint8 is rounded.

    >>> step = mixup("image", "label", classes=2, alpha=0.2)
    >>> import silva as sv
    >>> rows = sv.from_columns({"image": np.ones((4, 8, 8, 3), np.float32), "label": [0, 1, 1, 0]})
    >>> batch = rows.batch(4).derive(step, into=("image", "label")).head(1)[0]
    >>> batch["image"].shape, batch["label"].shape
    ((4, 8, 8, 3), (4, 2))
    """
    return Mixup(*_arguments(images, labels, classes, alpha))


def cutmix(
    images: str, labels: str, *, classes: int, alpha: float = 1.0, layout: Layout = "hwc"
) -> Cutmix:
    """Replaces a box in each image of a batch by that of the row before it, and blends the labels
    by the area of the box: a step for `derive` after `batch`, into the two columns.

    There is one box per batch. It covers a share of 1 - λ of the image, with λ drawn from
    Beta(alpha, alpha), before it is cropped at the edges. Images keep their type; pass
    `layout="chw"` if channels come first. Labels are those of `mixup`.

    >>> step = cutmix("image", "label", classes=2)
    >>> import silva as sv
    >>> rows = sv.from_columns({"image": np.ones((4, 8, 8, 3), np.uint8), "label": [0, 1, 1, 0]})
    >>> batch = rows.batch(4).derive(step, into=("image", "label")).head(1)[0]
    >>> batch["image"].dtype, batch["label"].dtype
    (dtype('uint8'), dtype('float32'))
    """
    if layout not in ("hwc", "chw"):
        raise PlanError(f"layout must be 'hwc' or 'chw', not {layout!r}")
    return Cutmix(*_arguments(images, labels, classes, alpha), layout)


def _arguments(images: Any, labels: Any, classes: Any, alpha: Any) -> tuple[str, str, int, float]:
    for name in (images, labels):
        if not isinstance(name, str) or not name.isidentifier() or name == "rng":
            raise PlanError(
                "the name of a mixed column must be a valid Python name other than rng, not "
                f"{name!r}: rename the column"
            )
    if images == labels:
        raise PlanError(f"images and labels must be two columns, but both are {images!r}")
    if number("alpha", alpha) <= 0:
        raise PlanError(f"alpha must be positive, not {alpha}")
    return images, labels, integer("classes", classes, 1), float(alpha)


def _signature(*columns: str) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in (*columns, "rng")])


def _check(images: Any, labels: Any, classes: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The images, and labels as float32 of shape (rows, classes)."""
    labels = np.asanyarray(labels)
    if not isinstance(images, np.ndarray) or images.ndim < 2 or labels.ndim < 1:
        raise ValueError(
            f"{what} mixes the rows of a batch, with images of one shape: call it after batch(n)"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise ValueError(f"{what} needs images of uint8 or floats, not {images.dtype}")
    if isinstance(images, np.ma.MaskedArray) or isinstance(labels, np.ma.MaskedArray):
        raise ValueError(
            f"{what} cannot mix nulls: filter them out, or call fill_null() before batch(n)"
        )
    if len(labels) != len(images):
        raise ValueError(f"{what} got {len(images)} images and {len(labels)} labels")
    if labels.shape[1:] == (classes,):
        return images, labels.astype(_FLOAT)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be class numbers or arrays of {classes} numbers, not {labels.dtype} of "
            f"shape {labels.shape[1:]}"
        )
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(f"label {wrong[0]} is not one of the {classes} from 0 to {classes - 1}")
    targets = np.zeros((len(labels), classes), _FLOAT)
    targets[np.arange(len(labels)), labels] = 1
    return images, targets


def _blend(rows: np.ndarray, share: float) -> np.ndarray:
    """Computes share * row + (1 - share) * the row before, row by row to stay in the CPU cache."""
    kind = _FLOAT if rows.dtype == np.uint8 else rows.dtype.type
    ours, theirs = kind(share), kind(1 - share)
    out = empty(rows.shape, rows.dtype)
    mixed, other = (np.empty(rows.shape[1:], kind) for _ in range(2))
    for i, row in enumerate(rows):
        np.multiply(rows[i - 1], theirs, out=other, dtype=kind)
        np.multiply(row, ours, out=mixed, dtype=kind)
        np.add(other, mixed, out=mixed)
        if out.dtype == np.uint8:
            np.rint(mixed, out=mixed)
        np.copyto(out[i], mixed, casting="unsafe")
    return out


def _box(height: int, width: int, share: float, rng: np.random.Generator) -> tuple[slice, slice]:
    """A box around a random pixel, with sides of sqrt(1 - share) of the image's, cropped at its
    edges."""
    x, y = int(rng.integers(width)), int(rng.integers(height))
    half = 0.5 * math.sqrt(1 - share)
    right, down = int(half * width), int(half * height)
    tall = slice(max(y - down, 0), min(y + down, height))
    return tall, slice(max(x - right, 0), min(x + right, width))
