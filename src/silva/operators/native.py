"""The native libraries that kernels use, each imported when a kernel first needs it.

An operator's method, declaration and kernel stand in one file. Writing a pipeline imports that
file, and must not load OpenCV or Arrow; so kernels take these names from here and not from the
libraries. After the first use they are plain modules, whose names cost what they do elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used.

    >>> math = LazyModule("math")
    >>> math.floor(2.5)
    2
    """

    def __init__(self, name: str, prepare: Callable[[ModuleType], object] | None = None) -> None:
        super().__init__(name)
        self._prepare = prepare
        """Called with the library before its first use."""

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        if self._prepare is not None:
            self._prepare(module)
        vars(self).update(vars(module))
        self.__class__ = ModuleType  # type: ignore[assignment]  # from now on a plain module
        return getattr(module, name)


def _use_one_thread(cv2: Any) -> None:
    cv2.setNumThreads(1)  # silva runs its own workers, which OpenCV's threads would compete with


if TYPE_CHECKING:
    import cv2 as cv2
    import pyarrow as pa
    import pyarrow.compute as pc
    import simplejpeg as simplejpeg
    import soundfile as soundfile
    import soxr as soxr
else:
    cv2 = LazyModule("cv2", prepare=_use_one_thread)
    pa = LazyModule("pyarrow")
    pc = LazyModule("pyarrow.compute")
    simplejpeg = LazyModule("simplejpeg")
    soundfile = LazyModule("soundfile")
    soxr = LazyModule("soxr")

__all__ = ["LazyModule", "cv2", "pa", "pc", "simplejpeg", "soundfile", "soxr"]
