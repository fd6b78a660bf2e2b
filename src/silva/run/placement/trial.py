"""Compares backends for a stage by measurement: `Trial` those of this machine, `Offload` the
cluster's.

A prediction chooses the first backend, measurements the next. A prediction knows how long the GIL
is held, but not what it costs to hand it over: threads that make many short calls of native code
can be slower together than one alone. Nor does it know how cold the rows were that it was made on.
CPU seconds show that: if a row takes a fifth of the CPU time it took then, five times as many rows
are expected, on any backend.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from silva.cost.model import GAIN, Backend, Placed, Work, predict
from silva.lifetime import Thread, join_all
from silva.run.placement.measured import LIMITS, Counters

if TYPE_CHECKING:
    from silva.run.ray.cluster import Cluster

SECONDS = 1.5
"""Time that a backend is tried before it is compared."""
MOSTLY = 0.5
"""Share of its time that the consumer waits, from which on the stage is the bottleneck."""
_EARLY_SECONDS = 0.4
"""Time after which a backend that is slower than predicted is left."""
_KEPT = 0.8
"""Share of the predicted throughput from which on a backend is kept."""
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
        hopeful = {b: p for b, p in hopeful.items() if p > GAIN * best}
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


class Offload:
    """Decides whether a stage moves to the cluster: local cores first, then a prediction, then a
    trial.

    While the trainer does not wait, or a local worker is idle, the cluster is not even joined. If
    the local cores are too few, the cost model predicts the throughput of actors: the seconds of a
    row, shared among them, against the cost of bringing its bytes back. The result is then compared
    with the local throughput, and a stage that is no faster on the cluster comes back.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.actors = 0
        """Actors that the cluster has room for; 0 until it has answered."""
        self.status = "the cluster is not needed so far: local cores first"
        self._asking: Thread | None = None
        self._given_up = threading.Event()
        self._error: BaseException | None = None
        self._since = Counters(0, 0.0, 0.0, 0.0, 0.0, 0)
        self._settled_at = 0
        self._here: float | None = None
        """Rows a second on this machine, while the cluster is tried."""
        self._over = False
        """Whether the decision is final."""

    def wanted(self, now: Counters, work: Work, *, waited: float, cores: int, full: bool) -> bool:
        """Whether to try the stage on the cluster. `waited` is how long the trainer has waited for
        it in all, `full` that every worker of this machine is in use."""
        if self._over:
            return False
        if self._cluster.address == "local":
            return self._stay("the cluster has no cores but this machine's")
        spent, pace = now.elapsed - self._since.elapsed, now.pace(self._since)
        if pace is None or spent < SECONDS:
            return False
        share = (waited - self._since.starved) / spent
        self._since = now._replace(starved=waited)
        if share < LIMITS or not full:
            return False
        if not self._has_answered():
            return False
        predicted = predict([Placed("", work, "ray", self.actors)], cores)
        expected = f"{self.actors} actors would do {predicted.rows_per_second:,.0f} rows/s"
        seen = f"{pace:,.0f} rows/s on this machine, the trainer waits {share:.0%} of its time"
        if predicted.rows_per_second < GAIN * pace:
            return self._stay(f"{seen}: {expected}, limited by {predicted.limit}")
        self._here = pace
        self.status = f"{seen}: {expected}"
        return True

    def _stay(self, why: str) -> bool:
        self._over, self.status = True, f"the cluster is not used: {why}"
        return False

    def _has_answered(self) -> bool:
        """Asks the cluster for its CPUs in the background; whether it has answered."""
        if self._asking is None:
            self.status = "the cluster is being asked for CPUs"
            self._asking = Thread(self._ask, "offload", (self._given_up,))
            self._asking.start()
        if self._asking.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def _ask(self, given_up: threading.Event) -> None:
        try:
            if self._cluster.cpus is None:
                self._cluster.join(given_up.is_set)
            if not given_up.is_set():
                self.actors = self._cluster.width
        except BaseException as error:  # noqa: BLE001  raised on the consumer's thread
            self._error = error

    def close(self) -> None:
        """Stops waiting for the cluster's answer."""
        asking, self._asking = self._asking, None
        if asking is not None:
            self._given_up.set()
            self._given_up = threading.Event()
            join_all([asking])

    def begin(self, now: Counters) -> None:
        """The stage moves to the cluster: actors start, and the first blocks are not measured."""
        self._since, self._settled_at = now, now.blocks + 2 * self.actors + 1

    def failed(self, now: Counters) -> bool:
        """Whether actors turned out to be slower than this machine."""
        if self._here is None:
            return False
        if now.blocks < self._settled_at:
            self._since = now
        pace = now.pace(self._since)
        if pace is None or now.elapsed - self._since.elapsed < SECONDS:
            return False
        here, self._here, self._over = self._here, None, True
        seen = f"{pace:,.0f} rows/s on actors, {here:,.0f} on this machine"
        slower = pace < here and now.starved - self._since.starved > LIMITS * SECONDS
        self.status = (
            f"the cluster was tried and left: {seen}" if slower else f"as measured: {seen}"
        )
        return slower

    def forget(self) -> None:
        """The stage has changed: the measurements no longer apply."""
        self._here, self._over = None, False
