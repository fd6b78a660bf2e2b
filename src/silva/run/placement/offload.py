"""Proposes the cluster for a stage: local cores first, then a prediction, then an experiment."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from silva.cost.experiment import LIMITS, MARGIN, SECONDS, Experiment
from silva.cost.model import GAIN, Backend, Placed, predict
from silva.lifetime import Thread, join_all
from silva.run.placement.measured import Counters, settling

if TYPE_CHECKING:
    from silva.run.ray.cluster import Cluster


class Offload:
    """Proposes to move a stage to the cluster.

    While the trainer does not wait, or a local worker is idle, the cluster is not even joined. If
    the local cores are too few, the cost model predicts the throughput of actors: the seconds of a
    row, shared among them, against the cost of bringing its bytes back. An experiment compares them
    with this machine, and a stage that is slower on the cluster comes back.
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
        self._over = False
        """Whether the decision is final."""

    def propose(
        self, now: Counters, stage: Placed, *, waited: float, cores: int, full: bool
    ) -> Experiment[Backend] | None:
        """An experiment with the stage on the cluster, if that should be faster. `waited` is how
        long the trainer has waited for it in all, `full` that every worker of this machine is in
        use."""
        if self._over:
            return None
        if self._cluster.address == "local":
            self._stay("the cluster has no cores but this machine's")
            return None
        spent, pace = now.elapsed - self._since.elapsed, now.pace(self._since)
        if pace is None or spent < SECONDS:
            return None
        share = (waited - self._since.starved) / spent
        self._since = now._replace(starved=waited)
        if share < LIMITS or not full or not self._has_answered():
            return None
        predicted = predict([replace(stage, backend="ray", workers=self.actors)], cores)
        expected = f"{self.actors} actors would do {predicted.rows_per_second:,.0f} rows/s"
        seen = f"{pace:,.0f} rows/s on this machine, the trainer waits {share:.0%} of its time"
        if predicted.rows_per_second < GAIN * pace:
            self._stay(f"{seen}: {expected}, limited by {predicted.limit}")
            return None
        self._over, self.status = True, f"{seen}: {expected}"
        return Experiment(
            stage.backend,
            pace,
            {"ray": predicted.rows_per_second},
            "ray",
            now.progress,
            settling=settling(self.actors),
            margin=1 / MARGIN,
        )

    def _stay(self, why: str) -> None:
        self._over, self.status = True, f"the cluster is not used: {why}"

    def conclude(self, tried: Experiment[Backend]) -> None:
        """The cluster was tried."""
        paces = tried.seen["ray"], tried.seen[tried.default]
        seen = "{:,.0f} rows/s on actors, {:,.0f} on this machine".format(*paces)
        left = tried.trying != "ray"
        self.status = f"the cluster was tried and left: {seen}" if left else f"as measured: {seen}"

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

    def forget(self) -> None:
        """The stage has changed: the measurements no longer apply."""
        self._over = False
