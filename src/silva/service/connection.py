"""The reader's side of HTTP: asks until there is an answer, or the deadline has come."""

from __future__ import annotations

import http.client
import random
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from silva.errors import ServiceError
from silva.service.access import known_token, parse_address, reader_context
from silva.service.wire import VERSION, Head, Next, Open, Opened, Refusal, raised

_ANSWER = 30.0
"""Seconds in which a service that is well says something, if only that there is nothing yet."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0

_Said = TypeVar("_Said")


class Connection:
    """To a service; made anew when it breaks. For one thread at a time."""

    def __init__(
        self, address: str, token: str | None, certificate: str | Path | None, deadline: float
    ) -> None:
        self._address, self._deadline = address, deadline
        self._where = parse_address(address)
        self._context = reader_context(certificate) if self._where.secure else None
        self._headers = {
            "Authorization": f"Bearer {known_token(token)}",
            "Content-Type": "application/json",
        }
        self._http: http.client.HTTPConnection | None = None
        self._closed = threading.Event()

    def open(self, asked: Open) -> Opened:
        return self._asked("open", asked, lambda answer: _said(answer, Opened))

    def next(self, asked: Next) -> list[tuple[np.ndarray | None, dict[str, Any]]]:
        """What comes next: the bytes of a batch, or None for the end of an epoch, and where the
        stream stands after it."""
        return self._asked("next", asked, _batches)

    def stats(self) -> dict[str, Any]:
        return self._asked("stats", None, lambda answer: _said(answer, dict[str, Any]))

    def _asked(
        self, path: str, question: Any, read: Callable[[http.client.HTTPResponse], _Said]
    ) -> _Said:
        """The answer, however often it takes to ask for it."""
        until = time.monotonic() + self._deadline
        pause = _FIRST_PAUSE
        while True:
            reused = self._http is not None
            try:
                return self._once(path, question, read)
            except (OSError, http.client.HTTPException) as error:
                self._hang_up()
                if self._closed.is_set():
                    raise ServiceError("this loader has been closed") from None
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise ServiceError(
                        f"{self._address} shows a certificate that is not trusted "
                        f"({error.verify_message}): certificate=… names the file of one that is"
                    ) from None
                if isinstance(error, ServiceError) and not isinstance(error, _Busy):
                    raise
                left = until - time.monotonic()
                if left <= 0:
                    raise ServiceError(
                        f"the service at {self._address} did not answer for "
                        f"{self._deadline:g} s: {_words(error)}"
                    ) from error
                if not reused:  # a connection that was idle may just have been closed
                    self._closed.wait(min(pause * random.uniform(0.5, 1), left))
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(
        self, path: str, question: Any, read: Callable[[http.client.HTTPResponse], _Said]
    ) -> _Said:
        if self._http is None:
            where, seconds = self._where, min(_ANSWER, self._deadline)
            self._http = (
                http.client.HTTPSConnection(
                    where.host, where.port, timeout=seconds, context=self._context
                )
                if self._context is not None
                else http.client.HTTPConnection(where.host, where.port, timeout=seconds)
            )
        body = None if question is None else msgspec.json.encode(question)
        method = "GET" if question is None else "POST"
        self._http.request(method, f"/v{VERSION}/{path}", body, self._headers)
        answer = self._http.getresponse()
        if answer.status != 200:
            refused = _said(answer, Refusal)
            if answer.status == 503:
                raise _Busy(refused.message)
            raise raised(refused)
        return read(answer)

    def _hang_up(self) -> None:
        connection, self._http = self._http, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """From any thread: who is asking gets an error."""
        self._closed.set()
        self._hang_up()


class _Busy(ServiceError):
    """The service cannot answer now, but may later."""


def _said(answer: http.client.HTTPResponse, kind: type[_Said]) -> _Said:
    try:
        return msgspec.json.decode(answer.read(), type=kind)
    except msgspec.DecodeError as error:
        raise http.client.HTTPException(f"no answer of a silva service: {error}") from None


def _batches(
    answer: http.client.HTTPResponse,
) -> list[tuple[np.ndarray | None, dict[str, Any]]]:
    size = int(answer.headers["Silva-Head"])
    head = msgspec.json.decode(_exactly(answer, size).data, type=Head)
    found = []
    for item in head.items:
        data = None if item.bytes is None else _exactly(answer, item.bytes)
        found.append((data, item.moved))
    answer.read()
    return found


def _exactly(answer: http.client.HTTPResponse, size: int) -> np.ndarray:
    """So many bytes, in memory of their own that can be written."""
    data = np.empty(size, np.uint8)
    view, done = data.data, 0
    while done < size:
        got = answer.readinto(view[done:])
        if not got:
            raise http.client.IncompleteRead(b"", size - done)
        done += got
    return data


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
