"""The image operators: importing this module registers them.

An image is an array (height, width, channels). Kernels read any column of images, never write into
them, keep nulls, and hand each row to one native call that releases the GIL; results that have one
shape go straight into one array. What the operators mean is said where they are written, in
`image_expr`.
"""

from __future__ import annotations

import cv2

from silva.operators._image import decode, geometry, pixels
from silva.operators.image_expr import ImageExpr, image
from silva.plan.operator import Operator, register_operator

cv2.setNumThreads(1)  # silva runs its own workers; OpenCV's threads would fight with them

for _operator in (
    Operator("image.decode", decode.decode),
    Operator("image.resize", geometry.resize),
    Operator("image.crop", geometry.crop),
    Operator("image.center_crop", geometry.center_crop),
    Operator("image.random_crop", geometry.random_crop, random=True),
    Operator("image.random_resized_crop", geometry.random_resized_crop, random=True),
    Operator("image.flip", geometry.flip),
    Operator("image.random_flip", geometry.random_flip, random=True),
    Operator("image.grayscale", pixels.grayscale),
    Operator("image.normalize", pixels.normalize),
    Operator("image.to_float", pixels.to_float),
    Operator("image.to_chw", pixels.to_chw),
):
    register_operator(_operator)

__all__ = ["ImageExpr", "image"]
