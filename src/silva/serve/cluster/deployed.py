"""Steps as deployments of Ray Serve, and the calls of the front to them.

Ray Serve restarts a replica that was lost. A batch that it had is given out again, as to a worker
process, unless its function is marked `@sv.impure`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayTaskError

from silva.errors import PlanError, StepError
from silva.lifetime import close_at_exit
from silva.physical.stage.context import Context
from silva.run.pools.processes import ATTEMPTS
from silva.run.ray.cluster import Cluster
from silva.serve.cluster.costs import costs_of
from silva.serve.cluster.placement import Deployment, place
from silva.serve.cluster.replica import Replica, pickled_step, sent
from silva.serve.deadline import limit
from silva.serve.engine.units import Effect, Part, Unit
from silva.serve.tenant import current

_HOP = 0.005
"""Seconds that it takes to send a small batch to a replica on the same machine and back: 4.5 ms in
the median with Ray 2.60 on two cores. A step that computes for less is done sooner on the front."""
_HELD = 2
"""Batches that a replica holds, so that the next is there when one is done."""


class Remote:
    """The deployment of one step, as the front's engine calls it."""

    def __init__(self, unit: Unit, handle: Any, replicas: int) -> None:
        self.replicas = replicas
        self.most = _HELD * replicas
        """Batches that may be on their way."""
        self._unit = unit
        self._handle = handle

    def effects(self, parts: Sequence[Part]) -> Sequence[Effect]:
        """What the step makes of each request. Waits as long as somebody awaits it."""
        given, tenant = sent(parts, self._unit), current().name
        repeats = not any(function.marks.impure for function in self._unit.functions)
        for _ in range(ATTEMPTS if repeats else 1):
            try:
                return self._asked(given, tenant)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else error from None
            except RayActorError as error:
                lost = error
        raise StepError(f"`{self._unit.label}` was interrupted: its replica ended") from lost

    def _asked(self, given: list[Part], tenant: str) -> Sequence[Effect]:
        response = self._handle.run.remote(given, tenant)
        awaited = limit()
        if awaited is None:
            return response.result()  # type: ignore[no-any-return]
        awaited.when_given_up(response.cancel)
        return response.result(timeout_s=awaited.left())  # type: ignore[no-any-return]


class Deployed:
    """The costly steps of a pipeline on a cluster, until it is closed."""

    def __init__(
        self,
        address: str,
        units: Sequence[Unit],
        names: Sequence[str],
        context: Context,
        sample: Sequence[Mapping[str, Any]],
    ) -> None:
        costs = costs_of(units, names, sample, context)
        self._name = f"silva-{uuid.uuid4().hex[:8]}"
        self._apps: list[str] = []
        self._cluster = Cluster(address)
        self._cluster.join()
        self.placement: tuple[Deployment, ...] = ()
        self.remotes: dict[int, Remote] = {}
        close_at_exit(self)
        try:
            if self._cluster.is_remote:
                raise PlanError(
                    "serve(cluster=…) needs a process on a node of the cluster, but this one is a "
                    "client of Ray, which has no Ray Serve: start it on a node"
                )
            self.placement = place(costs, cores=self._cluster.width, hop=_HOP)
            by_number = {unit.number: unit for unit in units}
            for one in self.placement:
                self.remotes[one.step] = self._deploy(one, by_number[one.step], context)
        except BaseException:
            self.close()
            raise

    def _deploy(self, placed: Deployment, unit: Unit, context: Context) -> Remote:
        stage = pickled_step(unit)
        if not self._apps:
            serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        made = serve.deployment(
            Replica,
            name=f"step-{placed.step}",
            num_replicas=placed.replicas,
            max_ongoing_requests=_HELD,
            ray_actor_options={"num_cpus": 1},
        )
        name = f"{self._name}-{placed.step}"
        self._apps.append(name)
        handle = serve.run(made.bind(stage, context), name=name, route_prefix=None)
        return Remote(unit, handle, placed.replicas)

    def close(self) -> None:
        """Ends the deployments, and the connection to Ray if it was made here."""
        apps, self._apps = self._apps, []
        if ray.is_initialized():
            for name in apps:
                serve.delete(name)
            if apps and not serve.status().applications:
                serve.shutdown()
        self._cluster.leave()
