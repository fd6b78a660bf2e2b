"""Where a stage runs, put to the test: a prediction chooses the first place, what came of it the
next.

A prediction knows for how long Python's lock is held, but not what it costs that the lock changes
hands: threads that make many short calls of native code can be slower together than one alone. Nor
does it know how cold the first rows were, by which it was made. CPU seconds tell: a row that takes
a fifth of what it took then should come five times as often, wherever it is worked on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from silva.optimize.model import Backend
from silva.run.forecast import Counters

SECONDS = 1.5
"""That a place is tried before what it does is compared."""
MOSTLY = 0.5
"""Of its time that the consumer waits: then it is the stage, and nothing else, that limits."""
_EARLY_SECONDS = 0.4
"""After so long a place that does not keep its promise is left."""
_KEPT = 0.8
"""Of what was promised: with more, the place is right."""
_BETTER = 1.1
"""What another place must promise, of what was seen, to be tried."""
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
    """Rows a second on the consumer's own thread."""
    promised: dict[Backend, float]
    """Rows a second that workers would do, as predicted."""
    since: Counters
    """When the stage came where it is now, and its workers were warm."""
    settling: int
    """Blocks that are left out at first: workers import what they need, and some blocks were begun
    elsewhere."""
    cpu: float = 0.0
    """Seconds that a row took when all this was said; 0 where it was not the CPU that took time."""
    seen: dict[Backend, float] = field(init=False)
    """Rows a second, measured."""
    open: bool = True
    _warm_at: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.seen = {"inline": self.alone}
        self.begin(self.since)

    def begin(self, now: Counters) -> None:
        """The stage has just come where it is, or its workers have just started."""
        self.since, self._warm_at = now, now.blocks + self.settling

    def judge(self, backend: Backend, now: Counters) -> Backend | None:
        """Where the stage should go on, being at `backend`; None as long as that is not clear."""
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
        """What was said is about cold rows: of warm ones it is more. (That a row takes more than it
        did says nothing: cores that are busy together are slower, each.)"""
        rows, cpu = now.rows - self.since.rows, now.cpu - self.since.cpu
        if rows <= 0 or not 0 < cpu < self.cpu * rows:
            return
        times, self.cpu = self.cpu * rows / cpu, cpu / rows
        self.alone *= times
        self.seen["inline"] = self.alone
        self.promised = {place: pace * times for place, pace in self.promised.items()}

    def told(self) -> str:
        """What was seen, in words."""
        names = {"inline": "without workers", "threads": "on threads", "processes": "on processes"}
        return ", ".join(f"{pace:,.0f} rows/s {names[place]}" for place, pace in self.seen.items())
