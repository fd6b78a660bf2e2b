"""Memory for what is needed only within a kernel, kept from call to call.

Arrays of some hundred kilobytes that are made and dropped for every clip make malloc give pages
back to the kernel and take them again. In the phase vocoder that took twice as long as all
the arithmetic.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from silva.columns import empty

_MOST_BYTES = 1 << 20
"""What is larger is not kept here: `empty` recycles it."""


class Scratch(threading.local):
    """A buffer a name and thread. Its content is lost when the name is asked for again."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """As `np.empty`; results must not be views of it."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if nbytes > _MOST_BYTES:
            return empty(shape, dtype)
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < nbytes:
            buffer = self._buffers[name] = np.empty(nbytes, np.uint8)
        array: np.ndarray = buffer[:nbytes].view(dtype).reshape(shape)
        return array


scratch = Scratch()
