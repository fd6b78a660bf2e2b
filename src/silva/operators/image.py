"""The image operators: importing this module registers them.

An image is an array (height, width, channels). Each operator says what happens to one image, by
native calls that release the GIL; `silva.operators.rows` takes a row through a whole chain of them
and writes the last result into the array of the block. What the operators mean is said where they
are written, in `image_expr`.
"""

from __future__ import annotations

import cv2

import silva.operators.image_laws  # noqa: F401  registers them
from silva.operators._image import colour, decode, encode, filters, geometry, pixels, scene
from silva.operators._image.geometry import moving
from silva.operators._image.partial import partly
from silva.operators._image.shrink import shrinking
from silva.operators.image_expr import ImageExpr, image
from silva.operators.rows import RowKernel
from silva.plan.operator import Operator, register_operator

cv2.setNumThreads(1)  # silva runs its own workers; OpenCV's threads would fight with them

for _operator in (
    Operator("image.scene", scene.gather),
    Operator("image.decode", RowKernel(decode.decode)),
    Operator("image.info", RowKernel(decode.info)),
    Operator("image.encode", RowKernel(encode.encode)),
    Operator(
        "image.resize",
        RowKernel(moving(geometry.resize), after={"image.decode": shrinking(geometry.resize)}),
    ),
    Operator(
        "image.resize_shorter",
        RowKernel(
            moving(geometry.resize_shorter),
            after={"image.decode": shrinking(geometry.resize_shorter)},
        ),
    ),
    Operator(
        "image.crop",
        RowKernel(moving(geometry.crop), after={"image.decode": partly(geometry.crop)}),
    ),
    Operator(
        "image.center_crop",
        RowKernel(
            moving(geometry.center_crop), after={"image.decode": partly(geometry.center_crop)}
        ),
    ),
    Operator(
        "image.random_crop",
        RowKernel(
            moving(geometry.random_crop), after={"image.decode": partly(geometry.random_crop)}
        ),
        random=True,
    ),
    Operator(
        "image.random_resized_crop",
        RowKernel(
            moving(geometry.random_resized_crop),
            after={"image.decode": shrinking(geometry.random_resized_crop)},
        ),
        random=True,
    ),
    Operator("image.random_iou_crop", RowKernel(moving(geometry.random_iou_crop)), random=True),
    Operator("image.random_zoom_out", RowKernel(moving(geometry.random_zoom_out)), random=True),
    Operator("image.pad", RowKernel(moving(geometry.pad))),
    Operator("image.pad_to", RowKernel(moving(geometry.pad_to))),
    Operator("image.flip", RowKernel(moving(geometry.flip))),
    Operator("image.random_flip", RowKernel(moving(geometry.random_flip)), random=True),
    Operator("image.rotate", RowKernel(moving(geometry.rotate))),
    Operator("image.random_rotate", RowKernel(moving(geometry.random_rotate)), random=True),
    Operator("image.grayscale", RowKernel(pixels.grayscale)),
    Operator("image.color_jitter", RowKernel(colour.color_jitter), random=True),
    Operator("image.gaussian_blur", RowKernel(filters.gaussian_blur)),
    Operator("image.random_gaussian_blur", RowKernel(filters.random_gaussian_blur), random=True),
    Operator("image.random_erasing", RowKernel(filters.random_erasing), random=True),
    Operator("image.normalize", RowKernel(pixels.normalize)),
    Operator("image.to_float", RowKernel(pixels.to_float)),
    Operator(
        "image.to_chw",
        RowKernel(
            pixels.to_chw,
            after={
                "image.normalize": pixels.normalize_to_chw,
                "image.to_float": pixels.to_float_to_chw,
            },
        ),
    ),
):
    register_operator(_operator)

__all__ = ["ImageExpr", "image"]
