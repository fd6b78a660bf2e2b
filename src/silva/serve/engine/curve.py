"""How long a step takes for a batch, as measured while it serves: the size of the next batch.

The curve is a line, seconds for a call and seconds for each row of it, fitted to the batches of the
step itself. Each new batch counts as much as the ones before it together lose: what was measured
long ago is forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_MEMORY = 0.95
"""What a measurement still counts after one more batch: about twenty of them make the line."""


@dataclass
class Curve:
    """Seconds of a step by the number of rows in a batch."""

    cheap: int = 1
    """Rows of which the step itself says that they take little longer together than one alone."""
    _n: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _late: float = 0.0
    """How much longer than the line batches take, on average."""

    def add(self, rows: int, seconds: float) -> None:
        """Notes a batch.

        >>> curve = Curve()
        >>> for rows in (1, 4, 8, 2): curve.add(rows, 0.010 + 0.001 * rows)
        >>> round(curve.seconds(16), 4)
        0.026
        """
        if self._n:
            over = max(seconds - self.seconds(rows), 0.0)
            self._late = _MEMORY * self._late + (1 - _MEMORY) * over
        self._n, self._x, self._y, self._xx, self._xy = (
            _MEMORY * total + new
            for total, new in zip(
                (self._n, self._x, self._y, self._xx, self._xy),
                (1.0, rows, seconds, rows * rows, rows * seconds),
                strict=True,
            )
        )

    @property
    def _line(self) -> tuple[float, float]:
        """Seconds of a call, and of a row."""
        if not self._n:
            return 0.0, 0.0
        spread = self._n * self._xx - self._x * self._x
        mean = self._y / self._x
        if spread <= 1e-9 * self._n * self._xx:
            return 0.0, mean  # one size alone: nothing says that a call costs anything
        slope = (self._n * self._xy - self._x * self._y) / spread
        slope = min(max(slope, 0.0), mean)
        return max((self._y - slope * self._x) / self._n, 0.0), slope

    def seconds(self, rows: float) -> float:
        """What a batch of so many rows is expected to take."""
        call, row = self._line
        return call + row * rows

    def most_rows(self, seconds: float, waiting: int) -> int:
        """How many of the waiting rows the next batch takes, if it may take so long.

        Before anything is known it is one row, then at most twice as many as were measured: a
        step whose cost explodes is found out early. A step that says that so many rows are cheap is
        believed.

        >>> Curve().most_rows(1.0, waiting=64), Curve(cheap=32).most_rows(1.0, waiting=64)
        (1, 32)
        """
        if not self._n:
            return min(waiting, self.cheap)
        call, row = self._line
        spare = seconds - self._late - call
        fits = waiting if row <= 0 or row * waiting <= spare else int(spare / row)
        tried = max(2 * math.ceil(self._xx / self._x), self.cheap)
        return max(1, min(waiting, fits, tried))
