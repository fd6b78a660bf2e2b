"""A service: runs pipelines once for all ranks and jobs that read their batches."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from silva.cost.machine import parse_bytes
from silva.errors import PlanError, ServiceError, StateError
from silva.lifetime import Thread, close_at_exit
from silva.loader import Loader
from silva.options import LoaderOptions, RunArguments, check_known
from silva.plan.fingerprint import fingerprint
from silva.plan.schema import is_batched, verify
from silva.service.access import Certificate, server_context, server_token
from silva.service.http import Server
from silva.service.shared_run import EncodedBatch
from silva.service.shared_runs import SharedRuns, reader_of
from silva.service.wire import BatchRequest, OpenRequest, OpenResponse, StreamKey

if TYPE_CHECKING:
    from silva.plan.node import Node

_MEMORY = 1 << 30
_PATIENCE = 1.0
_IDLE = 60.0
_LONG_POLL = 10.0
"""Seconds after which a request without a batch gets an empty response."""
_RUNS = 64
_CONNECTIONS = 256
_OF_READERS = ("rank", "world", "seed", "eval", "group", "steps")
"""Arguments of loaders that each reader chooses, or that a service has no use for."""


class Service:
    """Runs pipelines for readers in other processes or on other machines. They read by
    `pipeline.loader(service=address, token=token)`, or, without the code of the pipeline, by
    `sv.connect(address, name, token=token)`.

    Readers of one stream share one run. `memory` bounds the batches that are kept for slower
    readers; when it is full, the fastest reader waits `patience` seconds for them. A run that gets
    no request for `idle` seconds ends. There are at most `runs` runs and `connections` connections;
    the least recently used one makes room for a new one. Further arguments are those of the
    loaders, such as `workers=` or `cluster=`.

    >>> import silva as sv
    >>> numbers = sv.from_columns({"x": range(4)}).batch(2)
    >>> with sv.Service({"numbers": numbers}, workers=0) as service:
    ...     loader = numbers.loader(service=service.address, token=service.token)
    ...     [batch["x"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        pipelines: Mapping[str, Any],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        certificate: Certificate | None = None,
        memory: int | str = _MEMORY,
        patience: float = _PATIENCE,
        idle: float = _IDLE,
        runs: int = _RUNS,
        connections: int = _CONNECTIONS,
        **arguments: Unpack[RunArguments],
    ) -> None:
        self._plans = _checked_plans(pipelines)
        self._names = {fingerprint(plan): name for name, plan in self._plans.items()}
        for name in arguments.keys() & set(_OF_READERS):
            raise PlanError(f"{name}= is set by each reader: pipeline.loader(service=…, {name}=…)")
        if patience < 0 or not idle > 0:
            raise PlanError(f"patience and idle are seconds, not {patience!r} and {idle!r}")
        for name, count in (("runs", runs), ("connections", connections)):
            if not isinstance(count, int) or count < 1:
                raise PlanError(f"{name} is a whole number from 1 up, not {count!r}")
        check_known("Service", arguments, LoaderOptions)
        self._options = LoaderOptions(**arguments)
        self._idle = idle
        self._runs = SharedRuns(
            self._resumed, most=runs, memory=parse_bytes(memory), patience=patience, idle=idle
        )
        self.token = server_token(token)
        self._stop = threading.Event()
        for name in self._plans:
            self._loader(StreamKey(name)).close()  # a wrong argument is an error here and now
        context = server_context(host, certificate)
        try:
            self._server = Server((host, port), self.token, context, self, connections)
        except (OSError, OverflowError, socket.gaierror) as error:
            raise ServiceError(f"the service cannot listen at {host}:{port}: {error}") from None
        self.address = f"{'https' if context else 'http'}://{_shown_host(host)}:{self._server.port}"
        self._server.start()
        self._keeper = Thread(self._keep, "service")
        self._keeper.start()
        close_at_exit(self)

    # Requests.

    def open(self, request: OpenRequest) -> OpenResponse:
        """The state at which a stream begins, or the state to continue from if it is valid."""
        with self._loader(request.stream) as loader:
            if request.state is not None:
                loader.load_state_dict(request.state)
            elif request.epoch:
                loader.set_epoch(request.epoch)
            return OpenResponse(loader.state_dict(), _length(loader))

    def next(self, request: BatchRequest, address: str = "") -> list[EncodedBatch]:
        """The next batches of a reader; empty if none is ready in time."""
        stream = self._resolve(request.stream)
        until = time.monotonic() + _LONG_POLL
        while True:
            run, number = self._runs.find(stream, request, address)
            seconds = max(until - time.monotonic(), 0.0)
            try:
                found = run.take(reader_of(request, address), number, request.limit, seconds)
            except BaseException:
                self._runs.end(run)  # the next request starts a new run
                raise
            if found is not None:
                return found
            if time.monotonic() >= until:
                return []

    def stats(self) -> dict[str, Any]:
        """For each run: batches made and kept, their bytes, and how far each reader is behind."""
        return {
            "runs": [
                {
                    "pipeline": stream.pipeline,
                    "rank": stream.rank,
                    "world": stream.world,
                    "parts": stream.parts,
                    **run.stats(),
                }
                for stream, run in self._runs.all()
            ]
        }

    # Runs.

    def _resolve(self, stream: StreamKey) -> StreamKey:
        """The stream with the name of its pipeline instead of the fingerprint."""
        name = self._names.get(stream.pipeline, stream.pipeline)
        if name not in self._plans:
            raise PlanError(
                f"the service has no pipeline {stream.pipeline!r}; it has "
                f"{', '.join(map(repr, self._plans))}. Pipelines are found by name or fingerprint: "
                "a fingerprint differs if the steps or the data differ on the two sides"
            )
        return msgspec.structs.replace(stream, pipeline=name)

    def _loader(self, stream: StreamKey) -> Loader:
        stream = self._resolve(stream)
        options = replace(
            self._options,
            rank=stream.rank,
            world=stream.world,
            seed=stream.seed,
            eval=stream.eval,
            steps=stream.steps,
        )
        return Loader(self._plans[stream.pipeline], options)

    def _resumed(self, stream: StreamKey, state: dict[str, Any]) -> Loader:
        loader = self._loader(stream)
        try:
            loader.load_state_dict(state)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            loader.close()
            if isinstance(error, StateError):
                raise
            raise StateError(f"this is not a state of a silva loader: {error!r}") from None
        return loader

    def _keep(self) -> None:
        while not self._stop.wait(min(1.0, self._idle / 4)):
            self._runs.end_unwanted()

    # The end.

    def wait(self) -> None:
        """Waits until the service is closed, or for Ctrl-C."""
        while not self._stop.wait(0.5):  # a Ctrl-C just before a wait does not interrupt it
            pass

    def close(self) -> None:
        """Ends all runs. Readers retry, and continue with the next service at this address."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._runs.close()
        self._server.stop()
        self._keeper.join()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _checked_plans(pipelines: Mapping[str, Any]) -> dict[str, Node]:
    if not isinstance(pipelines, Mapping):
        raise PlanError(
            'Service takes a dict of pipelines by name: write Service({"train": pipeline}), not '
            f"{type(pipelines).__name__}"
        )
    if not pipelines:
        raise PlanError("Service({name: pipeline, …}) needs at least one pipeline")
    plans = {}
    for name, pipeline in pipelines.items():
        plan = getattr(pipeline, "plan", None)
        if not isinstance(name, str) or plan is None:
            raise PlanError(f"Service({{name: pipeline, …}}), not {name!r}: {pipeline!r}")
        verify(plan)
        if not is_batched(plan):
            raise PlanError(f"a service serves batches: end the pipeline {name!r} with batch(n)")
        plans[name] = plan
    return plans


def _length(loader: Loader) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _shown_host(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
