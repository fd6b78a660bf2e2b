"""A server process: uvicorn on one address, with TLS beyond this machine, drained when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Unpack

from silva.errors import PlanError, ServiceError
from silva.lifetime import Thread, close_at_exit, join_all
from silva.options import check_known
from silva.plan.node import Node
from silva.serve.cluster.placement import Deployment
from silva.serve.http.app import App
from silva.serve.http.options import ClusterOptions, ListenOptions, ServeArguments, ServeOptions
from silva.service.access import is_loopback, server_context

if TYPE_CHECKING:
    from silva.serve.cluster.deployed import Deployed

_DRAIN = 30.0
"""Seconds that requests in flight get when a server ends."""
_BACKLOG = 2048
"""Connections that wait to be accepted."""
_OPTIONS = (ServeOptions, ListenOptions, ClusterOptions)


class Server:
    """A pipeline that answers requests at `address`, on a thread, until it is closed."""

    def __init__(self, plan: Node, **arguments: Unpack[ServeArguments]) -> None:
        given: dict[str, Any] = dict(arguments)
        check_known("serve", given, *_OPTIONS)
        listen = ListenOptions(**_taken(given, ListenOptions))
        where = ClusterOptions(**_taken(given, ClusterOptions))
        own = ServeOptions(**given)
        if listen.tls is None and not listen.behind_proxy and not is_loopback(listen.host):
            raise PlanError(
                f"a server at {listen.host} listens beyond this machine and therefore needs TLS: "
                "pass tls=(certificate, key), or behind_proxy=True if a proxy ends TLS"
            )
        secure = None if listen.tls is None else server_context(listen.host, listen.tls)
        if where.cluster is not None and own.refresh is not None:
            raise PlanError(
                "serve(cluster=…, refresh=…): steps that run elsewhere keep the versions that they "
                "began with: serve without refresh=, and restart for new versions"
            )
        self.app = App(plan, own)
        self._deployed = self._deploy(where)
        self.token = self.app.token
        self._server = _uvicorn(self.app, secure)
        try:
            self._socket = listening_socket(listen.host, listen.port)
        except OSError as error:
            self._end()
            place = f"{listen.host}:{listen.port}"
            raise ServiceError(f"the server cannot listen at {place}: {error}") from None
        host, port = self._socket.getsockname()[:2]
        self.address = f"{'https' if secure else 'http'}://{host}:{port}"
        self._started = threading.Event()
        self._thread = Thread(self._run, "server")
        self._thread.start()
        close_at_exit(self)

    def _deploy(self, where: ClusterOptions) -> Deployed | None:
        if where.cluster is None:
            return None
        from silva.serve.cluster.deployed import Deployed

        engine = self.app.engine
        try:
            units = [station.unit for station in engine.stations]
            made = Deployed(where.cluster, units, engine.names, engine.context, where.sample)
        except BaseException:
            self.app.close()
            raise
        engine.move(made.remotes)
        return made

    @property
    def placement(self) -> tuple[Deployment, ...]:
        """The steps that run on a cluster, and on how many replicas each."""
        return () if self._deployed is None else self._deployed.placement

    def _run(self) -> None:
        import uvloop

        with (
            contextlib.suppress(SystemExit),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(self._live())

    async def _live(self) -> None:
        warming = asyncio.create_task(self.app.warm())
        await self._server.serve([self._socket])
        warming.cancel()

    def __repr__(self) -> str:
        return f"server at {self.address}"

    def wait(self) -> None:
        """Waits until the server is closed, or Ctrl-C."""
        try:
            while self._thread.is_alive():
                self._thread.join(1.0)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Answers the requests in flight, and ends the server."""
        self.app.drain()
        self._server.should_exit = True
        join_all([self._thread], _DRAIN)
        self._end()
        self._socket.close()

    def _end(self) -> None:
        self.app.close()
        if self._deployed is not None:
            self._deployed.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _taken(given: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Takes the options of one kind out of all that were given."""
    return {field.name: given.pop(field.name) for field in fields(kind) if field.name in given}


def _uvicorn(app: App, secure: Any) -> Any:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=int(_DRAIN),
        server_header=False,
        date_header=False,
        lifespan="off",
    )
    config.load()
    config.ssl = secure
    config.is_ssl  # noqa: B018  reads config.ssl
    return uvicorn.Server(config)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens. Its protocol is named, or asyncio would not switch off Nagle's
    algorithm, and each reply would wait 40 ms for an acknowledgement."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
