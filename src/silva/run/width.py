"""How many workers a stage needs: as few as keep the trainer from waiting.

Looked at every half second. Where the trainer waits, the stage gets more workers; where it does
not, and fewer would do the work that was done, it gets one less. A number that proved too small is
not tried again for a while, and each time for twice as long, so that the width settles. Where all
workers are used and have time to spare, and the trainer waits all the same, the work comes
unevenly: then more of it is done ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_INTERVAL = 0.5
_WAITS = 0.01
"""Share of its time that the trainer may wait."""
_LOAD = 0.8
"""A worker fewer must still not be busier than this: work comes unevenly."""
_BUSY = 0.97
"""Of its time that a worker works: with less, it has time to spare."""
_AHEAD, _MOST_AHEAD = 2, 8
"""Blocks in flight for each worker."""
_FIRST_PATIENCE = 8
"""Looks after which a number that was too small may be tried again."""


@dataclass
class Width:
    """
    >>> width = Width(4)
    >>> for second in range(1, 9):  # one worker's work in all, and the trainer never waits
    ...     width.look(now=float(second), waited=0.0, busy=float(second))
    >>> width.now
    2
    >>> width.look(now=9.0, waited=0.5, busy=10.0)  # it waits
    >>> width.now
    3
    """

    most: int
    now: int = field(init=False)
    ahead: int = field(default=_AHEAD, init=False)
    """Blocks in flight for each worker, as far as memory allows."""
    changes: int = field(default=0, init=False)
    _at: float | None = field(default=None, init=False)
    _waited: float = field(default=0.0, init=False)
    _busy: float = field(default=0.0, init=False)
    _floor: int = field(default=1, init=False)
    """Fewer were too few."""
    _patience: int = field(default=_FIRST_PATIENCE, init=False)
    _looks: int = field(default=0, init=False)
    """Since the floor was set."""

    def __post_init__(self) -> None:
        self.now = self.most

    def look(self, now: float, waited: float, busy: float) -> None:
        """Takes note of the time, how long the trainer has waited so far, and how many seconds of
        work were done."""
        if self._at is not None and now - self._at < _INTERVAL:
            return
        if self._at is not None:
            spent = now - self._at
            self._judge((waited - self._waited) / spent, (busy - self._busy) / spent)
        self._at, self._waited, self._busy = now, waited, busy

    def _judge(self, wait_share: float, load: float) -> None:
        """`load` is how many workers were busy on average."""
        self._looks += 1
        if wait_share > _WAITS:
            if self.now < self.most:
                self._floor, self._looks = self.now + 1, 0
                self._patience *= 2
                self._change(max(self.now + 1, min(self.most, round(1.5 * self.now))))
            elif load < _BUSY * self.now:
                self.ahead = min(2 * self.ahead, _MOST_AHEAD)
            return
        if self._looks > self._patience:
            self._floor = 1
        if self.now > self._floor and load < _LOAD * (self.now - 1):
            self._change(self.now - 1)

    def _change(self, count: int) -> None:
        self.now = count
        self.changes += 1
