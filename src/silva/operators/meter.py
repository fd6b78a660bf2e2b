"""Measures the time of each operator of an expression, on a few rows of every block.

An expression is one step of a stage, and a chain of row kernels is one loop: only inside it can the
cost of decoding be separated from the cost of resizing. A thread opens a `metering` to measure.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

Metered = dict[str, tuple[float, int, int]]
"""By an operator's name: seconds, the rows measured, and the bytes of the results."""

_LOCAL = threading.local()


@contextmanager
def metering() -> Iterator[Metered]:
    """Collects what operators cost on this thread while the block runs.

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
    """Whether this thread is measuring."""
    return getattr(_LOCAL, "found", None) is not None


def note(name: str, seconds: float, rows: int, nbytes: int) -> None:
    """Records the seconds that an operator spent on some rows, and the bytes of its results."""
    found: Metered | None = getattr(_LOCAL, "found", None)
    if found is not None:
        spent, count, size = found.get(name, (0.0, 0, 0))
        found[name] = (spent + seconds, count + rows, size + nbytes)
