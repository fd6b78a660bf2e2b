"""The reader's side of HTTP: retries until there is a response, or the deadline has passed.

The server at the address need not be a silva service, or may be hostile. So a response must be
complete by a deadline and fit into the reader's memory, and it can raise silva's own errors only.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import random
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva import errors
from silva.columns import empty
from silva.columns.serial.buffers import ALIGN
from silva.cost.machine import parse_bytes
from silva.errors import ServiceError, SilvaError
from silva.options import ServiceOptions
from silva.service.access import client_context, client_token, is_loopback, parse_address
from silva.service.bounded_reader import BoundedReader, TooManyBytes
from silva.service.same_host import NoSharedMemory, ReceivedFiles, connect_local
from silva.service.wire import (
    PROGRESS,
    VERSION,
    BatchHead,
    BatchRequest,
    ByteRange,
    ErrorResponse,
    OpenRequest,
    OpenResponse,
    ResponseHead,
    error_from,
)

_RESPONSE = 30.0
"""Seconds in which a healthy service sends something, if only an empty response."""
_CONNECT = 5.0
"""Seconds in which a host that is up accepts a connection."""
_LEAST_SECONDS = 1e-3
"""The shortest timeout in seconds: 0 would mean non-blocking."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_QUIET = 1.0
"""Seconds of failed attempts after which the user is warned."""
_HEAD_BYTES = 4 << 20
"""The most bytes of a response beside its batches: a state has a few kilobytes."""
_LEAST_BYTES = 64 << 20
"""Bytes of batches that a response may have, however small `memory` is."""
_TOGETHER = 1 << 20
"""Bytes of batches that share an array. A batch that is kept keeps all of it."""
_ERRORS = frozenset(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, SilvaError)
)
"""The errors that a service may raise here."""
_PROGRESS, _COUNTS = frozenset(PROGRESS), ("epoch", "step", "shards")

_Body = TypeVar("_Body")
Batch = tuple[np.ndarray | None, dict[str, Any]]
"""The bytes of a batch, or None at the end of an epoch, and what has changed in the state."""


class Connection:
    """A connection to a service, opened again when it breaks. For one thread at a time."""

    def __init__(
        self, address: str, options: ServiceOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address, self._deadline, self._wait = address, options.deadline, options.wait
        self._most = max(parse_bytes(options.memory), _LEAST_BYTES)
        self._clock = clock
        self._where = parse_address(address)
        self._context = client_context(self._where, options.certificate)
        self._headers = {
            "Authorization": f"Bearer {client_token(options.token)}",
            "Content-Type": "application/json",
        }
        self.local: str | None = None
        """The name of the service's Unix socket, if both are on this machine."""
        self._http: http.client.HTTPConnection | None = None
        self._files = ReceivedFiles()
        self._closed = threading.Event()

    def open(self, request: OpenRequest) -> OpenResponse:
        return self._request(
            "open", request, lambda response: _check_opened(_read_json(response, OpenResponse))
        )

    def next(self, request: BatchRequest) -> list[Batch]:
        """The next batches, at least one."""
        until = self._clock() + self._deadline
        while True:
            found = self._request("next", request, self._batches, until)
            if found:
                return found
            if self._clock() >= until:
                raise ServiceError(
                    f"the service at {self._address} had no batch for {self._deadline:g} s "
                    "(deadline=…): its pipeline, or the source that it reads, makes no progress"
                )

    def stats(self) -> dict[str, Any]:
        return self._request("stats", None, lambda response: _read_json(response, dict[str, Any]))

    def _request(
        self,
        path: str,
        body: Any,
        read: Callable[[http.client.HTTPResponse], _Body],
        until: float | None = None,
    ) -> _Body:
        """Sends a request until there is a response, or the time `until` has come."""
        begun = self._clock()
        until = begun + self._deadline if until is None else until
        pause, warned = _FIRST_PAUSE, False
        while True:
            reused = self._http is not None
            try:
                return self._try_once(path, body, read, until)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if isinstance(error, NoSharedMemory):
                    self.local = None
                self._raise_if_final(error, reused)
                failed = error
            now = self._clock()
            if now >= until:
                raise ServiceError(
                    f"the service at {self._address} did not answer for {self._deadline:g} s "
                    f"(deadline=…): {_reason(failed)}"
                ) from failed
            if reused:  # a connection that was idle may just have been closed
                continue
            if not warned and now - begun >= _QUIET:
                warned = True
                warnings.warn(
                    f"no service answers at {self._address} ({_reason(failed)}); retrying for "
                    f"{until - now:.0f} s",
                    stacklevel=2,
                )
            self._closed.wait(min(pause * random.uniform(0.5, 1), until - now))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _raise_if_final(self, error: Exception, reused: bool) -> None:
        """Raises if a retry would not help, or is not wanted."""
        if self._closed.is_set():
            raise ServiceError("this loader has been closed") from None
        if isinstance(error, ssl.SSLCertVerificationError):
            raise ServiceError(
                f"the certificate of {self._address} is not trusted ({error.verify_message}): pass "
                "certificate=…, the file of the certificate to trust"
            ) from None
        if isinstance(error, SilvaError) and not isinstance(error, _Busy):
            raise error
        if not self._wait and not reused:
            raise ServiceError(
                f"no service answers at {self._address} ({_reason(error)}); it is not tried again "
                "because of wait=False"
            ) from error

    def _try_once(
        self,
        path: str,
        body: Any,
        read: Callable[[http.client.HTTPResponse], _Body],
        until: float,
    ) -> _Body:
        connection = self._http = self._http or self._connect(until)
        body = None if body is None else msgspec.json.encode(body)
        method = "GET" if body is None else "POST"
        if connection.sock is not None:
            connection.sock.settimeout(max(min(_RESPONSE, until - self._clock()), _LEAST_SECONDS))
        connection.response_class = self._bounded_response(until)
        try:
            connection.request(method, f"/v{VERSION}/{path}", body, self._headers)
            response = connection.getresponse()
            if response.status == 200:
                return read(response)
            raise self._error_of(response)
        except TooManyBytes:
            raise ServiceError(
                f"the response of {self._address} has more than {self._most >> 20} MiB: raise "
                "memory=…, or make the batches smaller"
            ) from None
        finally:
            self._files.close_files()

    def _connect(self, until: float) -> http.client.HTTPConnection:
        where, seconds = self._where, max(min(_CONNECT, until - self._clock()), _LEAST_SECONDS)
        local = connect_local(self.local, seconds) if is_loopback(where.host) else None
        self.local = self.local if local else None  # a service that was restarted has another one
        if local is not None:
            made = http.client.HTTPConnection(where.host, where.port)
            made.sock, made.auto_open = local, 0
            return made
        made = (
            http.client.HTTPSConnection(
                where.host, where.port, timeout=seconds, context=self._context
            )
            if self._context is not None
            else http.client.HTTPConnection(where.host, where.port, timeout=seconds)
        )
        made.connect()
        made.auto_open = 0  # reconnecting is up to `_request`
        return made

    def _bounded_response(self, until: float) -> Any:
        """A response class that reads within the deadline and the memory."""

        def response(
            sock: socket.socket, debuglevel: int = 0, method: str | None = None
        ) -> http.client.HTTPResponse:
            response = http.client.HTTPResponse(sock, debuglevel, method)
            response.fp.close()
            is_local = sock.family == socket.AF_UNIX
            receive = self._files.receive_into if is_local else None
            reader = BoundedReader(sock, _RESPONSE, self._clock, receive)
            reader.until, reader.left = until, self._most + _HEAD_BYTES
            response.fp = io.BufferedReader(reader)
            return response

        return response

    def _error_of(self, response: http.client.HTTPResponse) -> SilvaError:
        """The error that a service sent instead of a response."""
        status = response.status
        try:
            found = _read_json(response, ErrorResponse)
        except http.client.HTTPException:
            if status >= 500:  # a proxy whose service is not there
                raise
            raise ServiceError(
                f"the server at {self._address} is not a silva service: HTTP status {status}"
            ) from None
        if status == 503:
            return _Busy(found.message)
        known = found.error in _ERRORS
        return error_from(found if known else msgspec.structs.replace(found, error="ServiceError"))

    def _batches(self, response: http.client.HTTPResponse) -> list[Batch]:
        length, head_length = _length(response), response.headers.get("Silva-Head", "")
        if not (head_length.isascii() and head_length.isdigit() and len(head_length) < 18):
            raise http.client.HTTPException("not a silva service: the response has no head")
        if int(head_length) > min(length, _HEAD_BYTES):
            raise http.client.HTTPException("the head of the response is too long")
        head = _decode(_read_exactly(response, int(head_length)).tobytes(), ResponseHead)
        batches = [_ranges(item) for item in head.items if item.bytes is not None]
        inline = [part.bytes for batch in batches for part in batch if part.file is None]
        if int(head_length) + sum(inline) != length:
            raise http.client.HTTPException("the lengths in the response do not add up")
        if sum(item.bytes or 0 for item in head.items) > self._most:
            raise TooManyBytes
        read = self._read_batches(response, batches)
        return [
            (None if item.bytes is None else next(read), _check_progress(item.moved))
            for item in head.items
        ]

    def _read_batches(
        self, response: http.client.HTTPResponse, batches: list[list[ByteRange]]
    ) -> Iterator[np.ndarray]:
        """The next batches. Small ones share an array, so that they need few reads, and memory that
        is recycled."""
        start, together = 0, 0
        sizes = [sum(part.bytes for part in batch) for batch in batches]
        for stop, size in enumerate(sizes, 1):
            together += size
            if together >= _TOGETHER or size % ALIGN or stop == len(sizes):
                data, begin = empty((together,), np.uint8), 0
                for part in _merged(part for batch in batches[start:stop] for part in batch):
                    self._fill(data.data[begin : begin + part.bytes], part, response)
                    begin += part.bytes
                begin = 0
                for each in sizes[start:stop]:
                    yield data[begin : begin + each]
                    begin += each
                start, together = stop, 0

    def _fill(self, view: memoryview, part: ByteRange, response: http.client.HTTPResponse) -> None:
        """Copies a range, from shared memory or the response."""
        if part.file is None:
            _read_into(response, view)
        else:
            self._files.read(part.file, part.offset, view)

    def close(self) -> None:
        """Closes the connection."""
        connection, self._http = self._http, None
        self._files.close()
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """From any thread: the request in progress fails at once."""
        self._closed.set()
        connection = self._http
        sock = None if connection is None else connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):  # already closed
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Busy(ServiceError):
    """The service cannot answer now, but may later."""


def _length(response: http.client.HTTPResponse) -> int:
    """The length of a response, which must be sent the way a service sends it."""
    lengths = response.headers.get_all("Content-Length", [])
    for name in ("Transfer-Encoding", "Content-Encoding"):
        if name in response.headers:
            raise http.client.HTTPException(f"the response has {name}, which no service sends")
    if len(lengths) != 1 or response.length is None:
        raise http.client.HTTPException("the response has no length")
    return response.length


def _read_json(response: http.client.HTTPResponse, kind: type[_Body]) -> _Body:
    length = _length(response)
    if length > _HEAD_BYTES:
        raise http.client.HTTPException(
            f"the response has {length} bytes, where a few were expected"
        )
    return _decode(_read_exactly(response, length).tobytes(), kind)


def _decode(data: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise http.client.HTTPException(f"not a silva service: {error}") from None


def _check_opened(found: OpenResponse) -> OpenResponse:
    _check_progress({name: found.state[name] for name in PROGRESS if name in found.state})
    if "epoch" not in found.state:
        raise http.client.HTTPException("not a silva service: its state has no epoch")
    return found


def _check_progress(moved: dict[str, Any]) -> dict[str, Any]:
    """The change of a state, if it is a valid one."""
    sound = moved.keys() <= _PROGRESS
    for name in _COUNTS:
        number = moved.get(name, 0)
        sound = sound and type(number) is int and number >= 0
    if not sound:
        raise http.client.HTTPException("not a silva service: it sent no position in a stream")
    return moved


def _ranges(item: BatchHead) -> list[ByteRange]:
    """The ranges of a batch, which make up its bytes."""
    if item.ranges is None:
        return [ByteRange(item.bytes or 0)]
    if sum(part.bytes for part in item.ranges) != item.bytes:
        raise NoSharedMemory("the ranges of a batch do not add up")
    return item.ranges


def _merged(ranges: Iterable[ByteRange]) -> Iterator[ByteRange]:
    """Neighbours as one, so that small batches need few reads."""
    last: ByteRange | None = None
    for part in ranges:
        if last is None:
            last = part
        elif last.file == part.file and part.offset == _end(last):
            last = ByteRange(last.bytes + part.bytes, last.file, last.offset)
        else:
            yield last
            last = part
    if last is not None:
        yield last


def _end(part: ByteRange) -> int:
    """The offset at which the next bytes follow."""
    return 0 if part.file is None else part.offset + part.bytes


def _read_exactly(response: http.client.HTTPResponse, size: int) -> np.ndarray:
    """The next `size` bytes, in a new writable array."""
    data = empty((size,), np.uint8)
    _read_into(response, data.data)
    return data


def _read_into(response: http.client.HTTPResponse, view: memoryview) -> None:
    done = 0
    while done < len(view):
        got = response.readinto(view[done:])
        if not got:
            raise http.client.IncompleteRead(b"", len(view) - done)
        done += got


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
