"""Keeps `tokenizers` from starting threads of its own: silva's workers are the threads.

The library decides by a variable of the environment, at each call, and by nothing else that Python
can reach. So the variable is set while a call of silva's runs, and is then again what it was: your
own calls, before and after, are as you asked for. It is set beneath `os.environ`, which never shows
it and can be copied at any time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "TOKENIZERS_PARALLELISM"

_lock = threading.Lock()
_inside = 0
# Of the process, as the environment is: one count for all of its threads.


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps `tokenizers` on the calling thread while any thread is inside."""
    global _inside
    with _lock:
        _inside += 1
        if _inside == 1:
            os.putenv(_VARIABLE, "false")
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _restore()


def _restore() -> None:
    chosen = os.environ.get(_VARIABLE)
    if chosen is None:
        os.unsetenv(_VARIABLE)
    else:
        os.putenv(_VARIABLE, chosen)
