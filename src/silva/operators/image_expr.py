"""How people write image steps: `sv.image("bytes").decode().resize(224, 224)`.

Every method checks its arguments at once and appends a `Call`. No image library is imported here,
so that `import silva` stays light; the kernels are in `silva.operators.image`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from silva.errors import PlanError
from silva.operators.arguments import (
    factors,
    height_width,
    integer,
    interval,
    number,
    numbers,
    one_of,
    ordered,
    positive,
    share,
)
from silva.plan.expr import Col, Expr

Interpolation = Literal["nearest", "bilinear", "bicubic", "area", "lanczos", "antialias"]
Direction = Literal["horizontal", "vertical"]
Size = int | tuple[int, int]

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "area", "lanczos", "antialias")
AVERAGING = ("area", "antialias")
"""The interpolations that take the mean of all pixels when they shrink."""
MOST_PIXELS = 178_956_970
"""More than this is taken for an attack, as Pillow does: half a gigabyte of RGB."""
_DIRECTIONS = ("horizontal", "vertical")


class ImageExpr(Expr):
    """A column of encoded images, or of arrays (height, width, channels).

    >>> image("photo").crop(0, 0, 8, 8).flip()
    photo.crop(top=0, left=0, height=8, width=8).flip(direction='horizontal')
    """

    __slots__ = ()

    def decode(
        self,
        mode: Literal["rgb", "gray"] = "rgb",
        max_pixels: int = MOST_PIXELS,
        shrink: bool = False,
        strict: bool = True,
    ) -> ImageExpr:
        """The pixels of a JPEG, PNG, WebP, BMP or GIF (first frame): uint8, 3 channels or 1.

        EXIF orientation is applied, alpha dropped, 16 bits reduced to the upper 8. Truncated data,
        and images of more than `max_pixels`, are errors. `"gray"` is the codec's own luminance: the
        fastest, but not `decode().grayscale()` to the bit (they part where colours are saturated).
        `shrink` decodes a JPEG at 1/2, 1/4 or 1/8 where the next step is a `resize` or
        `random_resized_crop` by `"area"` that makes it smaller anyway: much faster for large
        photos, and within a level or two (`options(fidelity="close")` sets it where it applies).
        `strict=False` takes a damaged JPEG as far as it can be read, with gray for the rest, as
        most loaders do; then only as much of it is decoded as a crop that follows looks at.

        >>> image("bytes").decode("gray", max_pixels=10**6)
        bytes.decode(mode='gray', max_pixels=1000000)
        """
        one_of("mode", mode, ("rgb", "gray"))
        limit = positive("max_pixels", max_pixels)
        given = {"mode": mode, "max_pixels": limit, "shrink": shrink, "strict": strict}
        usual = {"mode": "rgb", "max_pixels": MOST_PIXELS, "shrink": False, "strict": True}
        unusual = {name: value for name, value in given.items() if value != usual[name]}
        return self._call("image.decode", **unusual)

    def info(self) -> Expr:
        """(height, width) as decode() would give them, read from the header alone.

        >>> image("bytes").info()
        bytes.info()
        """
        return self._any("image.info")

    def encode(self, format: Literal["jpeg", "png", "webp"] = "jpeg", quality: int = 95) -> Expr:
        """The image as bytes; `quality` (1 to 100) is for JPEG and WebP.

        >>> image("photo").resize(64, 64).encode("webp", quality=80)
        ... # doctest: +ELLIPSIS
        photo.resize(...).encode(format='webp', quality=80)
        """
        one_of("format", format, ("jpeg", "png", "webp"))
        if not 1 <= positive("quality", quality) <= 100:
            raise PlanError(f"quality is from 1 to 100, not {quality}")
        return Expr(self._call("image.encode", format=format, quality=quality).term)

    def resize(
        self, height: int, width: int, interpolation: Interpolation = "bilinear"
    ) -> ImageExpr:
        """The whole image at another size. `"area"` averages when shrinking; `"antialias"` does so
        too, and is bilinear when enlarging.

        >>> image("photo").resize(32, 48, "area")
        photo.resize(height=32, width=48, interpolation='area')
        """
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        height, width = positive("height", height), positive("width", width)
        return self._call("image.resize", height=height, width=width, interpolation=interpolation)

    def resize_shorter(self, size: int, interpolation: Interpolation = "bilinear") -> ImageExpr:
        """The whole image, in its proportions, with `size` pixels along the shorter side.

        >>> image("photo").resize_shorter(256, "antialias").center_crop(224)
        ... # doctest: +ELLIPSIS
        photo.resize_shorter(size=256, interpolation='antialias').center_crop(...)
        """
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        size = positive("size", size)
        return self._call("image.resize_shorter", size=size, interpolation=interpolation)

    def crop(self, top: int, left: int, height: int, width: int) -> ImageExpr:
        """The box at (`top`, `left`), which must lie inside the image.

        >>> image("photo").crop(10, 20, 64, 64)
        photo.crop(top=10, left=20, height=64, width=64)
        """
        return self._call(
            "image.crop",
            top=integer("top", top, 0),
            left=integer("left", left, 0),
            height=positive("height", height),
            width=positive("width", width),
        )

    def center_crop(self, size: Size) -> ImageExpr:
        """The middle of the image; where it cannot be exact, half a pixel up and to the left.

        >>> image("photo").center_crop((224, 160))
        photo.center_crop(height=224, width=160)
        """
        height, width = height_width("size", size)
        return self._call("image.center_crop", height=height, width=width)

    def random_crop(self, height: int, width: int | None = None) -> ImageExpr:
        """A box of this size (a square without `width`), every place in the image as likely.

        >>> image("photo").random_crop(32)
        photo.random_crop(height=32, width=32)
        """
        height = positive("height", height)
        width = height if width is None else positive("width", width)
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
        height, width = height_width("size", size)
        scale, ratio = interval("scale", scale), interval("ratio", ratio)
        if scale[1] > 1:
            raise PlanError(f"scale is a share of the image's area, at most 1, not {scale}")
        one_of("interpolation", interpolation, _INTERPOLATIONS)
        return self._call(
            "image.random_resized_crop",
            height=height,
            width=width,
            scale=scale,
            ratio=ratio,
            interpolation=interpolation,
        )

    def random_iou_crop(
        self,
        scale: tuple[float, float] = (0.3, 1.0),
        ratio: tuple[float, float] = (0.5, 2.0),
        overlaps: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    ) -> ImageExpr:
        """A part that keeps enough of some box, as SSD trains: for images with `boxes=`.

        A least overlap is drawn from `overlaps` (1: the whole image stays), then up to 40 parts
        until one holds the centre of a box and overlaps that much with it. Boxes whose centre lies
        outside go.

        >>> image("photo", boxes="boxes").random_iou_crop(overlaps=(0.5, 1.0))
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
    ) -> ImageExpr:
        """The image somewhere on a canvas that is larger by a factor from `scale`.

        >>> image("photo").random_zoom_out((1.0, 2.0), fill=128)
        photo.random_zoom_out(scale=(1.0, 2.0), probability=0.5, fill=(128.0,))
        """
        scale = interval("scale", scale)
        if scale[0] < 1:
            raise PlanError(f"scale is at least 1: the canvas is no smaller than the image {scale}")
        probability = share("probability", probability)
        fills = numbers("fill", fill)
        return self._call("image.random_zoom_out", scale=scale, probability=probability, fill=fills)

    def pad(
        self, sides: int | tuple[int, int, int, int], fill: float | Sequence[float] = 0
    ) -> ImageExpr:
        """Wider by `sides` pixels all around, or by (top, left, bottom, right).

        >>> image("photo").pad(4).random_crop(32)
        photo.pad(sides=(4, 4, 4, 4), fill=(0.0,)).random_crop(height=32, width=32)
        """
        four = sides if isinstance(sides, tuple | list) else (sides,) * 4
        if len(four) != 4:
            raise PlanError(f"sides is a number or (top, left, bottom, right), not {sides!r}")
        whole = tuple(integer("sides", side, 0) for side in four)
        return self._call("image.pad", sides=whole, fill=numbers("fill", fill))

    def pad_to(self, size: Size, fill: float | Sequence[float] = 0) -> ImageExpr:
        """The image in the upper left corner of a canvas of this size; larger ones are errors.

        >>> image("photo").pad_to((640, 640))
        photo.pad_to(height=640, width=640, fill=(0.0,))
        """
        height, width = height_width("size", size)
        return self._call("image.pad_to", height=height, width=width, fill=numbers("fill", fill))

    def rotate(
        self,
        degrees: float | tuple[float, float],
        interpolation: Interpolation = "bilinear",
        fill: float | Sequence[float] = 0,
    ) -> ImageExpr:
        """Turned counter-clockwise about the centre; random within (least, most) degrees.

        >>> image("photo").rotate((-10, 10))
        photo.random_rotate(degrees=(-10.0, 10.0), interpolation='bilinear', fill=(0.0,))
        """
        one_of("interpolation", interpolation, ("nearest", "bilinear", "bicubic", "lanczos"))
        fills = numbers("fill", fill)
        if not isinstance(degrees, tuple | list):
            angle = number("degrees", degrees)
            return self._call(
                "image.rotate", degrees=angle, interpolation=interpolation, fill=fills
            )
        return self._call(
            "image.random_rotate", degrees=ordered("degrees", degrees),
            interpolation=interpolation, fill=fills,
        )  # fmt: skip

    def color_jitter(
        self,
        brightness: float | tuple[float, float] = 0,
        contrast: float | tuple[float, float] = 0,
        saturation: float | tuple[float, float] = 0,
        hue: float | tuple[float, float] = 0,
    ) -> ImageExpr:
        """Brightness, contrast, saturation and hue changed at random, in random order.

        As in torchvision: `x` stands for factors from max(0, 1 - x) to 1 + x (hue: turns of the
        circle from -x to x, at most 0.5); a pair gives them exactly. uint8 only.

        >>> image("photo").color_jitter(0.4, contrast=(0.5, 1.5), hue=0.1)
        ... # doctest: +ELLIPSIS
        photo.color_jitter(brightness=(0.6, 1.4), contrast=(0.5, 1.5), ...)
        """
        turns = ordered("hue", hue if isinstance(hue, tuple | list) else (-number("hue", hue), hue))
        if not -0.5 <= turns[0] <= turns[1] <= 0.5:
            raise PlanError(f"hue is a part of the circle, from -0.5 to 0.5, not {hue!r}")
        return self._call(
            "image.color_jitter",
            brightness=factors("brightness", brightness),
            contrast=factors("contrast", contrast),
            saturation=factors("saturation", saturation),
            hue=turns,
        )

    def gaussian_blur(
        self, size: int, sigma: float | tuple[float, float] = (0.1, 2.0)
    ) -> ImageExpr:
        """Blurred by a Gaussian of `size` × `size` pixels (odd); sigma random within a pair.

        >>> image("photo").gaussian_blur(5, sigma=1.5)
        photo.gaussian_blur(size=5, sigma=1.5)
        """
        if positive("size", size) % 2 == 0:
            raise PlanError(f"size is odd, so that there is a pixel in the middle, not {size}")
        if not isinstance(sigma, tuple | list):
            if number("sigma", sigma) <= 0:
                raise PlanError(f"sigma is positive, not {sigma}")
            return self._call("image.gaussian_blur", size=size, sigma=float(sigma))
        sigmas = interval("sigma", sigma)
        return self._call("image.random_gaussian_blur", size=size, sigma=sigmas)

    def random_erasing(
        self,
        probability: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] = 0,
    ) -> ImageExpr:
        """One rectangle set to `value`, or none: as in torchvision.

        >>> image("photo").random_erasing(0.25, value=127)
        ... # doctest: +ELLIPSIS
        photo.random_erasing(probability=0.25, ..., value=(127.0,))
        """
        return self._call(
            "image.random_erasing",
            probability=share("probability", probability),
            scale=interval("scale", scale),
            ratio=interval("ratio", ratio),
            value=numbers("value", value),
        )

    def flip(self, direction: Direction = "horizontal") -> ImageExpr:
        """Mirrored left to right, or top to bottom.

        >>> image("photo").flip("vertical")
        photo.flip(direction='vertical')
        """
        one_of("direction", direction, _DIRECTIONS)
        return self._call("image.flip", direction=direction)

    def random_flip(
        self, probability: float = 0.5, direction: Direction = "horizontal"
    ) -> ImageExpr:
        """Mirrored, or left as it is.

        >>> image("photo").random_flip(0.25)
        photo.random_flip(probability=0.25, direction='horizontal')
        """
        probability = share("probability", probability)
        one_of("direction", direction, _DIRECTIONS)
        return self._call("image.random_flip", probability=probability, direction=direction)

    def grayscale(self, channels: Literal[1, 3] = 1) -> ImageExpr:
        """Luminance (0.299 R + 0.587 G + 0.114 B) of uint8, in one channel or repeated in three.

        >>> image("photo").grayscale(3)
        photo.grayscale(channels=3)
        """
        one_of("channels", channels, (1, 3))
        return self._call("image.grayscale", channels=channels)

    def normalize(self, mean: float | Sequence[float], std: float | Sequence[float]) -> ImageExpr:
        """(x - mean) / std as float32, per channel; uint8 is divided by 255 first.

        One number for each channel, or one for all.

        >>> image("photo").normalize(0.5, 0.25)
        photo.normalize(mean=(0.5,), std=(0.25,))
        """
        means, stds = numbers("mean", mean), numbers("std", std)
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


def image(
    name: str, *, boxes: str | None = None, labels: str | None = None, mask: str | None = None
) -> ImageExpr:
    """A column of images, by name; with boxes, their labels, and a mask that move along.

    Boxes are (n, 4): left, top, right, bottom in pixels. What comes out is several columns, the
    image first, then the others in this order: `derive(…, into=("image", "boxes", "labels"))`.

    >>> image("bytes").decode(max_pixels=10**6).random_crop(32)
    bytes.decode(max_pixels=1000000).random_crop(height=32, width=32)
    >>> image("photo", boxes="boxes").flip()
    photo.scene(boxes, carries=('boxes',)).flip(direction='horizontal')
    """
    given = {"boxes": boxes, "labels": labels, "mask": mask}
    for value in (name, *(column for column in given.values() if column is not None)):
        if not isinstance(value, str):
            raise PlanError(f"a column's name is a string, not {value!r}")
    if labels is not None and boxes is None:
        raise PlanError("labels= belong to boxes=: give both")
    carried = {part: column for part, column in given.items() if column is not None}
    start = ImageExpr(Col(name))
    if not carried:
        return start
    columns = [Expr(Col(column)) for column in carried.values()]
    return start._call("image.scene", *columns, carries=tuple(carried))
