"""Compares backends for a stage: a prediction chooses the first one, measurements the next.

A prediction knows how long the GIL is held, but not what it costs to hand it over: threads that
make many short calls of native code can be slower together than one alone. Nor does it know how
cold the rows were that it was made on. CPU seconds show that: if a row takes a fifth of the CPU
time it took then, five times as many rows are expected, on any backend.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from silva.cost.model import Backend
from silva.run.placement.forecast import Counters

SECONDS = 1.5
"""Time that a backend is tried before it is compared."""
MOSTLY = 0.5
"""Share of its time that the consumer waits, from which on the stage is the bottleneck."""
_EARLY_SECONDS = 0.4
"""Time after which a backend that is slower than predicted is left."""
_KEPT = 0.8
"""Share of the predicted throughput from which on a backend is kept."""
_BETTER = 1.1
"""The factor by which another backend must be predicted faster to be tried."""
_WORTH_WORKERS = 1.05


@dataclass
class Trial:
    """
    >>> start = Counters(rows=0, elapsed=0.0, starved=0.0, busy=0.0, cpu=0.0, blocks=0)
    >>> trial = Trial(100.0, {"threads": 190.0, "processes": 170.0}, start, settling=0)
    >>> later = Counters(rows=50, elapsed=0.5, starved=0.4, busy=1.0, cpu=1.0, blocks=10)
    >>> trial.judge("threads", later)  # no faster than one thread alone
    'processes'
    >>> trial.judge("processes", later._replace(rows=300, elapsed=2.1, starved=1.9)), trial.open
    ('processes', False)
    """

    alone: float
    """Rows a second on the consumer's thread."""
    promised: dict[Backend, float]
    """Rows a second that are predicted for each backend with workers."""
    since: Counters
    """The counters when the stage came to its backend and the workers were warm."""
    settling: int
    """Blocks that are not measured at first: workers import libraries, and some blocks were begun
    on the backend before."""
    cpu: float = 0.0
    """CPU seconds of a row when the prediction was made; 0 if the stage was not limited by the
    CPU."""
    seen: dict[Backend, float] = field(init=False)
    """Rows a second, measured."""
    open: bool = True
    _warm_at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.seen = {"inline": self.alone}
        self.begin(self.since)

    def begin(self, now: Counters) -> None:
        """The stage has just come to its backend, or the workers have just started."""
        self.since, self._warm_at = now, now.blocks + self.settling

    def judge(self, backend: Backend, now: Counters) -> Backend | None:
        """The backend that the stage, now on `backend`, should run on; None while that is open."""
        if now.blocks < self._warm_at:
            self.since = now
        spent = now.elapsed - self.since.elapsed
        pace = now.pace(self.since)
        if not self.open or pace is None or spent < _EARLY_SECONDS:
            return None
        self._warm(now)
        waits = now.starved - self.since.starved > MOSTLY * spent
        kept = pace >= _KEPT * self.promised[backend]
        if kept or not waits:
            self.open = spent < SECONDS
            return None if self.open else backend
        self.seen[backend] = pace
        fastest = max(self.seen, key=lambda place: self.seen[place])
        best = self.seen[fastest]
        hopeful = {b: p for b, p in self.promised.items() if b not in self.seen}
        hopeful = {b: p for b, p in hopeful.items() if p > _BETTER * best}
        if hopeful:
            self.begin(now)
            return max(hopeful, key=lambda place: hopeful[place])
        self.open = False
        return fastest if best > _WORTH_WORKERS * self.alone else "inline"

    def _warm(self, now: Counters) -> None:
        """The prediction was made on cold rows: scales it by the CPU time of warm ones. (A row that
        takes more CPU time shows nothing: cores that are busy together are slower.)"""
        rows, cpu = now.rows - self.since.rows, now.cpu - self.since.cpu
        if rows <= 0 or not 0 < cpu < self.cpu * rows:
            return
        times, self.cpu = self.cpu * rows / cpu, cpu / rows
        self.alone *= times
        self.seen["inline"] = self.alone
        self.promised = {place: pace * times for place, pace in self.promised.items()}

    def describe(self) -> str:
        """The measured throughput of each backend."""
        names = {"inline": "without workers", "threads": "on threads", "processes": "on processes"}
        return ", ".join(f"{pace:,.0f} rows/s {names[place]}" for place, pace in self.seen.items())
