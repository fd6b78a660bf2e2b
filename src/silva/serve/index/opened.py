"""The indices that are open in this process, each version once, for all threads."""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict

from silva.serve.index.contents import Contents
from silva.serve.index.version import IndexFolder, Version

_MOST = 8
"""Versions that stay open. One that is in use beyond that is opened again by the next batch."""


class Indices:
    """All open indices of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Contents] = OrderedDict()

    def contents(self, path: str, version: Version) -> Contents:
        with self._lock:
            found = self._open.get(version.identity)
            if found is None:
                found = self._open[version.identity] = Contents(IndexFolder(path), version)
                while len(self._open) > _MOST:
                    self._open.popitem(last=False)
            self._open.move_to_end(version.identity)
            return found


@functools.cache
def _indices_of(process: int) -> Indices:
    return Indices()


def indices() -> Indices:
    return _indices_of(os.getpid())
