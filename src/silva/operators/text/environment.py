"""Variables of the environment that a library reads at a call, set while silva calls it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: dict[str, int] = {}
# Of the process, as the environment is: one count for all of its threads.


@contextmanager
def variable_set(name: str, value: str) -> Iterator[None]:
    """Sets a variable while any thread is inside, and then restores it: your own calls, before and
    after, are as you asked for. It is set beneath `os.environ`, which never shows it and can be
    copied at any time."""
    with _lock:
        _inside[name] = _inside.get(name, 0) + 1
        if _inside[name] == 1:
            os.putenv(name, value)
    try:
        yield
    finally:
        with _lock:
            _inside[name] -= 1
            if _inside[name] == 0:
                _restore(name)


def _restore(name: str) -> None:
    chosen = os.environ.get(name)
    if chosen is None:
        os.unsetenv(name)
    else:
        os.putenv(name, chosen)
