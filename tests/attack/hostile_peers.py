"""Clients and servers on bare sockets, which say what they like."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import silva as sv

SECONDS = 20.0
"""That a test waits for what must come."""

Misdeed = Callable[[socket.socket], None]
"""What a hostile server does with a connection after it has read the question."""


class Peer:
    """A connection to a service, on which anything can be sent."""

    def __init__(self, service: sv.Service) -> None:
        host, port = service.address.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS)
        self._token = service.token
        self._rest = b""

    def send(self, data: bytes) -> Peer:
        self.socket.sendall(data)
        return self

    def ask(self, method: str, path: str, body: Any = None, *headers: str) -> tuple[int, Any]:
        """A question as it should be, but for what the test makes of it."""
        data = b"" if body is None else body if isinstance(body, bytes) else dump(body)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Authorization: Bearer {self._token}",
            *headers,
        ]
        if body is not None:
            lines.append(f"Content-Length: {len(data)}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + data)
        return self.answer()

    def answer(self) -> tuple[int, Any]:
        """The status of the next answer, and what it says."""
        while b"\r\n\r\n" not in self._rest:
            self._read()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        size = int(headers["content-length"])
        while len(self._rest) < size:
            self._read()
        body, self._rest = self._rest[:size], self._rest[size:]
        first = int(headers["silva-head"]) if "silva-head" in headers else size
        return int(lines[0].split()[1]), json.loads(body[:first])

    def _read(self) -> None:
        got = self.socket.recv(1 << 16)
        if not got:
            raise EOFError("the service hung up")
        self._rest += got

    def is_over(self) -> bool:
        """Waits until the service has hung up."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def dump(body: Any) -> bytes:
    return json.dumps(body).encode()


class HostileServer:
    """Answers the first `well` questions as a service, and does a misdeed on each later one."""

    def __init__(self, misdeed: Misdeed, well: int) -> None:
        self._misdeed, self._well = misdeed, well
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked: list[bytes] = []
        self.over = threading.Event()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while question := _question(connection):
                self.asked.append(question)
                if len(self.asked) <= self._well:
                    connection.sendall(reply(OPENED))
                else:
                    self._misdeed(connection)
        except OSError:
            pass  # the reader hung up
        finally:
            connection.close()

    def close(self) -> None:
        self.over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@contextmanager
def hostile_server(misdeed: Misdeed, well: int = 0) -> Iterator[HostileServer]:
    server = HostileServer(misdeed, well)
    try:
        yield server
    finally:
        server.close()


def _question(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        got = connection.recv(1 << 16)
        if not got:
            return b""
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < size:
        got = connection.recv(1 << 16)
        if not got:
            return b""
        body += got
    return head + b"\r\n\r\n" + body


STATE = {
    "silva": 1, "pipeline": "x", "outline": [], "seed": 0, "epoch": 0, "step": 0, "shards": 1,
    "cursors": {},
}  # fmt: skip
OPENED = dump({"state": STATE, "length": 3})


def reply(
    body: bytes, status: str = "200 OK", head: int | None = None, length: int | None = None,
    more: str = "",
) -> bytes:  # fmt: skip
    """An answer of a service, with `more` headers."""
    lines = [
        f"HTTP/1.1 {status}",
        f"Silva-Head: {len(body) if head is None else head}",
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return ("\r\n".join(lines) + "\r\n" + more + "\r\n").encode() + body


def batches(*items: tuple[Any, Any], data: bytes = b"") -> bytes:
    """The answer with batches of so many bytes, and where the stream stands after each."""
    head = dump({"items": [{"bytes": size, "moved": moved} for size, moved in items]})
    return reply(head + data, head=len(head))
