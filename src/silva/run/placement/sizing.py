"""How many workers a stage uses, how large its blocks are, and how many of them are in flight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from silva.columns.allocation import MOST_FREE_BYTES
from silva.cost.costs import AHEAD, BLOCK_BYTES, BLOCK_SECONDS, ENOUGH_BLOCKS
from silva.cost.experiment import ENOUGH, LIMITS, SECONDS, Experiment, Progress
from silva.cost.model import GAIN, WAITS
from silva.run.placement.measured import LaneStats, settling
from silva.run.pools.task import TasksInFlight

_SPARE = 0.25
"""Spare workers per square root of the demand: one core's worth of work takes one worker and a
quarter, since blocks take unequally long."""
_MOST_AHEAD = ENOUGH_BLOCKS
"""Blocks in flight for each worker, at most: its work until the next look."""
_TOLERATED = 2
"""Intervals in which the trainer waits for workers that are enough, before there are more of them:
they may have been held up by others."""
_PATIENCE = 8
"""Intervals after which a number of workers that was too small may be tried again: a try lets the
trainer wait for an interval or two."""


def enough(demand: float) -> float:
    """The number of workers for an uneven demand.

    >>> [round(enough(demand), 1) for demand in (0.75, 4, 100)]
    [1.0, 4.5, 102.5]
    """
    return demand + _SPARE * math.sqrt(demand)


def _differ(demand: float, other: float) -> bool:
    """Whether two demands differ by more than the unevenness of work."""
    return enough(min(demand, other)) < max(demand, other)


@dataclass
class Width:
    """The number of workers of a stage: as few as keep the trainer from waiting.

    It is looked at every 0.4 s. Workers that were busy on average are the *load*. Where the trainer
    waited for a share of its time, its *demand*, in workers, is the load divided by the rest. What
    is enough for a demand is a little more than that, by its square root: work comes unevenly, and
    the less so the more workers share it. Where the trainer waits, the stage gets what is enough at
    once, and nothing more while those workers start, since a start slows others down. Where it does
    not wait, and fewer are enough, half of the rest go. A number that proved too small is not tried
    again for a while, each time for twice as long, so that the width settles; a demand that has
    changed ends this. Where workers are enough, one of them had nothing to do, and the trainer
    waits all the same, more is done ahead before there are more of them. Where all had something to
    do, more blocks would only take more memory; a block in memory that was never used can cost many
    times what the others do.

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
    ahead: int = field(default=AHEAD, init=False)
    """Blocks in flight per worker, as far as memory allows."""
    changes: int = field(default=0, init=False)
    _at: float | None = field(default=None, init=False)
    _waited: float = field(default=0.0, init=False)
    _busy: float = field(default=0.0, init=False)
    _idle: int = field(default=0, init=False)
    _load: float = field(default=0.0, init=False)
    """The average number of busy workers in the last interval."""
    _had_nothing: bool = field(default=False, init=False)
    """Whether a worker had nothing to do in the last interval."""
    _tolerated: int = field(default=0, init=False)
    _waits: bool = field(default=False, init=False)
    """Whether the trainer waited in the last interval. An interval in which it begins to wait mixes
    two demands."""
    _complete: bool = field(default=True, init=False)
    """Whether all required workers had started at the end of the last interval."""
    _floor: int = field(default=1, init=False)
    """The smallest number of workers that was not too small."""
    _floor_demand: float = field(default=0.0, init=False)
    """The demand for which fewer were too few."""
    _patience: int = field(default=_PATIENCE, init=False)
    _looks: int = field(default=0, init=False)
    """Intervals since the floor was set."""

    def __post_init__(self) -> None:
        self.now = self.most if self.demand is None else self._enough(self.demand)

    def _enough(self, demand: float) -> int:
        return max(1, min(math.ceil(enough(demand)), self.most))

    def limit(self, most: int) -> None:
        """Changes the number of workers that may be used; more of them are used at once."""
        if most != self.most:
            self._change(most if most > self.most else min(self.now, most))
            self.most = most

    def look(
        self, now: float, waited: float, busy: float, idle: int = 0, *, complete: bool = True
    ) -> None:
        """Adapts the number of workers, given the time, the seconds that the trainer has waited,
        the seconds of work and how often workers had nothing to do so far; `complete`: all required
        workers have started."""
        if self._at is not None and now - self._at < ENOUGH:
            return
        before = self.changes
        if self._at is not None:
            spent = now - self._at
            share = min((waited - self._waited) / spent, 1.0)
            # the demand shows in the time in which the trainer does not wait
            known = (1 - share) * spent >= ENOUGH / 2
            several = 1 < self.now < self.most
            if self._waits and not known and spent < 2 * SECONDS and several:
                return
            self._had_nothing = idle > self._idle
            self._judge(share, (busy - self._busy) / spent, complete and self._complete, known)
        self._at, self._waited, self._busy, self._idle = now, waited, busy, idle
        self._complete = complete and self.changes == before

    def _judge(self, wait_share: float, load: float, complete: bool, known: bool) -> None:
        """`complete`: no worker was starting in the interval; `known`: the demand is. Otherwise the
        number of workers doubles at most."""
        before, self._load = self._load, load
        self.demand = load / max(1 - wait_share, 1e-3)
        if wait_share > WAITS:
            sudden, self._waits = not self._waits, True
            if complete and not (sudden and self._enough(self.demand) > self.now):
                self._more(self.demand if known else min(self.demand, 2 * self.now))
            return
        self._waits = False
        self._looks += 1
        load = max(load, before)  # blocks come one by one: a short while may have seen too few
        if self._looks > self._patience or enough(load) < self._floor_demand:
            self._floor = 1
        needed = max(self._enough(load), self._floor)
        if needed < self.now:
            self._change(self.now - -(-(self.now - needed) // 2))

    def _more(self, demand: float) -> None:
        """Uses more workers: the trainer waits, and no worker is starting."""
        needed = self._enough(demand)
        are_enough = needed <= self.now and self._load < (1 - WAITS) * self.now
        if are_enough and self._had_nothing and self.ahead < _MOST_AHEAD:
            self.ahead *= 2
        elif are_enough and self._tolerated < _TOLERATED:
            self._tolerated += 1
        elif self.now < self.most:
            changed = _differ(demand, self._floor_demand)
            self._patience = _PATIENCE if changed else 2 * self._patience
            self._floor, self._floor_demand, self._looks = self.now + 1, demand, 0
            self._change(max(self.now + 1, needed))

    def _change(self, count: int) -> None:
        self.now = count
        self.changes += 1


_MOST_SECONDS = 1.0
"""Seconds of the longest block on actors, whose blocks grow with their number: the trainer's thread
spends half a millisecond on each block."""
MOST_THREADS = 32
"""Threads of a stage whose rows mostly wait, where the number of workers was not given."""


class Growth:
    """More threads than cores, for a stage whose rows mostly wait: waiting takes no core.

    While the trainer waits, twice as many threads are tried, up to the number that would use all
    cores or the GIL, whichever is less. Each try is an experiment: twice as many threads must be
    1.4× as fast, which is as near to twice as to no gain, on a clock that does not count the time
    in which they wait for a core that other work has. Otherwise they are taken back, and the
    stage keeps its number until its steps change.

    >>> growth, now = Growth(2, 32), Progress()
    >>> while now.seconds < 10:  # each thread does 100 rows a second, up to 8 threads
    ...     threads, since = min(growth.now, 8), now.seconds + 0.1
    ...     now = Progress(now.rows + threads * 10, since, since, blocks=now.blocks + 2 * threads)
    ...     growth.judge(now)
    ...     if growth.due(now):
    ...         growth.look(now, useful=300.0)
    >>> growth.now, growth.note
    (8, '8 threads, since its rows mostly wait: 4.0× as fast as 2, no faster with 16')
    """

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self.now = least
        self.note = ""
        """What was tried, and what came of it."""
        self._since: Progress | None = None
        """The last look."""
        self._tried: Experiment[str] | None = None
        """Compares the latest growth with the number before it, until it is judged."""
        self._first = 0.0
        """Rows per second with the least number of threads."""
        self._settled = False
        """Whether the number is final."""

    @property
    def tries(self) -> bool:
        """Whether a growth is being measured."""
        return self._tried is not None

    def due(self, now: Progress) -> bool:
        """Whether there is something to look at: not while a growth is measured."""
        if self._settled or self.tries or self.most <= self.least:
            return False
        return self._since is None or now.seconds - self._since.seconds >= ENOUGH

    def look(self, now: Progress, useful: float) -> None:
        """Tries more threads if the trainer waits; `useful` is the number of threads that would use
        up another resource."""
        since, self._since = self._since, now
        if since is None or now.waited - since.waited <= LIMITS * (now.seconds - since.seconds):
            return  # a trainer that does not wait shows nothing of the stage
        wanted = int(min(2 * self.now, useful, self.most))
        if wanted < GAIN * self.now:
            return
        pace, margin = now.pace(since), math.sqrt(wanted / self.now)
        self._first = self._first or pace
        self._tried = Experiment(
            str(self.now),
            pace,
            {str(wanted): margin * pace},
            str(wanted),
            now,
            settling=settling(wanted),
            margin=margin,
            enough=ENOUGH,
        )
        self.now = wanted

    def judge(self, now: Progress) -> None:
        """Keeps the latest growth, or takes it back, once enough was measured."""
        tried = self._tried
        kept = None if tried is None else tried.judge(now)
        if tried is None or kept is None or tried.open:
            return
        count, pace = int(kept), tried.seen[kept]
        self.note = self._describe(count, pace)
        if count != self.now:
            self.note += f", no faster with {self.now}"
            self.now, self._settled = count, True
        self._tried, self._since = None, tried.since

    def _describe(self, count: int, pace: float) -> str:
        if count == self.least:
            return f"{count} threads"
        gain = f"{pace / max(self._first, 1e-9):.1f}× as fast as {self.least}"
        return f"{count} threads, since its rows mostly wait: {gain}"


_AT_ONCE = 128
"""Rows that are requested together: two workers then use all requests that may be open, and if one
row cannot be read, this many are read again one by one."""
QUICK_SECONDS = 0.002
"""Seconds of work to measure before anything is decided by it. Blocks that take less grow faster:
one 16 times as long still starts and stops quickly."""
FIRST_ROWS = 4
"""Rows of the first block, where nobody else waits for some: functions are checked on it, and a
function that changes its input, or looks at its neighbours, seldom shows that on one row."""
_MOST_ROWS = 1 << 17
"""Rows of a block, at most: columns of numbers then stay in the CPU's cache."""
_MOST_PYTHON_ROWS = 1 << 14
"""The same where Python functions are called: the memory of longer lists of objects goes back to
the system after each block."""


class RecentRow(NamedTuple):
    """What a row of the latest blocks took, by which the next one is sized.

    It is not a `Cost`: that is a sum over all blocks since the steps of a stage changed, of which
    the error is known, and plans are chosen by it. This average has to follow at once, and forgets
    half of what it was with each block.

    >>> row = RecentRow().after(RecentRow(2.0, nbytes=10.0), weight=1.0)
    >>> row.after(RecentRow(4.0, nbytes=6.0), weight=0.5)
    RecentRow(seconds=3.0, cpu=0.0, waits=0.0, nbytes=8.0)
    """

    seconds: float = 0.0
    cpu: float = 0.0
    waits: float = 0.0
    """Those of the seconds in which other rows of the block are waited for as well, as when reading
    from an object store."""
    nbytes: float = 0.0

    def after(self, seen: RecentRow, weight: float) -> RecentRow:
        """The average with one more block, of this `weight`; more bytes count at once, since they
        must fit into memory."""
        found = [old + weight * (new - old) for old, new in zip(self, seen, strict=True)]
        found[-1] = max(found[-1], seen.nbytes)
        return RecentRow(*found)


class Blocks:
    def __init__(
        self,
        stats: LaneStats,
        budget: Callable[[float | None], int],
        calls_python: bool,
        *,
        alone: bool,
        best_rows: int = 1,
        grows: bool = True,
    ) -> None:
        """`budget`: the bytes that may be in flight, given those that are, or for a start (None);
        `alone`: the consumer's thread runs the first blocks; `best_rows`: what operators declare;
        `grows`: the first block has few rows all the same, since a few may be all that is wanted.
        """
        self.stats = stats
        self._budget = budget
        self.align = 1
        """Rows of a batch, if the stage neither drops nor adds rows."""
        self.need_rows = 0
        """Rows that the consumer takes at once; a window should hold twice as many."""
        self.best_rows = best_rows
        self.rows = max(FIRST_ROWS if alone else 1, 1 if grows else best_rows)
        self.bytes_per_row = 0.0
        self._most_rows = _MOST_PYTHON_ROWS if calls_python else _MOST_ROWS

    def expect(self, rows: int, *, aligned: bool) -> None:
        """The consumer takes so many rows at once; `aligned`: rows stay one to one, so that blocks
        can end where batches do."""
        self.need_rows = rows
        if aligned:
            self.align = rows

    def learn(self, row: RecentRow, actors: int, left: int | None) -> None:
        """Adapts the block size to what a row takes; `actors` share the rows that are left (0:
        local workers)."""
        self.bytes_per_row = row.nbytes
        if self.stats.blocks == 1:
            return
        by_bytes = min(BLOCK_BYTES, self._budget(None) // 8) / max(self.bytes_per_row, 1e-9)
        by_time = _by_time(row, actors, left)
        growth = 16 if self.rows * row.seconds < QUICK_SECONDS else 4
        wanted = min(max(by_time, self.best_rows), self.rows * growth)
        self.rows = max(1, int(min(wanted, by_bytes, self._most_rows)))

    def next_rows(self) -> int:
        """Rows of the next block."""
        rows = self.rows
        if self.align > 1 and rows >= self.align:
            rows -= rows % self.align
        elif self.align > 1 and rows * 4 >= self.align:
            rows = self.align
        return max(rows, 1)

    def admits(self, window: TasksInFlight[Any], width: int, ahead: int, at_once: int = 0) -> bool:
        """Whether one more block may be submitted, on `width` workers (0: the consumer's thread)
        that may have `ahead` blocks each; `at_once` of them use this machine's memory."""
        blocks = len(window)
        self.stats.most_bytes = max(self.stats.most_bytes, window.done_bytes)
        if blocks == 0:
            return True  # the head of the order always may
        if width == 0:
            return False
        own = window.held(self.bytes_per_row, at_once=at_once)
        expected = window.held(self.bytes_per_row, self.next_rows(), at_once)
        if expected > self._budget(own):
            self.stats.blocked += 1
            return False
        # memory that is not kept for the next block costs more than one more block ahead gains
        kept = blocks <= AHEAD * width or expected <= MOST_FREE_BYTES
        if blocks < ahead * width + 1 and kept:
            return True
        if blocks >= self.stats.blocks:
            return False  # blocks are small as long as few came from which their size is learned
        return window.rows < ahead * self.need_rows + width * self.next_rows()


def _by_time(row: RecentRow, actors: int, left: int | None) -> float:
    seconds = max(row.seconds, 1e-9)
    rows = BLOCK_SECONDS / seconds
    if row.waits:
        rows = max(rows, min(BLOCK_SECONDS / max(row.seconds - row.waits, 1e-9), _AT_ONCE))
    if actors:
        longer = min(BLOCK_SECONDS * actors, _MOST_SECONDS) / seconds
        share = longer if left is None else left / (AHEAD * actors)
        rows = max(rows, min(longer, share))
    return rows
