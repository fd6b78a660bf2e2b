"""A service: pipelines that are run once for all ranks and jobs that want their batches."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from silva.errors import PlanError, ServiceError, StateError
from silva.loader import Loader
from silva.plan.fingerprint import fingerprint
from silva.plan.verify import is_batched, verify
from silva.profile.machine import parse_bytes
from silva.service.access import Certificate, new_token, server_context
from silva.service.http import Server
from silva.service.run import Kept, Run, key_of
from silva.service.wire import Next, Open, Opened, Stream

if TYPE_CHECKING:
    from silva.plan.node import Node

_MEMORY = 1 << 30
_PATIENCE = 1.0
_IDLE = 60.0
_ANSWER = 10.0
"""Seconds after which a reader is told that there is nothing yet."""
_MOST_RUNS = 64
_OWN = ("rank", "world", "seed", "eval", "group", "steps")
"""Arguments of loaders that are their readers' to choose, or make no sense here."""


class _Runs:
    """Those of one stream. Who looks for one holds the lock, so that two who want the same do not
    begin two."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs: list[Run] = []


class Service:
    """Runs pipelines for readers elsewhere: `pipeline.loader(service=address, token=token)`, or
    `sv.connect(address, name, token=token)` where the pipeline's code is not at hand.

    Readers of one stream share one run. `memory` bounds the batches that are kept for those that
    are not as far; the fastest waits `patience` seconds for them when that is full. A run that
    nobody has asked for `idle` seconds ends. Further arguments are those of the loaders, such as
    `workers=` or `cluster=`.

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
        **arguments: Any,
    ) -> None:
        self._plans = _checked(pipelines)
        self._names = {fingerprint(plan): name for name, plan in self._plans.items()}
        for name in arguments.keys() & set(_OWN):
            raise PlanError(f"{name}= is for each reader to say: pipeline.loader(service=…, …)")
        if patience < 0 or not idle > 0:
            raise PlanError(f"patience and idle are seconds, not {patience!r} and {idle!r}")
        self._arguments = arguments
        self._memory = parse_bytes(memory)
        self._patience, self._idle = patience, idle
        self.token = new_token(token)
        self._streams: dict[Stream, _Runs] = {}
        self._stop = threading.Event()
        for name in self._plans:
            self._loader(Stream(name)).close()  # so that a wrong argument is told here and now
        context = server_context(host, certificate)
        try:
            self._server = Server((host, port), self.token, context, self)
        except (OSError, OverflowError, socket.gaierror) as error:
            raise ServiceError(f"a service cannot listen at {host}:{port}: {error}") from None
        self.address = f"{'https' if context else 'http'}://{_shown(host)}:{self._server.port}"
        self._server.start()
        self._keeper = threading.Thread(target=self._keep, name="silva-service", daemon=True)
        self._keeper.start()

    # What readers ask.

    def open(self, asked: Open) -> Opened:
        """Where a stream begins, or the state that it goes on from, if that fits."""
        with self._loader(asked.stream) as loader:
            if asked.state is not None:
                loader.load_state_dict(asked.state)
            elif asked.epoch:
                loader.set_epoch(asked.epoch)
            return Opened(loader.state_dict(), _length(loader))

    def next(self, asked: Next) -> list[Kept]:
        """What comes next for a reader; nothing, where that takes long."""
        stream = self._known(asked.stream)
        if not 0 <= asked.part < max(stream.parts, 1):
            raise PlanError(f"part {asked.part} of {stream.parts}")
        until = time.monotonic() + _ANSWER
        while True:
            run, number = self._find(stream, asked)
            seconds = max(until - time.monotonic(), 0.0)
            try:
                found = run.take(asked.reader, number, asked.limit, seconds)
            except BaseException:
                self._end(run)  # who asks again gets another try
                raise
            if found is not None:
                return found
            if self._stop.is_set():
                raise ServiceError("the service is being closed")

    def stats(self) -> dict[str, Any]:
        """Of each run: batches made and kept, their bytes, and how far each reader is behind."""
        return {
            "runs": [
                {
                    "pipeline": stream.pipeline,
                    "rank": stream.rank,
                    "world": stream.world,
                    "parts": stream.parts,
                    **run.stats(),
                }
                for stream, shared in list(self._streams.items())
                for run in list(shared.runs)
            ]
        }

    # Runs.

    def _known(self, stream: Stream) -> Stream:
        """The stream by the name of its pipeline."""
        name = self._names.get(stream.pipeline, stream.pipeline)
        if name not in self._plans:
            raise PlanError(
                f"the service has no pipeline {stream.pipeline!r}; it has "
                f"{', '.join(map(repr, self._plans))}. A pipeline is known by its fingerprint: are "
                "its steps and data the same on both sides?"
            )
        if stream.parts < 0 or (stream.parts and stream.world != 1):
            raise PlanError("a stream has parts or ranks, not both")
        return msgspec.structs.replace(stream, pipeline=name)

    def _loader(self, stream: Stream) -> Loader:
        stream = self._known(stream)
        return Loader(
            self._plans[stream.pipeline],
            rank=stream.rank,
            world=stream.world,
            seed=stream.seed,
            eval=stream.eval,
            steps=stream.steps,
            **self._arguments,
        )

    def _find(self, stream: Stream, asked: Next) -> tuple[Run, int]:
        """A run that has what comes after this state, or makes it next; a new one if need be."""
        key = key_of(asked.state)
        shared = self._streams.setdefault(stream, _Runs())
        with shared.lock:
            if self._stop.is_set():
                raise ServiceError("the service is being closed")
            runs = shared.runs
            found = [(run, number) for run in runs if (number := run.number_of(key)) is not None]
            if not found and not asked.exact and runs:
                run = max(runs, key=lambda run: run.made)
                found = [(run, run.oldest)]
            if not found:
                found = [(self._begin(stream, asked.state), 0)]
                runs.append(found[0][0])
            for run in runs:
                if run is not found[0][0]:
                    run.leave(asked.reader)
            return found[0]

    def _begin(self, stream: Stream, state: dict[str, Any]) -> Run:
        if len(self._runs()) >= _MOST_RUNS:
            raise ServiceError(f"the service has {_MOST_RUNS} runs under way, and begins no more")
        loader = self._loader(stream)
        try:
            loader.load_state_dict(state)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            loader.close()
            if isinstance(error, StateError):
                raise
            raise StateError(f"this is not a state of a silva loader: {error!r}") from None
        run = Run(loader, stream.parts, self._room, self._patience, self._idle)
        run.start()
        return run

    def _room(self) -> int:
        """Bytes for each run."""
        return self._memory // max(1, len(self._runs()))

    def _runs(self) -> list[Run]:
        return [run for shared in list(self._streams.values()) for run in list(shared.runs)]

    def _end(self, run: Run) -> None:
        for shared in list(self._streams.values()):
            with shared.lock:
                if run in shared.runs:
                    shared.runs.remove(run)
        run.close()

    def _keep(self) -> None:
        """Ends runs that nobody wants."""
        while not self._stop.wait(min(1.0, self._idle / 4)):
            for run in self._runs():
                if run.is_idle(time.monotonic()):
                    self._end(run)

    # The end.

    def wait(self) -> None:
        """Until the service is closed, or Ctrl-C."""
        while not self._stop.wait(0.5):  # a Ctrl-C just before a wait begins does not end it
            pass

    def close(self) -> None:
        """Ends all runs; readers are told, and go on with another service at this address."""
        if self._stop.is_set():
            return
        self._stop.set()
        for shared in list(self._streams.values()):
            with shared.lock:  # who is beginning a run has done so then, and nobody does later
                runs, shared.runs = shared.runs, []
            for run in runs:
                run.close()
        self._server.stop()
        self._keeper.join()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _checked(pipelines: Mapping[str, Any]) -> dict[str, Node]:
    if not isinstance(pipelines, Mapping) or not pipelines:
        raise PlanError("Service({name: pipeline, …}) needs one pipeline at least")
    plans = {}
    for name, pipeline in pipelines.items():
        plan = getattr(pipeline, "plan", None)
        if not isinstance(name, str) or plan is None:
            raise PlanError(f"Service({{name: pipeline, …}}), not {name!r}: {pipeline!r}")
        verify(plan)
        if not is_batched(plan):
            raise PlanError(f"{name!r}: a service hands out batches: end it with batch(n)")
        plans[name] = plan
    return plans


def _length(loader: Loader) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _shown(host: str) -> str:
    if host in ("", "0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
