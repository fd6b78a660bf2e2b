"""How people write image steps: `sv.image("bytes").decode().resize(224, 224)`.

Every method checks its arguments at once and appends a `Call`. No image library is imported here,
so that `import silva` stays light; the kernels are in `silva.operators.image`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal

from silva.errors import PlanError
from silva.plan.expr import Col, Expr

Interpolation = Literal["nearest", "bilinear", "bicubic", "area", "lanczos"]
Direction = Literal["horizontal", "vertical"]
Size = int | tuple[int, int]

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area", "lanczos")
_DIRECTIONS = ("horizontal", "vertical")


class ImageExpr(Expr):
    """A column of encoded images, or of arrays (height, width, channels).

    >>> image("photo").crop(0, 0, 8, 8).flip()
    photo.crop(top=0, left=0, height=8, width=8).flip(direction='horizontal')
    """

    __slots__ = ()

    def decode(
        self, mode: Literal["rgb", "gray"] = "rgb", max_pixels: int = 178_956_970
    ) -> ImageExpr:
        """The pixels of a JPEG, PNG, WebP, BMP or GIF (first frame): uint8, 3 channels or 1.

        EXIF orientation is applied, alpha dropped, 16 bits reduced to the upper 8. Truncated data,
        and images of more than `max_pixels`, are errors. `"gray"` is the codec's own luminance: the
        fastest, but not `decode().grayscale()` to the bit (they part where colours are saturated).

        >>> image("bytes").decode("gray", max_pixels=10**6)
        bytes.decode(mode='gray', max_pixels=1000000)
        """
        _one_of("mode", mode, ("rgb", "gray"))
        return self._call("image.decode", mode=mode, max_pixels=_positive("max_pixels", max_pixels))

    def resize(
        self, height: int, width: int, interpolation: Interpolation = "bilinear"
    ) -> ImageExpr:
        """The whole image at another size; `"area"` is the one that averages when shrinking.

        >>> image("photo").resize(32, 48, "area")
        photo.resize(height=32, width=48, interpolation='area')
        """
        _one_of("interpolation", interpolation, _INTERPOLATIONS)
        height, width = _positive("height", height), _positive("width", width)
        return self._call("image.resize", height=height, width=width, interpolation=interpolation)

    def crop(self, top: int, left: int, height: int, width: int) -> ImageExpr:
        """The box at (`top`, `left`), which must lie inside the image.

        >>> image("photo").crop(10, 20, 64, 64)
        photo.crop(top=10, left=20, height=64, width=64)
        """
        return self._call(
            "image.crop",
            top=_integer("top", top, 0),
            left=_integer("left", left, 0),
            height=_positive("height", height),
            width=_positive("width", width),
        )

    def center_crop(self, size: Size) -> ImageExpr:
        """The middle of the image; where it cannot be exact, half a pixel up and to the left.

        >>> image("photo").center_crop((224, 160))
        photo.center_crop(height=224, width=160)
        """
        height, width = _size("size", size)
        return self._call("image.center_crop", height=height, width=width)

    def random_crop(self, height: int, width: int | None = None) -> ImageExpr:
        """A box of this size (a square without `width`), every place in the image as likely.

        >>> image("photo").random_crop(32)
        photo.random_crop(height=32, width=32)
        """
        height = _positive("height", height)
        width = height if width is None else _positive("width", width)
        return self._call("image.random_crop", height=height, width=width)

    def random_resized_crop(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: Interpolation = "bilinear",
    ) -> ImageExpr:
        """A random part of the image, resized: the usual augmentation of image classifiers.

        As in torchvision: the part covers a share of the area from `scale`, with width / height
        from `ratio` (uniform in its logarithm); ten attempts, then the largest central part whose
        shape is within `ratio`.

        >>> image("photo").random_resized_crop(224, scale=(0.5, 1.0), ratio=(1.0, 1.0))
        ... # doctest: +ELLIPSIS
        photo.random_resized_crop(height=224, width=224, scale=(0.5, 1.0), ratio=(1.0, 1.0), ...)
        """
        height, width = _size("size", size)
        scale, ratio = _interval("scale", scale), _interval("ratio", ratio)
        if scale[1] > 1:
            raise PlanError(f"scale is a share of the image's area, at most 1, not {scale}")
        _one_of("interpolation", interpolation, _INTERPOLATIONS)
        return self._call(
            "image.random_resized_crop",
            height=height,
            width=width,
            scale=scale,
            ratio=ratio,
            interpolation=interpolation,
        )

    def flip(self, direction: Direction = "horizontal") -> ImageExpr:
        """Mirrored left to right, or top to bottom.

        >>> image("photo").flip("vertical")
        photo.flip(direction='vertical')
        """
        _one_of("direction", direction, _DIRECTIONS)
        return self._call("image.flip", direction=direction)

    def random_flip(
        self, probability: float = 0.5, direction: Direction = "horizontal"
    ) -> ImageExpr:
        """Mirrored, or left as it is.

        >>> image("photo").random_flip(0.25)
        photo.random_flip(probability=0.25, direction='horizontal')
        """
        probability = _number("probability", probability)
        if not 0 <= probability <= 1:
            raise PlanError(f"probability is between 0 and 1, not {probability}")
        _one_of("direction", direction, _DIRECTIONS)
        return self._call("image.random_flip", probability=probability, direction=direction)

    def grayscale(self, channels: Literal[1, 3] = 1) -> ImageExpr:
        """Luminance (0.299 R + 0.587 G + 0.114 B) of uint8, in one channel or repeated in three.

        >>> image("photo").grayscale(3)
        photo.grayscale(channels=3)
        """
        _one_of("channels", channels, (1, 3))
        return self._call("image.grayscale", channels=channels)

    def normalize(self, mean: float | Sequence[float], std: float | Sequence[float]) -> ImageExpr:
        """(x - mean) / std as float32, per channel; uint8 is divided by 255 first.

        One number for each channel, or one for all.

        >>> image("photo").normalize(0.5, 0.25)
        photo.normalize(mean=(0.5,), std=(0.25,))
        """
        means, stds = _numbers("mean", mean), _numbers("std", std)
        if len(means) != len(stds):
            raise PlanError(f"mean has {len(means)} numbers and std has {len(stds)}")
        if min(stds) <= 0:
            raise PlanError(f"std must be positive, not {stds}")
        return self._call("image.normalize", mean=means, std=stds)

    def to_float(self) -> ImageExpr:
        """float32; uint8 is divided by 255, floats keep their values.

        >>> image("photo").to_float()
        photo.to_float()
        """
        return self._call("image.to_float")

    def to_chw(self) -> Expr:
        """Channels first, as torch wants them. No longer an image, so it comes last in a chain.

        >>> image("photo").to_float().to_chw()
        photo.to_float().to_chw()
        """
        return self._any("image.to_chw")


def image(name: str) -> ImageExpr:
    """A column of images, by name.

    >>> image("bytes").decode(max_pixels=10**6).random_crop(32)
    bytes.decode(mode='rgb', max_pixels=1000000).random_crop(height=32, width=32)
    """
    if not isinstance(name, str):
        raise PlanError(f"a column's name is a string, not {name!r}")
    return ImageExpr(Col(name))


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if isinstance(value, bool) or value not in allowed:
        raise PlanError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")


def _integer(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise PlanError(f"{name} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or number < least:
        raise PlanError(f"{name} is a whole number of at least {least}, not {value!r}")
    return number


def _positive(name: str, value: Any) -> int:
    return _integer(name, value, 1)


def _size(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, tuple | list):
        value = (value, value)
    if len(value) != 2:
        raise PlanError(f"{name} is a number of pixels or (height, width), not {value!r}")
    return _positive(name, value[0]), _positive(name, value[1])


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise PlanError(f"{name} is a number, not {value!r}") from None
    if not math.isfinite(number):
        raise PlanError(f"{name} is a finite number, not {value!r}")
    return number


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return (_number(name, value),)
    if len(value) == 0:
        raise PlanError(f"{name} is empty: give one number, or one for each channel")
    return tuple(_number(name, x) for x in value)


def _interval(name: str, value: Any) -> tuple[float, float]:
    numbers = _numbers(name, value)
    if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1]:
        raise PlanError(f"{name} is (least, most), both positive, not {value!r}")
    return numbers[0], numbers[1]
