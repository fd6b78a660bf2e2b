"""Sources of drawn pipelines that a user declares: right ones, and wrong ones.

A wrong one goes wrong at row `at`: it gives that row not ("few"), gives it in one column alone
("lengths"), or raises ("raises"). Every way must give the same rows before it, and then refuse it
alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import silva as sv
from silva.columns import Array, Column, Values

WRONG = ("few", "lengths", "raises")


def _made(rows: np.ndarray, columns: tuple[str, ...], wrong: str, at: int) -> dict[str, Column]:
    if wrong == "raises" and at in rows:
        raise RuntimeError(f"no row {at}")
    kept = rows[rows != at]
    made: dict[str, Column] = {}
    for i, name in enumerate(columns):
        left = kept if wrong == "few" or (wrong == "lengths" and i) else rows
        made[name] = Array(left) if name != "s" else Values([f"s{row % 12}" for row in left])
    return made


@sv.register_source("fuzz rows")
@dataclass(frozen=True)
class OwnRows:
    """Indexed: row i is read alone."""

    count: int
    wrong: str = ""
    at: int = 0

    def columns(self) -> tuple[str, ...]:
        return ("x", "s")

    def fingerprint(self) -> str:
        return repr(self)

    def length(self) -> int:
        if self.wrong == "length":
            raise OSError("no length")
        return self.count

    def read(self, rows: np.ndarray, columns: tuple[str, ...]) -> dict[str, Column]:
        return _made(rows, columns, self.wrong, self.at)


@sv.register_source("fuzz units")
@dataclass(frozen=True)
class OwnUnits:
    """Chunked: units of seven rows, in runs of at most three; their numbers may be told."""

    count: int
    counted: bool = False
    wrong: str = ""
    at: int = 0

    def columns(self) -> tuple[str, ...]:
        return ("x", "s")

    def fingerprint(self) -> str:
        return repr(self)

    def units(self) -> int:
        return -(-self.count // 7)

    def unit_rows(self) -> Any:
        if not self.counted:
            return None
        return [min(7, self.count - first) for first in range(0, self.count, 7)]

    def open(self, unit: int, start: int, columns: tuple[str, ...]) -> Iterator[dict[str, Column]]:
        rows = np.arange(unit * 7, min(self.count, unit * 7 + 7))
        if self.wrong == "few":
            rows = rows[rows != self.at]
        for first in range(start - start % 3, len(rows), 3):  # the same runs from every start
            run = rows[max(first, start) : first + 3]
            yield _made(run, columns or ("",), self.wrong, self.at)


def own_rows(n: int, wrong: str = "", at: int = 0) -> sv.Pipeline:
    return sv.from_source(OwnRows(n, wrong, at))


def own_units(n: int, counted: bool = False, wrong: str = "", at: int = 0) -> sv.Pipeline:
    return sv.from_source(OwnUnits(n, counted, wrong, at))
