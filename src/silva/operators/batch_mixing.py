"""Batches in which each image is mixed with its neighbour: mixup and cutmix.

A batch-level step: it looks across rows, so it stands after `batch`, where the row is the batch.
The partner of row i is row i - 1, that of the first is the last. The meaning is torchvision's
(`v2.MixUp`, `v2.CutMix`); the random numbers are those of the batch's first row, so a batch is
mixed the same way however it is run.

Law, exact: cutmix moves pixels and changes none, so it commutes with steps that work pixel by pixel
(normalize). Mixup does not, but for rounding: it blends uint8 to uint8.
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
            raise ValueError(f"cutmix takes images of 3 dimensions, not {images.ndim - 1}")
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
    """Images and labels of a batch, each blended with those of the row before it: for `derive`
    after `batch`, into the two columns.

    The share that stays is drawn once a batch from Beta(alpha, alpha). Labels are class numbers,
    or arrays of `classes` numbers (then blended as they are), and become float32 of shape (rows,
    classes). Images are arrays of any shape; float32 stays float32, uint8 is rounded to uint8.

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
    """Images of a batch with a box taken from the row before, and labels blended by its area: for
    `derive` after `batch`, into the two columns.

    The box covers a share 1 - λ of the image, λ from Beta(alpha, alpha), before it is cut at the
    edges; one box a batch. Images keep their dtype; `layout="chw"` if channels come first. Labels
    are as in `mixup`.

    >>> step = cutmix("image", "label", classes=2)
    >>> import silva as sv
    >>> rows = sv.from_columns({"image": np.ones((4, 8, 8, 3), np.uint8), "label": [0, 1, 1, 0]})
    >>> batch = rows.batch(4).derive(step, into=("image", "label")).head(1)[0]
    >>> batch["image"].dtype, batch["label"].dtype
    (dtype('uint8'), dtype('float32'))
    """
    if layout not in ("hwc", "chw"):
        raise PlanError(f"layout is 'hwc' or 'chw', not {layout!r}")
    return Cutmix(*_arguments(images, labels, classes, alpha), layout)


def _arguments(images: Any, labels: Any, classes: Any, alpha: Any) -> tuple[str, str, int, float]:
    for name in (images, labels):
        if not isinstance(name, str) or not name.isidentifier() or name == "rng":
            raise PlanError(
                f"a column that is mixed has a name like a variable's, not {name!r}: rename it"
            )
    if images == labels:
        raise PlanError(f"images and labels are two columns, not both {images!r}")
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
            f"{what} mixes the rows of a batch, with images of one shape: it comes after batch(n)"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise ValueError(f"{what} takes images of uint8 or floats, not {images.dtype}")
    if isinstance(images, np.ma.MaskedArray) or isinstance(labels, np.ma.MaskedArray):
        raise ValueError(f"{what} cannot mix nulls: filter them, or fill_null() before batch(n)")
    if len(labels) != len(images):
        raise ValueError(f"{what} got {len(images)} images and {len(labels)} labels")
    if labels.shape[1:] == (classes,):
        return images, labels.astype(_FLOAT)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels are class numbers or arrays of {classes}, not {labels.dtype} of shape "
            f"{labels.shape[1:]}"
        )
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(f"label {wrong[0]} is not one of the {classes} from 0 to {classes - 1}")
    targets = np.zeros((len(labels), classes), _FLOAT)
    targets[np.arange(len(labels)), labels] = 1
    return images, targets


def _blend(rows: np.ndarray, share: float) -> np.ndarray:
    """share * row + (1 - share) * the row before, one row at a time to stay in the cache."""
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
    """A box around any pixel, with sides of sqrt(1 - share) of the image's, cut at its edges."""
    x, y = int(rng.integers(width)), int(rng.integers(height))
    half = 0.5 * math.sqrt(1 - share)
    right, down = int(half * width), int(half * height)
    tall = slice(max(y - down, 0), min(y + down, height))
    return tall, slice(max(x - right, 0), min(x + right, width))
