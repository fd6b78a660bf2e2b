"""Random numbers that a test chooses."""

from __future__ import annotations

from typing import Any

import numpy as np


class Table:
    """Row i draws line i."""

    def __init__(self, lines: Any) -> None:
        self.lines = np.atleast_2d(np.asarray(lines, float))

    def uniform(self, count: int) -> np.ndarray:
        return self.lines[:, :count]
