"""Decides whether a stage moves to the cluster: local cores first, then a prediction, then a trial.

While the trainer does not wait, or a local worker is idle, the cluster is not even joined. If the
local cores are too few, the cost model predicts the throughput of actors: the seconds of a row,
shared among them, against the cost of bringing its bytes back. The result is then compared with
the local throughput, and a stage that is no faster on the cluster comes back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from silva.cost.model import WORTHWHILE, Load, predict
from silva.lifetime import Thread, join_all
from silva.run.placement.forecast import LIMITS, Counters
from silva.run.placement.trial import SECONDS

if TYPE_CHECKING:
    from silva.run.ray.cluster import Cluster


class Offload:
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

    def wanted(self, now: Counters, load: Load, *, waited: float, cores: int, full: bool) -> bool:
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
        predicted = predict(load, "ray", self.actors, cores)
        expected = f"{self.actors} actors would do {predicted.rows_per_second:,.0f} rows/s"
        seen = f"{pace:,.0f} rows/s on this machine, the trainer waits {share:.0%} of its time"
        if predicted.rows_per_second < WORTHWHILE * pace:
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
