"""How what a step takes grows with the bytes that come in.

A line through the blocks that were seen: so much for each row, and so much for each of its bytes.
Five sums are all that is kept, so that lines of two runs can be added.
"""

from __future__ import annotations

from typing import NamedTuple

_VARIED = 0.1
"""Spread of the sizes, of their mean: with less, a line has no slope that means anything."""
_LARGE = 1024
"""Bytes of a row: what works on so many or more works its way through them; of fewer, it is not the
bytes that take time."""


class Line(NamedTuple):
    """
    >>> line = Line().seen(10, 10_000, 0.02).seen(10, 50_000, 0.06)  # 1 ms a row and 1 µs a byte
    >>> round(line.at(2_000), 6), round(line.slope * 1e6, 6)
    (0.003, 1.0)
    """

    rows: float = 0.0
    x: float = 0.0
    """Bytes that came in."""
    y: float = 0.0
    """What they took."""
    xx: float = 0.0
    """Over all blocks, the sum of x² / rows."""
    xy: float = 0.0

    def seen(self, rows: int, x: float, y: float) -> Line:
        """With one more block."""
        if not rows:
            return self
        all_rows, all_x, all_y, xx, xy = self
        return Line(all_rows + rows, all_x + x, all_y + y, xx + x * x / rows, xy + x * y / rows)

    def __add__(self, other: Line) -> Line:  # type: ignore[override]
        return Line(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def scaled(self, share: float) -> Line:
        """As if a share of the blocks had been seen."""
        return Line(*(share * one for one in self))

    @property
    def size(self) -> float:
        """Bytes of a row, on average."""
        return self.x / self.rows if self.rows else 0.0

    @property
    def mean(self) -> float:
        return self.y / self.rows if self.rows else 0.0

    @property
    def varied(self) -> bool:
        """Rows were of different sizes, so that the slope was seen and not supposed."""
        return self._spread > (_VARIED * self.size) ** 2 if self.rows else False

    @property
    def _spread(self) -> float:
        return max(self.xx / self.rows - self.size**2, 0.0)

    @property
    def slope(self) -> float:
        """For each byte; never so much that a row without bytes would take less than nothing."""
        if not self.x:
            return 0.0
        most = self.mean / self.size
        if self.varied:
            return min(max((self.xy / self.rows - self.size * self.mean) / self._spread, 0.0), most)
        return most if self.size >= _LARGE else 0.0

    def at(self, size: float) -> float:
        """For a row of so many bytes."""
        return self.mean + self.slope * (size - self.size)
