"""How the cost of a step grows with the bytes of its rows, or with the number of blocks.

A line is fitted through the measured blocks: a cost per row, and a cost per byte. Only five sums
are kept, so lines of two runs can be added."""

from __future__ import annotations

from typing import NamedTuple

from silva.cost.model import GAIN

_LARGE = 1024
"""Bytes per row from which the cost is assumed to be per byte; below, it is assumed to be per
row."""


class Line(NamedTuple):
    """A fitted line.

    >>> line = Line().seen(10, 10_000, 0.02).seen(10, 50_000, 0.06)  # 1 ms a row and 1 µs a byte
    >>> round(line.at(2_000), 6), round(line.slope * 1e6, 6)
    (0.003, 1.0)
    """

    rows: float = 0.0
    x: float = 0.0
    """Bytes that came in."""
    y: float = 0.0
    """The cost of them, in seconds or in bytes written."""
    xx: float = 0.0
    """The sum of x² / rows over all blocks."""
    xy: float = 0.0

    def seen(self, rows: int, x: float, y: float) -> Line:
        """The line with one more block."""
        if not rows:
            return self
        all_rows, all_x, all_y, xx, xy = self
        return Line(all_rows + rows, all_x + x, all_y + y, xx + x * x / rows, xy + x * y / rows)

    def __add__(self, other: Line) -> Line:  # type: ignore[override]
        return Line(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def scaled(self, share: float) -> Line:
        """The line of a share of the blocks."""
        return Line(*(share * one for one in self))

    def times(self, factor: float) -> Line:
        """The line with a cost that is so many times as high."""
        return self._replace(y=factor * self.y, xy=factor * self.xy)

    @property
    def size(self) -> float:
        """The average bytes per row."""
        return self.x / self.rows if self.rows else 0.0

    @property
    def mean(self) -> float:
        return self.y / self.rows if self.rows else 0.0

    @property
    def varied(self) -> bool:
        """Whether the sizes of rows differed by more than the error of measuring, so that the slope
        is measured and not assumed."""
        return self._spread > ((GAIN - 1) * self.size) ** 2 if self.rows else False

    @property
    def _spread(self) -> float:
        return max(self.xx / self.rows - self.size**2, 0.0)

    @property
    def slope(self) -> float:
        """The cost per byte; never so high that an empty row would have a negative cost."""
        if not self.x:
            return 0.0
        most = self.mean / self.size
        if self.varied:
            return min(max((self.xy / self.rows - self.size * self.mean) / self._spread, 0.0), most)
        return most if self.size >= _LARGE else 0.0

    def at(self, size: float) -> float:
        """The cost of a row of `size` bytes."""
        return self.mean + self.slope * (size - self.size)
