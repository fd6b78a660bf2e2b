"""Messages between a parent and a worker process; large buffers travel in shared memory.

A message is pickled with its buffers out of band. Small ones follow in the socket; large ones are
written into an anonymous shared buffer (memfd) that the receiver maps once and reads without a
copy. A shared buffer is used again when every array over it is gone; the receiver then names it in
its next message. Nothing has a name in the file system, so nothing is left behind when a process is
killed. Where the system has no shared memory or descriptors to give, everything goes through the
socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.run.shared.shared_memory import SMALL, Arena, Mapped, SharedBuffer

_HEADER = struct.Struct("<QIIQI")
"""Bytes of the body; how many buffers it has; the number of the shared buffer that they lie in (0:
none) and its size; how many shared buffers are free again."""
_EMPTIED = 1 << 63
"""Added to the number of a shared buffer that is free again, but has lost its pages."""


@dataclass(frozen=True, eq=False)
class Message:
    """A message as received; `load` unpickles it where an error can be handled."""

    body: bytes | bytearray
    buffers: list[Any]

    def load(self) -> Any:
        return pickle.loads(self.body, buffers=self.buffers)  # noqa: S301  our own socket


def seal(message: Any) -> Message:
    """Pickles a message with its buffers out of band, for another transport."""
    buffers: list[pickle.PickleBuffer] = []
    body = _dumps(message, buffers)
    return Message(body, [np.frombuffer(b.raw(), dtype=np.uint8) for b in buffers])


class Channel:
    """One end of a connection. One thread at a time may send, and one may receive."""

    def __init__(self, sock: socket.socket, most_leased: int = 8) -> None:
        self._socket = sock
        self.arena = Arena()
        self.mapped = Mapped()
        self._most_leased = most_leased
        """The number of shared buffers in use above which received buffers are copied."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def shared_buffer(self) -> SharedBuffer | None:
        """A shared buffer for the arrays of the next message; None if there is no memory."""
        return self.arena.take()

    def send(
        self, message: Any, shared: SharedBuffer | None = None, most_freed: int | None = None
    ) -> None:
        """Sends a message, some of whose arrays may already lie in `shared`. It names at most
        `most_freed` buffers that the receiver may use again; None: all of them."""
        buffers: list[pickle.PickleBuffer] = []
        try:
            body = _dumps(message, buffers)
        except BaseException:
            if shared is not None:
                self.arena.put_back(shared.number)
            raise
        views = [b.raw() for b in buffers]
        sizes = [v.nbytes for v in views]
        large = sum(sizes) > SMALL
        if shared is None and large:
            shared = self.arena.take()
        offsets = self.arena.place(shared, views, sizes) if shared is not None and large else None
        if shared is not None and offsets is None:
            self.arena.put_back(shared.number)
            shared = None
        free = self.mapped.name_free(most_freed)
        releases = [number | (_EMPTIED if emptied else 0) for number, emptied in free]
        self._write(body, views, sizes, offsets or [], shared, releases)

    def _write(
        self,
        body: bytes,
        views: list[memoryview],
        sizes: list[int],
        offsets: list[int],
        shared: SharedBuffer | None,
        releases: list[int],
    ) -> None:
        number = 0 if shared is None else shared.number
        announce = shared is not None and shared.announced != shared.size
        size = shared.size if shared is not None and announce else 0
        header = _HEADER.pack(len(body), len(views), number, size, len(releases))
        fds = [shared.fd] if shared is not None and announce else []
        table = np.array([*sizes, *offsets, *releases], dtype=np.uint64).tobytes()
        sent = socket.send_fds(self._socket, [header], fds)
        if shared is not None:
            shared.announced = shared.size
        inline = [] if shared is not None else [v for v in views if v.nbytes]
        parts: tuple[bytes | memoryview, ...] = (header[sent:], table, body, *inline)
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> Any:
        """The next message; raises EOFError when the other process is gone."""
        return self.receive_pickled().load()

    def receive_pickled(self) -> Message:
        """The next message, not unpickled yet."""
        try:
            return self._receive()
        except ConnectionError as error:
            raise EOFError from error
        except OSError as error:
            if error.errno == errno.EBADF:  # closed on this side
                raise EOFError from error
            raise

    def _receive(self) -> Message:
        header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        try:
            return self._rest(header, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _rest(self, header: bytes, fds: list[int]) -> Message:
        if not header:
            raise EOFError
        header += bytes(self._exactly(_HEADER.size - len(header)))
        length, count, number, size, released = _HEADER.unpack(header)
        words = count * (2 if number else 1) + released
        table = np.frombuffer(self._exactly(words * 8), dtype=np.uint64).tolist()
        sizes = table[:count]
        for freed in table[words - released :]:
            self.arena.put_back(freed & ~_EMPTIED, bool(freed & _EMPTIED))
        body = self._exactly(length)
        if not number:
            return Message(body, [self._exactly(n) for n in sizes])
        if size:
            self._attach(number, size, fds)
        return Message(body, self._buffers(number, sizes, table[count : 2 * count]))

    def _attach(self, number: int, size: int, fds: list[int]) -> None:
        if not fds:  # the kernel drops a descriptor for which the table has no place
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.mapped.attach(number, size, fds[0])

    def _buffers(self, number: int, sizes: list[int], offsets: list[int]) -> list[Any]:
        full = len(self.mapped.leased) >= self._most_leased
        return (self.mapped.copies if full else self.mapped.views)(number, sizes, offsets)

    def _exactly(self, count: int) -> bytearray:
        out = bytearray(count)
        view = memoryview(out)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return out

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.arena.close()
        self.mapped.clear()


def _dumps(message: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    """A message as bytes. What the user's script defines is pickled by value: it is `__main__` only
    in the parent, so that a worker would not find it by name."""
    with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError):
        data = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        if b"__main__" not in data:
            return data
    import cloudpickle

    buffers.clear()
    by_value: bytes = cloudpickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    return by_value
