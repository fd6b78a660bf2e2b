"""Whether a stage is better off on the cluster: local cores first, then considered, tried, judged.

While the trainer does not wait, or some worker here is idle, nothing is asked of the cluster, which
is not even joined. Where the cores here are too few, the cost model says what actors would do: the
seconds of a row, shared among them, against what its bytes cost to bring back. What came of it is
compared with what this machine did, and a stage that was no faster there comes home.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from silva.optimize.model import WORTHWHILE, Load, predict
from silva.run.forecast import LIMITS, Counters
from silva.run.trial import SECONDS

if TYPE_CHECKING:
    from silva.run.cluster import Cluster


class Offload:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.actors = 0
        """Of the cluster, as far as it was asked."""
        self.told = "the cluster is not needed so far: local cores first"
        self._asking: threading.Thread | None = None
        self._error: BaseException | None = None
        self._since = Counters(0, 0.0, 0.0, 0.0, 0.0, 0)
        self._settled_at = 0
        self._here: float | None = None
        """Rows a second on this machine, while it is tried elsewhere."""
        self._over = False
        """Nothing more is tried."""

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
        self.told = f"{seen}: {expected}"
        return True

    def _stay(self, why: str) -> bool:
        self._over, self.told = True, f"the cluster is not used: {why}"
        return False

    def _has_answered(self) -> bool:
        """Asks the cluster for its CPUs, beside the trainer; whether it has said how many."""
        if self._asking is None:
            self.told = "the cluster is being asked for CPUs"
            self._asking = threading.Thread(target=self._ask, name="silva-offload", daemon=True)
            self._asking.start()
        if self._asking.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def _ask(self) -> None:
        try:
            self.actors = self._cluster.width
        except BaseException as error:  # noqa: BLE001  raised on the consumer's thread
            self._error = error

    def begin(self, now: Counters) -> None:
        """The stage is on its way: actors start, and the first blocks are left out."""
        self._since, self._settled_at = now, now.blocks + 2 * self.actors + 1

    def failed(self, now: Counters) -> bool:
        """Whether actors turn out to be slower than this machine was."""
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
        self.told = f"the cluster was tried and left: {seen}" if slower else f"as measured: {seen}"
        return slower

    def forget(self) -> None:
        """The stage has become another: what was seen is not about it."""
        self._here, self._over = None, False
