"""torchvision beside a torch without CUDA.

Its wheel is built for CUDA: its compiled part does not load here, and importing it fails because
two operators of that part are missing. Declared beforehand, its Python transforms work as ever.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch


@cache
def load() -> Any:
    """`torchvision.transforms.v2`."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", schema)
    return importlib.import_module("torchvision.transforms.v2")
