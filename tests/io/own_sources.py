"""Sources as a package of somebody else would add them: one of each kind, nothing but silva's
public names and its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import silva as sv
from silva.columns import Array, Column


@sv.register_source("squares")
@dataclass(frozen=True)
class Squares:
    count: int

    def columns(self) -> tuple[str, ...]:
        return ("n", "square")

    def fingerprint(self) -> str:
        return str(self.count)

    def length(self) -> int:
        return self.count

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        made = {"n": rows, "square": rows**2}
        return {name: Array(made[name]) for name in columns}


@sv.register_source("countdown", tag="countdown-1")
@dataclass(frozen=True)
class Countdown:
    """Units of `size` numbers each, counting down."""

    many: int
    size: int

    def columns(self) -> tuple[str, ...]:
        return ("left",)

    def types(self) -> dict[str, str]:
        return {"left": "int64"}

    def fingerprint(self) -> str:
        return f"{self.many}x{self.size}"

    def units(self) -> int:
        return self.many

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        last = (self.many - unit) * self.size
        left = np.arange(last - start, last - self.size, -1)
        if len(left):
            yield {name: Array(left) for name in columns or ("",)}
