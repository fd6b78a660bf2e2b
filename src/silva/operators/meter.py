"""What each operator of an expression takes, measured on a few rows of every block while it runs.

An expression is one step of a stage, and a chain of row kernels is one loop: only from inside can
it be told what decoding costs and what resizing. A thread that wants to know opens a `metering`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

Metered = dict[str, tuple[float, int, int]]
"""By an operator's name: seconds, the rows they were spent on, and the bytes that came of it."""

_LOCAL = threading.local()


@contextmanager
def metering() -> Iterator[Metered]:
    """What operators take on this thread while the block runs.

    >>> with metering() as found:
    ...     note("image.decode", 0.5, 2, 600)
    ...     note("image.decode", 0.25, 1, 300)
    >>> found
    {'image.decode': (0.75, 3, 900)}
    """
    outer = getattr(_LOCAL, "found", None)
    found: Metered = {}
    _LOCAL.found = found
    try:
        yield found
    finally:
        _LOCAL.found = outer


def is_metering() -> bool:
    """Whether somebody wants to know."""
    return getattr(_LOCAL, "found", None) is not None


def note(name: str, seconds: float, rows: int, nbytes: int) -> None:
    """An operator took so long for so many rows, and made so many bytes of them."""
    found: Metered | None = getattr(_LOCAL, "found", None)
    if found is not None:
        spent, count, size = found.get(name, (0.0, 0, 0))
        found[name] = (spent + seconds, count + rows, size + nbytes)
