"""How many workers a stage needs: as few as keep the trainer from waiting.

Looked at every half second. Workers that were busy on average are the *load*; of a trainer that
waited for a share of its time, what it would have asked for had it not is the load over the rest:
its *demand*, in workers. What is enough for a demand is a little more than that, by the root of it:
work comes unevenly, and the less so the more workers share it. Where the trainer waits, the stage
gets what is enough at once, and nothing more while those workers start, since a start slows others
down; where it does not, and fewer are enough, half of the rest go. A number that proved too small
is not tried again for a while, and each time for twice as long, so that the width settles; but a
demand that has changed is another matter. Where workers are enough and the trainer waits all the
same, more is done ahead before there are more of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_INTERVAL, _LONG_INTERVAL = 0.5, 3.0
_OWN = 0.25
"""Seconds in which the trainer did not wait that are needed to know its demand. With fewer, the
interval is extended, unless there is only one worker."""
_TIMES = 2
"""The factor by which the number of workers grows at most while the demand is not known."""
_WAITS = 0.01
"""Share of its time that the trainer may wait."""
_SPARE = 0.25
"""Spare workers per square root of the demand."""
_BUSY = 0.97
"""Share of its time that a busy worker works, at least."""
_AHEAD, _MOST_AHEAD = 2, 8
"""Blocks in flight for each worker."""
_FIRST_PATIENCE = 8
"""Intervals after which a number of workers that was too small may be tried again."""
_CHANGED = 0.75
"""Share of the earlier demand below which a number that was too small may be tried again."""


def enough(demand: float) -> float:
    """The number of workers for an uneven demand.

    >>> [round(enough(demand), 1) for demand in (0.75, 4, 100)]
    [1.0, 4.5, 102.5]
    """
    return demand + _SPARE * math.sqrt(demand)


@dataclass
class Width:
    """
    >>> width = Width(8)
    >>> for second in range(1, 9):  # one worker's work in all, and the trainer never waits
    ...     width.look(now=float(second), waited=0.0, busy=float(second))
    >>> width.now
    2
    >>> width.look(now=9.0, waited=0.5, busy=10.0)  # two did what four are asked for
    >>> width.look(now=10.0, waited=1.0, busy=12.0)
    >>> width.now
    5
    >>> Width(100, width.demand).now  # the same trainer, elsewhere
    5
    """

    most: int
    demand: float | None = None
    """Workers that would be busy if the trainer did not wait; None while that is not known."""
    now: int = field(init=False)
    ahead: int = field(default=_AHEAD, init=False)
    """Blocks in flight per worker, as far as memory allows."""
    changes: int = field(default=0, init=False)
    _at: float | None = field(default=None, init=False)
    _waited: float = field(default=0.0, init=False)
    _busy: float = field(default=0.0, init=False)
    _load: float = field(default=0.0, init=False)
    """The average number of busy workers in the last interval."""
    _waits: bool = field(default=False, init=False)
    """Whether the trainer waited in the last interval. An interval in which it begins to wait mixes
    two demands."""
    _complete: bool = field(default=True, init=False)
    """Whether all required workers had started at the end of the last interval."""
    _floor: int = field(default=1, init=False)
    """The smallest number of workers that was not too small."""
    _floor_demand: float = field(default=0.0, init=False)
    """The demand for which fewer were too few."""
    _patience: int = field(default=_FIRST_PATIENCE, init=False)
    _looks: int = field(default=0, init=False)
    """Intervals since the floor was set."""

    def __post_init__(self) -> None:
        self.now = self.most if self.demand is None else self._enough(self.demand)

    def _enough(self, demand: float) -> int:
        return max(1, min(math.ceil(enough(demand)), self.most))

    def look(self, now: float, waited: float, busy: float, *, complete: bool = True) -> None:
        """Adapts the number of workers, given the time, the seconds that the trainer has waited and
        the seconds of work so far; `complete`: all required workers have started."""
        if self._at is not None and now - self._at < _INTERVAL:
            return
        before = self.changes
        if self._at is not None:
            spent = now - self._at
            share = min((waited - self._waited) / spent, 1.0)
            known = (1 - share) * spent >= _OWN
            several = 1 < self.now < self.most
            if self._waits and not known and spent < _LONG_INTERVAL and several:
                return
            self._judge(share, (busy - self._busy) / spent, complete and self._complete, known)
        self._at, self._waited, self._busy = now, waited, busy
        self._complete = complete and self.changes == before

    def _judge(self, wait_share: float, load: float, complete: bool, known: bool) -> None:
        """`complete`: no worker was starting in the interval; `known`: the demand is."""
        before, self._load = self._load, load
        self.demand = load / max(1 - wait_share, 1e-3)
        if wait_share > _WAITS:
            sudden, self._waits = not self._waits, True
            if complete and not (sudden and self._enough(self.demand) > self.now):
                self._more(self.demand if known else min(self.demand, _TIMES * self.now))
            return
        self._waits = False
        self._looks += 1
        load = max(load, before)  # blocks come one by one: a short while may have seen too few
        if self._looks > self._patience or load < _CHANGED * self._floor_demand:
            self._floor = 1
        needed = max(self._enough(load), self._floor)
        if needed < self.now:
            self._change(self.now - -(-(self.now - needed) // 2))

    def _more(self, demand: float) -> None:
        """Uses more workers: the trainer waits, and no worker is starting."""
        needed = self._enough(demand)
        if needed <= self.now and self._load < _BUSY * self.now and self.ahead < _MOST_AHEAD:
            self.ahead *= 2
        elif self.now < self.most:
            changed = not _CHANGED < demand / max(self._floor_demand, 1e-9) < 1 / _CHANGED
            self._patience = _FIRST_PATIENCE if changed else 2 * self._patience
            self._floor, self._floor_demand, self._looks = self.now + 1, demand, 0
            self._change(max(self.now + 1, needed))

    def _change(self, count: int) -> None:
        self.now = count
        self.changes += 1
