"""Reads from a peer that may send too many bytes, send them too slowly, or send none."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from typing import Any


class TooManyBytes(Exception):
    """The peer sent more bytes than it may."""


class BoundedReader(io.RawIOBase):
    """A stream over a socket with a deadline and a limit on bytes.

    A socket's own timeout starts again with each byte, so a peer that sends one byte a minute could
    keep a reader waiting for ever.
    """

    def __init__(
        self,
        connection: socket.socket,
        silence: float,
        clock: Callable[[], float] = time.monotonic,
        receive: Callable[[socket.socket, Any], int] | None = None,
    ) -> None:
        """`silence`: the timeout in seconds while no byte arrives; `receive`: what fills a buffer,
        if not the socket's `recv_into`."""
        self._receive = receive
        self._connection, self._silence, self._clock = connection, silence, clock
        self._raw = connection.makefile("rb", buffering=0)  # keeps the socket open
        self.until: float | None = None
        """The deadline for all bytes, by `clock`; None for none."""
        self.left: int | None = None
        """The number of bytes that may still be read; None for any."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._silence
        if self.until is not None:
            seconds = min(seconds, self.until - self._clock())
            if seconds <= 0:
                raise TimeoutError("timed out")
        if self._connection.gettimeout() != seconds:  # setting it is a system call
            self._connection.settimeout(seconds)
        if self.left is not None:
            if self.left <= 0:
                raise TooManyBytes
            buffer = memoryview(buffer)[: self.left]
        if self._receive is None:
            got = self._connection.recv_into(buffer)
        else:
            got = self._receive(self._connection, buffer)
        if self.left is not None:
            self.left -= got
        return got

    def close(self) -> None:
        self._raw.close()
        super().close()
