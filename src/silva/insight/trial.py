"""A pipeline run for a while, to be measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from silva.errors import PlanError


def trial(loader: Any, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Reads batches and does nothing with them: one epoch, or as many as fit into the time."""
    if not seconds > 0:
        raise PlanError(f"seconds= is a positive number, not {seconds!r}")
    stop = clock() + seconds
    for _ in loader:
        if clock() >= stop:
            return
