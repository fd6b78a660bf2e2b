"""What the loop itself was seen to do: how fast rows came, and how long the trainer waited."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_INTERVAL = 0.25
_MOST_SAMPLES = 240


@dataclass(frozen=True)
class Sample:
    """A stretch of the loop."""

    start: float
    """Seconds of looping before it, over all epochs."""
    seconds: float
    rows: int
    waited: float
    """Seconds of it in which the trainer waited for a batch."""

    def joined(self, later: Sample) -> Sample:
        return Sample(
            self.start,
            later.start + later.seconds - self.start,
            self.rows + later.rows,
            self.waited + later.waited,
        )


@dataclass
class Watch:
    """Counters of a loader's loops, kept in a bounded number of samples.

    >>> ticks = iter([0.0, 1.0, 1.0, 4.0])
    >>> watch = Watch(clock=lambda: next(ticks))
    >>> watch.ask(), watch.got(rows=10)  # asked at 0 s, there at 1 s
    (None, None)
    >>> watch.ask(), watch.got(rows=10)  # asked at 1 s, there at 4 s
    (None, None)
    >>> watch.rows, watch.waited, watch.seconds
    (20, 4.0, 4.0)
    """

    clock: Callable[[], float] = time.perf_counter
    batches: int = 0
    rows: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    """Seconds of looping, waiting and training together."""
    samples: list[Sample] = field(default_factory=list)
    _interval: float = _FIRST_INTERVAL
    _asked: float = 0.0
    _last: float | None = None
    _open: Sample = field(default=Sample(0.0, 0.0, 0, 0.0))

    @property
    def wait_share(self) -> float:
        """The share of its time that the trainer waited."""
        return self.waited / self.seconds if self.seconds else 0.0

    def ask(self) -> None:
        """The trainer asks for a batch."""
        now = self.clock()
        if self._last is not None:
            self._add(Sample(self.seconds, now - self._last, 0, 0.0))
        self._asked = self._last = now

    def got(self, rows: int) -> None:
        """The batch is there."""
        now = self.clock()
        waited = now - self._asked
        self.batches += 1
        self.rows += rows
        self.waited += waited
        self._add(Sample(self.seconds, waited, rows, waited))
        self._last = now

    def end(self) -> None:
        """The loop is over: what comes before the next one is nobody's time."""
        self._last = None

    def _add(self, sample: Sample) -> None:
        self.seconds += sample.seconds
        self._open = self._open.joined(sample)
        if self._open.seconds >= self._interval:
            self.samples.append(self._open)
            self._open = Sample(self.seconds, 0.0, 0, 0.0)
            if len(self.samples) >= _MOST_SAMPLES:
                pairs = zip(self.samples[::2], self.samples[1::2], strict=False)
                self.samples = [a.joined(b) for a, b in pairs]
                self._interval *= 2
