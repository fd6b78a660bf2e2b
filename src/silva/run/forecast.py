"""What was predicted of a stage when it was given its place, beside what was then measured.

A prediction says how fast a stage is while it is what limits. So it can only be judged while the
consumer waits for it: a stage that is asked for less shows no more than that it is not slower.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from silva.io.incoming import NOTHING, Incoming
from silva.optimize.model import Backend, Prediction

LIMITS = 0.05
"""Of its time that the consumer waits: with less, the stage is not what limits."""
_FIRST_SECONDS = 0.5
"""After so long a prediction is judged, and another made by what is known then."""
_SETTLING = 4
"""Blocks for each worker that are left out at first: the consumer's own come before theirs, and
each has two in its hands, for the first of which it imports what it needs."""
_LEAST_SECONDS = 0.05
_LEAST_BLOCKS = 8
"""In less, nothing was measured that means anything."""


class Counters(NamedTuple):
    """Of a stage, at one moment."""

    rows: int
    elapsed: float
    starved: float
    busy: float
    cpu: float
    blocks: int
    ready: int = 0
    """Rows that are done, and wait for the consumer to take them."""
    came: Incoming = NOTHING
    moved: int = 0
    """Bytes from outside, and bytes through memory."""

    def pace(self, since: Counters) -> float | None:
        """Rows a second since an earlier moment, the consumer's own time included."""
        elapsed = self.elapsed - since.elapsed
        return (self.rows - since.rows) / elapsed if elapsed > 0 else None


@dataclass(frozen=True)
class Seen:
    """What a stage did between two moments."""

    rows_per_second: float
    limits: bool
    """The stage was what limited; otherwise it could have done more."""


@dataclass
class Forecast:
    prediction: Prediction
    backend: Backend
    workers: int
    since: Counters
    until: Counters | None = None
    """None while it is open."""

    def seen(self, now: Counters) -> Seen | None:
        """What came of it; None where that is too little to tell."""
        end = self.until or now
        rows, elapsed = end.rows - self.since.rows, end.elapsed - self.since.elapsed
        made = rows + end.ready - self.since.ready
        if end.blocks - self.since.blocks < max(_LEAST_BLOCKS, 3 * self.workers):
            return None
        if self.backend == "inline":
            busy = end.busy - self.since.busy
            return Seen(rows / busy, True) if busy > _LEAST_SECONDS else None
        if elapsed < _LEAST_SECONDS:
            return None
        waited = end.starved - self.since.starved
        return Seen(made / elapsed, waited > LIMITS * elapsed)

    def error(self, now: Counters) -> float | None:
        """How much too high it was, as a share of what was measured; negative where it was too low.
        None where nothing contradicts it.

        >>> start = Counters(rows=0, elapsed=0.0, starved=0.0, busy=0.0, cpu=0.0, blocks=0)
        >>> forecast = Forecast(Prediction(120.0, 0.0, "cores"), "threads", 2, start)
        >>> end = Counters(rows=100, elapsed=1.0, starved=0.9, busy=2.0, cpu=2.0, blocks=50)
        >>> round(forecast.error(end), 2)
        0.2
        >>> forecast.error(end._replace(starved=0.0)) is None  # no more was asked for
        True
        >>> forecast.since = start._replace(ready=40)  # some of the rows were made before
        >>> round(forecast.error(end), 2)
        1.0
        """
        seen = self.seen(now)
        if seen is None or not seen.rows_per_second:
            return None
        error = self.prediction.rows_per_second / seen.rows_per_second - 1
        return error if seen.limits or error < 0 else None


@dataclass
class Forecasts:
    """The predictions of one stage, each judged by the stretch of the run that came after it."""

    made: list[Forecast] = field(default_factory=list)
    first: Forecast | None = None
    """The one by which the stage was given its place, judged by all that came after."""
    settling: int = 0
    """Blocks that are still left out: workers have just started."""
    not_before: int = 0
    """Blocks that must be done before the next: of a stage that has changed, little is known."""

    def due(self, now: Counters) -> bool:
        """Whether it is time for the next: stretches double."""
        if not self.made:
            return now.blocks >= self.not_before
        last = self.made[-1]
        if self.settling or now.blocks - last.since.blocks < _LEAST_BLOCKS:
            return False
        before = last.since.elapsed - (self.first.since.elapsed if self.first else 0.0)
        return now.elapsed - last.since.elapsed > max(_FIRST_SECONDS, before)

    def add(self, prediction: Prediction, backend: Backend, workers: int, now: Counters) -> None:
        if self.made:
            self.made[-1].until = now
        made = Forecast(prediction, backend, workers, now)
        if self.first is None:
            self.first = Forecast(prediction, backend, workers, now)
            self.settling = _SETTLING * workers if backend != "inline" else 0
        self.made.append(made)

    def learn(self, now: Counters, starting: bool) -> None:
        """A block is done: while workers start, what is measured is not about them."""
        if self.first is None or len(self.made) > 1:
            return
        if starting or self.settling:
            self.settling -= not starting
            self.first.since = self.made[0].since = now

    def forget(self, not_before: int = 0) -> None:
        """The stage is another, or elsewhere."""
        self.made, self.first, self.not_before = [], None, not_before

    def errors(self, now: Counters) -> list[float]:
        """Of all that could be judged."""
        found = [forecast.error(now) for forecast in self.made]
        return [error for error in found if error is not None]
