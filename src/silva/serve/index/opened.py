"""The indices that are open in this process, each version once, for all threads."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import OrderedDict

from silva.serve.index.contents import Contents
from silva.serve.index.version import IndexFolder, Version

_MOST = 8
"""Versions that stay open though nobody holds them."""


class Indices:
    """All open indices of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: OrderedDict[str, Contents] = OrderedDict()
        self._open: weakref.WeakValueDictionary[str, Contents] = weakref.WeakValueDictionary()

    def contents(self, path: str, version: Version) -> Contents:
        with self._lock:
            found = self._open.get(version.identity)
            if found is None:
                found = self._open[version.identity] = Contents(IndexFolder(path), version)
            self._recent[version.identity] = found
            self._recent.move_to_end(version.identity)
            while len(self._recent) > _MOST:
                self._recent.popitem(last=False)
            return found


@functools.cache
def _indices_of(process: int) -> Indices:
    return Indices()


def indices() -> Indices:
    return _indices_of(os.getpid())
