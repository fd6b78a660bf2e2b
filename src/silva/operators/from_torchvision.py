"""torchvision's transforms as silva's operators, where these mean the same.

The same in distribution: silva draws its own random numbers. Levels are those of `transforms.v2`;
transforms of these names in `torchvision.transforms` may round in another way (autocontrast does),
which `fidelity="close"` allows: it does not promise equal bytes. Nothing is imported here: an
object is known by the name and the module of its class, and read by its attributes. What silva's
operators refuse (torchvision checks less) has no counterpart either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from silva.operators.image import ImageExpr
from silva.plan.expr import Call, Expr, Term, walk

Read = Callable[[ImageExpr, Any], ImageExpr]


_REFUSALS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""What is raised for arguments that silva's operators refuse (a `PlanError` is a ValueError), or
that a version of torchvision keeps in another form."""


class Unknown(Exception):
    """A transform, or a form of it, for which silva has no operator."""


def as_expression(transform: Any, column: str) -> Expr:
    """The transform as an expression on a column of images (height, width, channels).

    Raises Unknown where silva has no operator for a part of it.

    The transform must make a tensor of it (ToImage, ToTensor, …) before anything else.
    """
    steps = list(_flat(transform))
    if not steps or _name(steps[0]) not in _TO_TENSOR:
        raise Unknown("it does not begin with ToImage() or ToTensor()")
    image = ImageExpr(column)
    for step in steps:
        name = _name(step)
        if name not in _READ:
            raise Unknown(f"{name} has no counterpart")
        try:
            image = _READ[name](image, step)
        except _REFUSALS as error:
            raise Unknown(f"{name}: {error}") from error
    return image.to_chw()


def _flat(transform: Any) -> list[Any]:
    if _name(transform) not in ("Compose", "torch.nn.modules.container.Sequential"):
        return [transform]
    inner = transform.transforms if hasattr(transform, "transforms") else transform
    return [step for part in inner for step in _flat(part)]


def _name(transform: Any) -> str:
    """The name of its class; with the module, where it is not torchvision's: somebody else's
    `Resize` is another one."""
    kind = type(transform)
    if kind.__module__.startswith("torchvision.transforms."):  # v1 or v2
        return kind.__name__
    return f"{kind.__module__}.{kind.__name__}"


def _interpolation(transform: Any) -> Any:
    """silva's name for the interpolation. By default, tensors are resized with antialiasing."""
    how = str(getattr(transform.interpolation, "value", transform.interpolation))
    smooth = getattr(transform, "antialias", True) is not False
    if how == "bilinear":
        return "antialias" if smooth else "bilinear"
    if how == "nearest" or (how == "bicubic" and not smooth):
        return how
    raise Unknown(f"{_name(transform)}(interpolation={how!r}, antialias={smooth})")


def _pair(value: Any) -> tuple[int, int]:
    numbers = [value] if isinstance(value, int) else list(value)
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _resize(image: ImageExpr, step: Any) -> ImageExpr:
    if getattr(step, "max_size", None) is not None or step.size is None:
        raise Unknown("Resize(max_size=…)")
    how = _interpolation(step)
    numbers = [step.size] if isinstance(step.size, int) else list(step.size)
    if len(numbers) == 1:
        return image.resize_shorter(numbers[0], how)
    return image.resize(numbers[0], numbers[1], how)


def _center_crop(image: ImageExpr, step: Any) -> ImageExpr:
    """torchvision pads images that are smaller, where silva's operator fails."""
    tall, wide = _pair(step.size)
    least = _least_size(image.term)
    if tall > least[0] or wide > least[1]:
        raise Unknown(
            f"CenterCrop({tall}, {wide}) pads smaller images, and nothing before it makes them "
            "as large (such as a Resize)"
        )
    return image.center_crop((tall, wide))


def _least_size(term: Term) -> tuple[int, int]:
    """The height and the width that every image of a chain has at least."""
    while isinstance(term, Call):
        params = dict(term.params)
        if "height" in params:
            return params["height"], params["width"]
        if term.op == "image.resize_shorter":
            return params["size"], params["size"]
        term = term.args[0]
    return 0, 0


def _random_crop(image: ImageExpr, step: Any) -> ImageExpr:
    if step.padding is not None or step.pad_if_needed:
        raise Unknown("RandomCrop(padding=…)")
    return image.random_crop(*_pair(step.size))


def _jitter(image: ImageExpr, step: Any) -> ImageExpr:
    ranges = {name: getattr(step, name) for name in ("brightness", "contrast", "saturation", "hue")}
    return image.color_jitter(**{k: tuple(v) for k, v in ranges.items() if v is not None})


def _blur(image: ImageExpr, step: Any) -> ImageExpr:
    tall, wide = _pair(step.kernel_size)
    if tall != wide:
        raise Unknown(f"GaussianBlur({step.kernel_size})")
    low, high = step.sigma
    return image.gaussian_blur(tall, float(low) if low == high else (float(low), float(high)))


def _to_dtype(image: ImageExpr, step: Any) -> ImageExpr:
    wanted = str(step.dtype)
    if wanted == "torch.uint8" and not _is_float(image):
        return image
    if wanted != "torch.float32" or not getattr(step, "scale", True):
        raise Unknown(f"{_name(step)}({wanted})")
    return image.to_float()


def _normalize(image: ImageExpr, step: Any) -> ImageExpr:
    return image.normalize([float(x) for x in step.mean], [float(x) for x in step.std])


def _erase(image: ImageExpr, step: Any) -> ImageExpr:
    fill = step.value if isinstance(step.value, list | tuple) else [step.value]
    if not all(isinstance(x, int | float) for x in fill):
        raise Unknown(f"RandomErasing(value={step.value!r})")
    return image.random_erasing(step.p, tuple(step.scale), tuple(step.ratio), fill)


def _crop_resize(image: ImageExpr, step: Any) -> ImageExpr:
    return image.random_resized_crop(
        _pair(step.size), tuple(step.scale), tuple(step.ratio), _interpolation(step)
    )


def _augment(image: ImageExpr, step: Any) -> ImageExpr:
    """TrivialAugmentWide or RandAugment."""
    how = str(getattr(step.interpolation, "value", step.interpolation))
    fill = step.fill if hasattr(step, "fill") else None
    fill = 0 if fill is None else fill
    known = isinstance(fill, int | float) or all(isinstance(x, int | float) for x in fill)
    if how not in ("nearest", "bilinear") or not known:
        raise Unknown(f"{_name(step)}(interpolation={how!r}, fill={fill!r})")
    interpolation: Literal["nearest", "bilinear"] = "nearest" if how == "nearest" else "bilinear"
    bins = step.num_magnitude_bins
    if _name(step) == "TrivialAugmentWide":
        return image.trivial_augment(bins, interpolation, fill)
    return image.rand_augment(step.num_ops, step.magnitude, bins, interpolation, fill)


def _is_float(image: ImageExpr) -> bool:
    calls = {part.op for part in walk(image.term) if isinstance(part, Call)}
    return bool(calls & {"image.to_float", "image.normalize"})


def _of_uint8(read: Read) -> Read:
    """Reads a transform whose operator means something else on floats, or refuses them."""

    def checked(image: ImageExpr, step: Any) -> ImageExpr:
        if _is_float(image):
            raise Unknown(f"{_name(step)} of floats")
        return read(image, step)

    return checked


_TO_TENSOR = ("ToImage", "ToTensor", "PILToTensor")
_READ: dict[str, Read] = {
    "ToImage": lambda image, step: image,
    "PILToTensor": lambda image, step: image,
    "ToTensor": lambda image, step: image.to_float(),
    "Identity": lambda image, step: image,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _crop_resize,
    "RandomHorizontalFlip": lambda image, step: image.random_flip(step.p),
    "RandomVerticalFlip": lambda image, step: image.random_flip(step.p, "vertical"),
    "ColorJitter": _of_uint8(_jitter),
    "Grayscale": _of_uint8(lambda image, step: image.grayscale(step.num_output_channels)),
    "GaussianBlur": _blur,
    "RandomErasing": _erase,
    "Normalize": _normalize,
    "RandomSolarize": _of_uint8(lambda image, step: image.solarize(step.threshold, step.p)),
    "RandomInvert": _of_uint8(lambda image, step: image.invert(step.p)),
    "RandomPosterize": _of_uint8(lambda image, step: image.posterize(step.bits, step.p)),
    "RandomEqualize": _of_uint8(lambda image, step: image.equalize(step.p)),
    "RandomAutocontrast": _of_uint8(lambda image, step: image.autocontrast(step.p)),
    "RandomAdjustSharpness": _of_uint8(
        lambda image, step: image.sharpness(step.sharpness_factor, step.p)
    ),
    "TrivialAugmentWide": _of_uint8(_augment),
    "RandAugment": _of_uint8(_augment),
}
