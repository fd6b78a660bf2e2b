"""How fast a loop over a loader was, and how long it waited for batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_INTERVAL = 0.25
"""Seconds of the first samples; later ones are longer, so that their number is bounded."""
_MAX_SAMPLES = 240


@dataclass(frozen=True)
class Interval:
    """One interval of the loop."""

    start: float
    """Seconds of looping before it, over all epochs."""
    seconds: float
    rows: int
    waited: float
    """Seconds of it in which the loop waited for a batch."""

    def merge(self, later: Interval) -> Interval:
        return Interval(
            self.start,
            later.start + later.seconds - self.start,
            self.rows + later.rows,
            self.waited + later.waited,
        )


@dataclass(frozen=True)
class LoopFacts:
    """What was counted of a loader's loops; zero without `loader(progress=True)`."""

    batches: int = 0
    rows: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    """Seconds of looping: waiting and training together."""
    samples: tuple[Interval, ...] = ()

    @property
    def wait_share(self) -> float:
        """Share of the time in which the loop waited for a batch."""
        return self.waited / self.seconds if self.seconds else 0.0


@dataclass
class LoopClock:
    """Counts the batches of a loop, and the time that it waits for them.

    >>> ticks = iter([0.0, 1.0, 1.0, 4.0])
    >>> clock = LoopClock(clock=lambda: next(ticks))
    >>> clock.ask(), clock.receive(rows=10)  # asks at 0 s, receives at 1 s
    (None, None)
    >>> clock.ask(), clock.receive(rows=10)  # asks at 1 s, receives at 4 s
    (None, None)
    >>> found = clock.facts()
    >>> found.rows, found.waited, found.seconds
    (20, 4.0, 4.0)
    """

    clock: Callable[[], float] = time.perf_counter
    batches: int = 0
    rows: int = 0
    waited: float = 0.0
    seconds: float = 0.0
    samples: list[Interval] = field(default_factory=list)
    _interval: float = _FIRST_INTERVAL
    _asked: float = 0.0
    _last: float | None = None
    _open: Interval = field(default=Interval(0.0, 0.0, 0, 0.0))

    def facts(self) -> LoopFacts:
        return LoopFacts(self.batches, self.rows, self.waited, self.seconds, tuple(self.samples))

    def ask(self) -> None:
        """The loop asks for a batch."""
        now = self.clock()
        if self._last is not None:
            self._add(Interval(self.seconds, now - self._last, 0, 0.0))
        self._asked = self._last = now

    def receive(self, rows: int) -> None:
        """The loop receives the batch."""
        now = self.clock()
        waited = now - self._asked
        self.batches += 1
        self.rows += rows
        self.waited += waited
        self._add(Interval(self.seconds, waited, rows, waited))
        self._last = now

    def end(self) -> None:
        """The loop ends: the time until the next one is not counted."""
        self._last = None

    def _add(self, sample: Interval) -> None:
        self.seconds += sample.seconds
        self._open = self._open.merge(sample)
        if self._open.seconds >= self._interval:
            self.samples.append(self._open)
            self._open = Interval(self.seconds, 0.0, 0, 0.0)
            if len(self.samples) >= _MAX_SAMPLES:
                pairs = zip(self.samples[::2], self.samples[1::2], strict=False)
                self.samples = [a.merge(b) for a, b in pairs]
                self._interval *= 2
