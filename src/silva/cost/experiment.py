"""Compares ways to run something by measurement: propose, try, judge, keep or go back.

A prediction chooses the first candidate, measurements the next. A prediction knows how long the GIL
is held, but not what it costs to hand it over: threads that make many short calls of native code
can be slower together than one alone. Nor does it know how cold the rows were that it was made on.
CPU seconds show that: if a row takes a fifth of the CPU time it took then, five times as many rows
are expected of every candidate.

The backends of a stage, the cluster, more threads, an order of steps and a cache are each an
experiment: who proposes says what the default did, what each candidate promises, and which clock
counts. The number of workers that a demand needs (`Width`) is none: it follows from what the
workers did, nothing is compared, and it changes with the demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from silva.cost.costs import BLOCK_SECONDS, ENOUGH_BLOCKS
from silva.cost.model import GAIN, NEARLY

LIMITS = 0.05
"""Share of its time that the consumer waits, below which what it waits for is not the
bottleneck."""
_MOSTLY = 0.5
"""The same share, from which on what it waits for is the bottleneck nearly all the time."""
SECONDS = 1.5
"""Time that a candidate is measured before it is kept."""
ENOUGH = ENOUGH_BLOCKS * BLOCK_SECONDS
"""Seconds after which a measurement can be compared: a candidate that is slower than promised is
left, and the number of workers is looked at again."""
MARGIN = 1 + LIMITS
"""How many times as fast as the default a candidate must be measured that costs more than it does:
less is within the error of measuring. One that costs nothing may be as much slower."""

C = TypeVar("C", bound=str)


class Progress(NamedTuple):
    """The counters of an experiment at one moment."""

    rows: float = 0
    seconds: float = 0.0
    """On the clock that counts: time that passed, or seconds of work."""
    waited: float = 0.0
    """Those of the seconds in which the consumer waited."""
    cpu: float = 0.0
    blocks: int = 0

    def pace(self, since: Progress) -> float:
        """Rows per second since an earlier moment."""
        seconds = self.seconds - since.seconds
        return (self.rows - since.rows) / seconds if seconds > 0 else 0.0


@dataclass
class Experiment(Generic[C]):
    """Tries candidates one after the other, and keeps the best.

    >>> start = Progress(rows=0, seconds=0.0, waited=0.0)
    >>> made = Experiment("inline", 100.0, {"threads": 190.0, "processes": 170.0}, "threads", start)
    >>> later = Progress(rows=50, seconds=0.5, waited=0.4)
    >>> made.judge(later)  # no faster than one thread alone
    'processes'
    >>> made.judge(Progress(rows=300, seconds=2.1, waited=1.9)), made.open
    ('processes', False)
    """

    default: C
    """What is gone back to."""
    pace: float
    """Rows per second of the default, measured."""
    promised: dict[C, float]
    """Rows per second that are predicted for each candidate."""
    trying: C
    since: Progress
    """When the present candidate began and was warm."""
    settling: int = 0
    """Blocks that are not measured at first: workers import libraries, and some blocks were begun
    the way before. As many must be measured then."""
    cpu: float = 0.0
    """CPU seconds of a row when the prediction was made; 0 if the CPU was not the limit."""
    most: dict[C, float] = field(default_factory=dict)
    """Rows per second that a candidate cannot exceed, however warm the rows are: their results must
    be brought back."""
    margin: float = MARGIN
    enough: float = SECONDS
    """Seconds that a candidate is measured before it is kept."""
    own: float | None = None
    """The consumer's own seconds per row that are part of the default's throughput, where the
    consumer takes turns with it. It may have been measured before the first batch was handed out;
    None where it was not."""
    seen: dict[C, float] = field(init=False)
    """Rows per second, measured."""
    open: bool = True
    _warm_at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.seen = {self.default: self.pace}
        self.begin(self.since)

    def begin(self, now: Progress) -> None:
        """The candidate has just begun, or its workers have just started."""
        self.since, self._warm_at, self.open = now, now.blocks + self.settling, True

    def measure(self, now: Progress) -> float:
        """Notes the throughput of the present candidate."""
        pace = self.seen[self.trying] = now.pace(self.since)
        return pace

    @property
    def predicted_gain(self) -> float:
        """How many times as fast as the default the present candidate was predicted."""
        return self.promised.get(self.trying, self.pace) / self.pace

    @property
    def measured_gain(self) -> float | None:
        """How many times as fast it is, as measured; None where that is not known."""
        pace = self.seen.get(self.trying)
        return None if pace is None else pace / self.seen[self.default]

    def judge(self, now: Progress) -> C | None:
        """What should run from now on; None while that is open."""
        if now.blocks < self._warm_at:
            self.since = now
        spent, blocks = now.seconds - self.since.seconds, now.blocks - self.since.blocks
        if not self.open or spent < ENOUGH or blocks < self.settling:
            return None
        self._warm(now)
        self._with_loop(now)
        pace, waits = now.pace(self.since), (now.waited - self.since.waited) / spent
        promised = self.promised[self.trying]
        slower = pace < min(self.margin * self.seen[self.default], promised) and waits > LIMITS
        if not slower and (pace >= NEARLY * promised or waits <= _MOSTLY):
            if spent < self.enough:
                return None
            self.open = False
            self.measure(now)
            return self.trying
        self.measure(now)
        worthwhile = GAIN * max(self.seen.values())
        hopeful = {c: p for c, p in self.promised.items() if c not in self.seen and p > worthwhile}
        if hopeful:
            self.trying = max(hopeful, key=lambda one: hopeful[one])
            self.begin(now)
            return self.trying
        self.open = False
        best = max(
            (one for one in self.seen if one != self.default), key=lambda one: self.seen[one]
        )
        stays = self.seen[best] > self.margin * self.seen[self.default]
        self.trying = best if stays else self.default
        return self.trying

    def _with_loop(self, now: Progress) -> None:
        """Corrects the default's throughput by what the consumer's own loop has taken since: it
        would have taken that beside the default too."""
        rows = now.rows - self.since.rows
        if self.own is None or rows <= 0:
            return
        since, before = self.since, self.own
        spent, waited = now.seconds - since.seconds, now.waited - since.waited
        self.own = max(spent - waited, 0.0) / rows
        work = 1 / self.seen[self.default] - before
        if work > 0:
            self.pace = self.seen[self.default] = 1 / (work + self.own)

    def _warm(self, now: Progress) -> None:
        """The prediction was made on cold rows: scales it by the CPU time of warm ones. (A row that
        takes more CPU time shows nothing: cores that are busy together are slower.)"""
        rows, cpu = now.rows - self.since.rows, now.cpu - self.since.cpu
        if rows <= 0 or not 0 < cpu < self.cpu * rows:
            return
        times, self.cpu = self.cpu * rows / cpu, cpu / rows
        self.pace *= times
        self.seen[self.default] *= times
        no_limit = float("inf")
        self.promised = {
            one: min(pace * times, self.most.get(one, no_limit))
            for one, pace in self.promised.items()
        }
