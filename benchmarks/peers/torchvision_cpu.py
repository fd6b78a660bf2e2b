"""torchvision beside a torch without CUDA.

Its wheel is built for CUDA, so its compiled part does not load here, and its Python part fails on
import because two operators (for detection, used by nobody here) are not there. Declared before
the import they satisfy it, and the transforms, which are Python over torch, work as ever.

`decode` is torchvision's where that loads. Otherwise it is simplejpeg's: the same libjpeg-turbo
with a thinner wrapper (1.70 ms a photo beside 1.80 ms), so that no peer is slower for it.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@cache
def load() -> Any:
    """`torchvision.transforms.v2`, with torch held to one thread: processes share the cores."""
    import torch

    torch.set_num_threads(1)
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name, schema in _OPERATORS.items():
            torch.library.define(name, schema)
    return importlib.import_module("torchvision.transforms.v2")


@cache
def decodes_itself() -> bool:
    """Whether torchvision's own JPEG decoder can be used."""
    load()
    import torch

    return hasattr(torch.ops.image, "decode_jpeg")


def decode(data: bytes) -> Any:
    """A uint8 tensor (3, height, width) in RGB."""
    import torch

    if decodes_itself():
        from torchvision.io import ImageReadMode, decode_jpeg

        return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
    import simplejpeg

    pixels = simplejpeg.decode_jpeg(data, "RGB")
    return torch.from_numpy(pixels).permute(2, 0, 1)


class Transform:
    """A file, or its bytes, to an array; the steps are made anew in each worker."""

    def __init__(self) -> None:
        self._compose: Any = None

    def steps(self, v2: Any) -> list[Any]:
        raise NotImplementedError

    def __call__(self, item: str | bytes | memoryview) -> np.ndarray:
        data = Path(item).read_bytes() if isinstance(item, str) else bytes(item)
        if self._compose is None:
            v2 = load()
            self._compose = v2.Compose(self.steps(v2))
        made: np.ndarray = self._compose(decode(data)).numpy()
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {"_compose": None}
