"""The service's side of HTTP: who may ask, what was asked, and the answer.

Plain HTTP/1.1 of the standard library. Arrow Flight, which would be at hand, cannot be shut down
while a reader holds a stream and does not read: that was measured to take as long as the reader's
own time limit.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from silva.errors import PlanError, ServiceError, SilvaError
from silva.service.access import is_right
from silva.service.wire import VERSION, Head, Item, Next, Open, Opened, Refusal, refusal

if TYPE_CHECKING:
    from silva.service.run import Kept

_Asked = TypeVar("_Asked", Open, Next)

_SILENT = 60.0
"""Seconds after which a connection on which nothing moves is closed; readers open another."""
_LARGEST = 64 << 20
"""Bytes of a question: states are small."""


class Answers(Protocol):
    """What a service knows."""

    def open(self, asked: Open) -> Opened: ...
    def next(self, asked: Next) -> list[Kept]: ...
    def stats(self) -> dict[str, Any]: ...


class Server(ThreadingHTTPServer):
    """A thread for each connection; all of them end with `stop`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, place: tuple[str, int], token: str, context: ssl.SSLContext | None, answers: Answers
    ) -> None:
        self.token, self.context, self.answers = token, context, answers
        self.open_ones: set[socket.socket] = set()
        if ":" in place[0]:
            self.address_family = socket.AF_INET6
        super().__init__(place, _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """As it is, but for asking who this host is, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def start(self) -> None:
        threading.Thread(
            target=self.serve_forever, args=(0.1,), name="silva-service-http", daemon=True
        ).start()

    def stop(self) -> None:
        """Takes no more connections, and ends those that there are."""
        self.shutdown()
        self.server_close()
        for connection in list(self.open_ones):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no error of the service."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "silva", ""
    timeout = _SILENT
    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        if self.server.context is not None:
            self.request.settimeout(_SILENT)  # a slow one keeps nobody else waiting
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()
        self.server.open_ones.add(self.request)

    def finish(self) -> None:
        self.server.open_ones.discard(self.request)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses of readers are nobody's business, and tokens least of all."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._say(200, {"silva": VERSION})
        elif self._let_in():
            if self.path == f"/v{VERSION}/stats":
                self._say(200, self.server.answers.stats())
            else:
                self._unknown()

    def do_POST(self) -> None:
        if not self._let_in():
            return
        body = self._body()
        if body is None:
            return
        answers = self.server.answers
        try:
            if self.path == f"/v{VERSION}/next":
                self._send(*_asked_next(answers, body))
            elif self.path == f"/v{VERSION}/open":
                self._say(200, answers.open(_decoded(body, Open)))
            else:
                self._unknown()
        except OSError as error:
            if not isinstance(error, SilvaError):
                raise  # the reader is gone
            self._say(503 if isinstance(error, ServiceError) else 400, refusal(error))
        except Exception as error:  # noqa: BLE001  the reader must hear of it
            self._say(400 if isinstance(error, SilvaError) else 500, refusal(error))

    def _let_in(self) -> bool:
        if is_right(self.headers.get("Authorization"), self.server.token):
            return True
        self.close_connection = True
        self._say(401, Refusal("ServiceError", "the token is not that of this service"))
        return False

    def _body(self) -> bytes | None:
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            size = -1
        if not 0 <= size <= _LARGEST:
            self.close_connection = True
            self._say(413, Refusal("ServiceError", f"a question has 0 to {_LARGEST} bytes"))
            return None
        return self.rfile.read(size)

    def _unknown(self) -> None:
        self._say(
            404,
            Refusal("ServiceError", f"this service speaks version {VERSION}, not {self.path:.80}"),
        )

    def _say(self, code: int, what: Any) -> None:
        self._send(msgspec.json.encode(what), (), code)

    def _send(self, head: bytes, rest: Sequence[memoryview], code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/octet-stream" if rest else "application/json")
        self.send_header("Silva-Head", str(len(head)))
        self.send_header("Content-Length", str(len(head) + sum(part.nbytes for part in rest)))
        self.end_headers()
        self.wfile.write(head)
        for part in rest:
            self.wfile.write(part)


def _asked_next(answers: Answers, body: bytes) -> tuple[bytes, list[memoryview]]:
    asked = _decoded(body, Next)
    items, parts = [], []
    for kept in answers.next(asked):
        part = kept.parts[asked.part] if kept.parts else None
        items.append(Item(None if part is None else part.nbytes, kept.moved))
        if part is not None:
            parts.append(part)
    return msgspec.json.encode(Head(items)), parts


def _decoded(body: bytes, kind: type[_Asked]) -> _Asked:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(f"the service does not understand the question: {error}") from None
