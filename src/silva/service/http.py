"""The service's side of HTTP: authorization, requests and responses.

This is plain HTTP/1.1 of the standard library. Arrow Flight cannot be shut down while a reader
holds a stream without reading: measured, the shutdown takes as long as the reader's own timeout.

A client is not trusted before it has sent the token: the number of connections is limited, and so
are the size of a request and the time in which it must arrive.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from silva.errors import PlanError, ServiceError, SilvaError
from silva.lifetime import Thread, join_all
from silva.service.access import has_token, is_loopback
from silva.service.bounded_reader import BoundedReader, TooManyBytes
from silva.service.limits import REQUEST_BYTES, check_next, check_open
from silva.service.same_host import Lent, LocalListener
from silva.service.wire import (
    VERSION,
    BatchHead,
    BatchRequest,
    OpenRequest,
    OpenResponse,
    ResponseHead,
    error_response,
)

if TYPE_CHECKING:
    from silva.service.shared_run import EncodedBatch

_Request = TypeVar("_Request", OpenRequest, BatchRequest)

_SILENT = 60.0
"""Seconds after which an idle connection is closed; readers open another one."""
_WHOLE = 30.0
"""Seconds in which a request must arrive, once it has begun."""
_HEAD = 64 << 10
"""The most bytes of a request's first line and headers."""
_LOCAL = ("127.0.0.1", 0)
"""The address of readers that connect by the Unix socket."""
_MESSAGE = 4096
"""The most characters of an error message."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 74\r\n\r\n"
    b'{"error": "ServiceError", "message": "the service has no connection left"}'
)
_log = logging.getLogger("silva.service")


class Endpoint(Protocol):
    """What answers requests. `address` is that of the reader."""

    def open(self, request: OpenRequest) -> OpenResponse: ...
    def next(self, request: BatchRequest, address: str) -> list[EncodedBatch]: ...
    def stats(self) -> dict[str, Any]: ...


class _Response(NamedTuple):
    head: bytes
    rest: Sequence[memoryview] = ()
    code: int = 200
    lent: Lent | None = None
    """What the reader gets through shared memory."""


class _Client:
    """A connection, and the thread that serves it."""

    def __init__(self, connection: socket.socket, thread: Thread) -> None:
        self.connection, self.thread = connection, thread
        self.busy = False
        """Whether a request is being answered."""
        self.authorized = False
        """Whether it has sent the token."""
        self.since = time.monotonic()
        """The time of its last request."""


class Server(ThreadingHTTPServer):
    """Serves each connection on a thread of its own; `stop` ends all of them."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        bind_address: tuple[str, int],
        token: str,
        context: ssl.SSLContext | None,
        endpoint: Endpoint,
        most: int,
    ) -> None:
        """`most`: the maximum number of connections."""
        self.token, self.context, self.endpoint = token, context, endpoint
        self._most = most
        self._lock = threading.Lock()
        self.clients: dict[int, _Client] = {}
        """By the `id` of the socket."""
        if ":" in bind_address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(bind_address, _Handler)
        self._thread = Thread(self.serve_forever, "service-http", (0.1,))
        self._local: LocalListener | None = None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Binds without looking up the name of this host, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    @property
    def local_name(self) -> str | None:
        """The name of the Unix socket for readers on this machine, if there is one."""
        return None if self._local is None else self._local.name

    def start(self) -> None:
        self._thread.start()
        with contextlib.suppress(OSError):  # then all readers get bytes
            self._local = LocalListener(lambda found: self.process_request(found, _LOCAL))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection on a thread. If there are too many, the one that has been idle for
        longest is closed, unauthorized ones first; if all are busy, the new one is refused."""
        work = (request, client_address)
        thread = Thread(self.process_request_thread, "service-answer", work)
        with self._lock:
            admitted = len(self.clients) < self._most or self._make_room()
            if admitted:
                self.clients[id(request)] = _Client(request, thread)
        if not admitted:
            if self.context is None:
                with contextlib.suppress(OSError):
                    request.settimeout(0.0)
                    request.send(_FULL)
            self.shutdown_request(request)
            return
        try:
            thread.start()
        except RuntimeError:  # the system is out of threads
            self._forget(request)
            self.shutdown_request(request)

    def _make_room(self) -> bool:
        silent = [client for client in self.clients.values() if not client.busy]
        if not silent:
            return False
        client = min(silent, key=lambda one: (one.authorized, one.since))
        del self.clients[id(client.connection)]
        _shut(client.connection)
        return True

    def _forget(self, request: Any) -> None:
        with self._lock:
            self.clients.pop(id(request), None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def stop(self) -> None:
        """Accepts no more connections, and closes the open ones."""
        if self._local is not None:
            self._local.close()
        self.shutdown()
        self.server_close()
        with self._lock:
            clients = list(self.clients.values())
        for client in clients:
            _shut(client.connection)
        join_all([self._thread, *(client.thread for client in clients)])

    def server_close(self) -> None:
        self.socket.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects or is no reader is not an error of the service."""
        _log.debug("a connection ended", exc_info=True)


def _shut(connection: socket.socket) -> None:
    """Closes a connection that another thread may be using."""
    with contextlib.suppress(OSError):  # already closed
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # without the closing handshake of TLS


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "silva", ""
    timeout = _SILENT
    server: Server

    def setup(self) -> None:
        client = self.server.clients.get(id(self.request))
        if client is None:
            raise ConnectionError("closed to make room for another connection")
        self._client = client
        self._is_local = self.request.family == socket.AF_UNIX
        self._lent: Lent | None = None
        """What the reader may still be copying from shared memory."""
        if self.server.context is not None and not self._is_local:
            self.request.settimeout(_WHOLE)  # on this thread: a slow client delays no other
            self.request = client.connection = self.server.context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
            self.request.do_handshake()
        super().setup()
        if not self._is_local:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self.rfile.close()
        self._bounded = BoundedReader(self.connection, _SILENT)
        self.rfile = self._buffered = io.BufferedReader(self._bounded)

    def finish(self) -> None:
        if self._lent is not None:
            self._lent.abandon()
        super().finish()
        if self.server.context is not None and not self._is_local:
            self.connection.close()

    def handle_one_request(self) -> None:
        """Handles one request, from its first byte to the last byte of the response."""
        bounded, client = self._bounded, self._client
        bounded.until = bounded.left = None
        if self._buffered.peek(1):  # idle time before a request does not count
            self._lent = None  # a reader asks again when it has copied what it got
        client.since = time.monotonic()
        bounded.until, bounded.left = client.since + _WHOLE, _HEAD
        try:
            super().handle_one_request()
        except TooManyBytes:
            self.requestline = self.command = ""
            self.send_error(431, f"the head of a request has at most {_HEAD} bytes")
        finally:
            client.busy = False

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: neither addresses of readers nor tokens belong into a log."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends an error and closes the connection, since the start of the next request is unknown.
        (The standard library calls it for methods, versions and headers that it does not know.)"""
        self.close_connection = True
        self.request_version = self.protocol_version  # whatever version the client sent
        self._send(*_error_response(ServiceError(message or f"HTTP status {code}"), code))

    def do_GET(self) -> None:
        if self.headers.get_all("Content-Length", ["0"]) != ["0"]:
            self.send_error(400, "a GET has no body")
        elif "Transfer-Encoding" in self.headers:
            self.send_error(400, "a request has no Transfer-Encoding")
        elif self.path == "/health":
            self._send(msgspec.json.encode({"silva": VERSION}))
        elif self._is_authorized():
            self._send(*self._respond(b""))

    def do_POST(self) -> None:
        if self._is_authorized():
            body = self._body()
            if body is not None:
                self._send(*self._respond(body))

    def _is_authorized(self) -> bool:
        if has_token(self.headers.get("Authorization"), self.server.token):
            self._client.authorized = self._client.busy = True
            return True
        self.send_error(401, "the token is wrong: pass the token of this service, token=…")
        return False

    def _body(self) -> bytes | None:
        """The body of a request; None if it was refused."""
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers:
            self.send_error(400, "a request has no Transfer-Encoding")
        elif len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            self.send_error(411, "a request has one Content-Length")
        elif len(lengths[0]) > 18 or int(lengths[0]) > REQUEST_BYTES:
            self.send_error(413, f"a request has at most {REQUEST_BYTES} bytes")
        else:
            size = int(lengths[0])
            self._bounded.left = size
            body = self.rfile.read(size)
            if len(body) == size:
                return body
            self.close_connection = True  # the reader disconnected within its request
        return None

    def _respond(self, body: bytes) -> _Response:
        """The response; an error becomes one too."""
        try:
            return self._route(body)
        except SilvaError as error:
            return _error_response(error, 503 if isinstance(error, ServiceError) else 400)
        except Exception as error:  # noqa: BLE001  the reader gets it
            _log.exception("a request could not be answered")
            return _error_response(error, 500)

    def _route(self, body: bytes) -> _Response:
        endpoint, request = self.server.endpoint, (self.command, self.path)
        if request == ("POST", f"/v{VERSION}/next"):
            lent = Lent() if self._is_local else None
            return _next_batches(endpoint, body, str(self.client_address[0]), lent)
        if request == ("POST", f"/v{VERSION}/open"):
            opening = _decode(body, OpenRequest)
            check_open(opening)
            opened = endpoint.open(opening)
            if is_loopback(str(self.client_address[0])):
                opened.local = self.server.local_name
            return _Response(msgspec.json.encode(opened))
        if request == ("GET", f"/v{VERSION}/stats"):
            return _Response(msgspec.json.encode(endpoint.stats()))
        message = f"this service has protocol version {VERSION}, and no path {self.path:.80}"
        return _error_response(ServiceError(message), 404)

    def _send(
        self,
        head: bytes,
        rest: Sequence[memoryview] = (),
        code: int = 200,
        lent: Lent | None = None,
    ) -> None:
        self.connection.settimeout(_SILENT)
        self.send_response(code)
        self.send_header("Content-Type", "application/octet-stream" if rest else "application/json")
        self.send_header("Silva-Head", str(len(head)))
        self.send_header("Content-Length", str(len(head) + sum(part.nbytes for part in rest)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self._lent = lent
        if lent is None:
            self.wfile.write(head)
        else:
            lent.send(self.connection, head)
        for part in rest:
            self.wfile.write(part)


def _error_response(error: Exception, code: int) -> _Response:
    response = error_response(error)
    response.message = response.message[:_MESSAGE]
    return _Response(msgspec.json.encode(response), (), code)


def _next_batches(endpoint: Endpoint, body: bytes, address: str, lent: Lent | None) -> _Response:
    request = _decode(body, BatchRequest)
    check_next(request)
    items, rest = [], []
    for kept in endpoint.next(request, address):
        if not kept.parts:
            items.append(BatchHead(None, kept.moved))
            continue
        part = kept.parts[request.part]
        described = None if lent is None else [lent.describe(piece) for piece in part]
        items.append(BatchHead(sum(piece.nbytes for piece in part), kept.moved, described))
        rest += (
            part
            if described is None
            else [piece for piece, told in zip(part, described, strict=True) if told.file is None]
        )
    return _Response(msgspec.json.encode(ResponseHead(items)), rest, 200, lent)


def _decode(body: bytes, kind: type[_Request]) -> _Request:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise PlanError(f"the service cannot decode the request: {error}") from None
