"""A client over raw sockets: as fast as it can, or at the times of a Poisson process."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import uvloop

TOKEN = "benchmarks-of-silva"
_FIRST = 10**8
"""The first number: all have as many digits, and each is asked once, since silva would answer equal
questions together."""
_SENT = (
    f"POST / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n"
    f'content-type: application/json\r\ncontent-length: 16\r\n\r\n{{"x": %d}}'
).encode()


class Connection(asyncio.Protocol):
    """One request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._data = b""
        self._reply: asyncio.Future[bytes] | None = None

    def ask(self, number: int) -> asyncio.Future[bytes]:
        """The body of the reply."""
        self._reply = asyncio.get_running_loop().create_future()
        self.transport.write(_SENT % (_FIRST + number))
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        assert head.startswith(b"HTTP/1.1 200"), self._data
        _, has_length, rest = head.lower().partition(b"content-length:")
        if has_length:
            is_whole = len(body) >= int(rest.partition(b"\r\n")[0])
        else:  # one chunk, and the last one
            is_whole = body.endswith(b"\r\n0\r\n\r\n")
            body = body.partition(b"\r\n")[2].partition(b"\r\n")[0]
        if is_whole and self._reply is not None and not self._reply.done():
            self._data = b""
            self._reply.set_result(body)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionError("the server has closed the connection"))


@dataclass(frozen=True)
class Load:
    """What a client has seen."""

    latencies: np.ndarray
    """Seconds of each request; infinite for one that had no reply in time."""
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.latencies, share, method="higher"))


def closed_loop(port: int, clients: int, requests: int) -> Load:
    """Each client sends its next request when it has the reply to the one before."""

    async def run() -> Load:
        latencies: list[float] = []

        each = math.ceil(requests / clients)

        async def one(client: int, connection: Connection) -> None:
            for number in range(client * each, (client + 1) * each):
                began = time.perf_counter()
                _check(await connection.ask(number), number)
                latencies.append(time.perf_counter() - began)

        connections = await _connect(port, clients)
        began = time.perf_counter()
        await asyncio.gather(*(one(i, connection) for i, connection in enumerate(connections)))
        seconds = time.perf_counter() - began
        _close(connections)
        return Load(np.array(latencies), seconds)

    with _no_pauses():
        return uvloop.run(run())


def open_loop(port: int, connections: int, rate: float, requests: int, patience: float) -> Load:
    """Requests arrive at random, `rate` per second, whether or not those before have a reply. The
    latency of one begins when it arrives, also if all connections are taken then. What has no
    reply `patience` seconds after the last arrival counts as infinite."""
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / rate, requests)).tolist()

    async def run() -> Load:
        latencies = np.full(requests, math.inf)
        made = await _connect(port, connections)
        free, waiting = deque(made), deque[int]()
        loop = asyncio.get_running_loop()
        began = loop.time() + patience
        end_at = began + arrivals[-1] + patience

        def send(number: int) -> None:
            if free:
                begin(free.popleft(), number)
            else:
                waiting.append(number)

        def begin(connection: Connection, number: int) -> None:
            connection.ask(number).add_done_callback(lambda reply: end(connection, number, reply))

        def end(connection: Connection, number: int, reply: asyncio.Future[bytes]) -> None:
            if loop.time() > end_at:
                reply.exception()  # the connections are closed
                return
            _check(reply.result(), number)
            latencies[number] = loop.time() - began - arrivals[number]
            if waiting:
                begin(connection, waiting.popleft())
            else:
                free.append(connection)

        for number, at in enumerate(arrivals):
            loop.call_at(began + at, send, number)
        await asyncio.sleep(end_at - loop.time())
        _close(made)
        return Load(latencies.copy(), arrivals[-1])

    with _no_pauses():
        return uvloop.run(run())


@contextmanager
def _no_pauses() -> Iterator[None]:
    """Keeps garbage collections of the client out of the latencies of the server."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check(body: bytes, number: int) -> None:
    answer: dict[str, Any] = json.loads(body)
    assert answer["y"] == _FIRST + number + 1, answer


async def _connect(port: int, count: int) -> list[Connection]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(count)]
    return [connection for _, connection in made]


def _close(connections: list[Connection]) -> None:
    for connection in connections:
        connection.transport.close()
