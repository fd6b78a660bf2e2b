"""Messages between a parent and a worker process; large buffers travel in shared memory.

A message is pickled with its buffers out of band. Small ones follow in the socket; large ones are
written into an anonymous shared segment (memfd) that the receiver maps once and reads without a
copy. A segment is used again when every array over it is gone; the receiver then names it in its
next message. Nothing has a name in the file system, so nothing can be left behind, whoever is
killed. Where the system has no shared memory or descriptors to give, everything goes through the
socket.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import pickle
import socket
import struct
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

_HEADER = struct.Struct("<QIIQI")
"""Bytes of the body, number of buffers, segment (0: none), size of the segment, releases."""
_SMALL = 64 * 1024
"""Buffers below this, together, go through the socket."""
_ALIGN = 64
_SPARE = 8
_SPARE_BYTES = 64 << 20
"""A segment more than `_SPARE` times as large as what is sent now, and larger than this, is given
back: one huge row must not cost its memory for ever."""


class Segment:
    """Shared memory that one side writes; grows, never shrinks."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.fd = os.memfd_create("silva", os.MFD_CLOEXEC)
        self.size = 0
        self.used = 0
        self.announced = 0
        """The size that the other side knows of."""
        self._maps: list[tuple[int, np.ndarray]] = []

    def grow(self, size: int) -> None:
        """Room for `size` bytes; raises OSError, never a bus error later, where there is none."""
        if size <= self.size:
            return
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        os.posix_fallocate(self.fd, 0, size)
        view = np.frombuffer(mmap.mmap(self.fd, size), dtype=np.uint8)
        self._maps.append((view.ctypes.data, view))
        self.size = size

    def reset(self) -> None:
        self.used = 0
        del self._maps[:-1]

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array inside the segment if there is room, else on the heap."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size < _SMALL or self.used + size > self.size:
            return np.empty(shape, dtype)
        start = self.used
        self.used = -(-(start + size) // _ALIGN) * _ALIGN
        view = self._maps[-1][1][start : start + size]
        return view.view(dtype).reshape(shape)

    def offset_of(self, address: int, size: int) -> int | None:
        """Where memory at `address` lies within the segment, if it does."""
        for base, view in self._maps:
            if base <= address and address + size <= base + len(view):
                return address - base
        return None

    def write(self, data: Any, start: int) -> None:
        view = self._maps[-1][1]
        view[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def close(self) -> None:
        os.close(self.fd)


class Arena:
    """The segments that one side writes into."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._free: list[Segment] = []
        self._expected = 0

    @property
    def nbytes(self) -> int:
        """Shared memory that this side holds."""
        return sum(segment.size for segment in self._segments.values())

    def take(self) -> Segment | None:
        """A segment that nobody reads, as large as the last message needed; None where the system
        has none to give."""
        try:
            segment = self._unused()
        except OSError:
            return None
        segment.reset()
        with contextlib.suppress(OSError):
            segment.grow(self._expected)
        return segment

    def _unused(self) -> Segment:
        if not self._free:
            segment = Segment(len(self._segments) + 1)
            self._segments[segment.number] = segment
            return segment
        segment = max(self._free, key=lambda s: s.size)
        if segment.size > max(_SPARE * self._expected, _SPARE_BYTES):
            fresh = Segment(segment.number)
            segment.close()
            self._segments[segment.number] = fresh
            self._free.remove(segment)
            return fresh
        self._free.remove(segment)
        return segment

    def expect(self, size: int) -> None:
        self._expected = size

    def put_back(self, number: int) -> None:
        self._free.append(self._segments[number])

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        self._free.clear()


@dataclass(frozen=True, eq=False)
class Message:
    """A message that has arrived; it is unpickled where an error can be answered."""

    body: bytes | bytearray
    buffers: list[Any]

    def load(self) -> Any:
        return pickle.loads(self.body, buffers=self.buffers)  # noqa: S301  our own socket


def seal(message: Any) -> Message:
    """A message with its buffers apart, for somebody else to carry."""
    buffers: list[pickle.PickleBuffer] = []
    body = _dumps(message, buffers)
    return Message(body, [np.frombuffer(b.raw(), dtype=np.uint8) for b in buffers])


class Channel:
    """One end of the line. One thread at a time may send, and one may receive."""

    def __init__(self, sock: socket.socket, most_leased: int = 8) -> None:
        self._socket = sock
        self.arena = Arena()
        self._mapped: dict[int, np.ndarray] = {}
        self._released: deque[int] = deque()
        self._leased: set[int] = set()
        self._most_leased = most_leased
        """With more segments than this in use, what arrives is copied."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def segment(self) -> Segment | None:
        """A segment in which the next message's arrays can be made, if there is one."""
        return self.arena.take()

    def send(self, message: Any, segment: Segment | None = None) -> None:
        """Sends a message; `segment` is where some of its arrays may already lie."""
        buffers: list[pickle.PickleBuffer] = []
        try:
            body = _dumps(message, buffers)
        except BaseException:
            if segment is not None:
                self.arena.put_back(segment.number)
            raise
        views = [b.raw() for b in buffers]
        sizes = [v.nbytes for v in views]
        large = sum(sizes) > _SMALL
        if segment is None and large:
            segment = self.arena.take()
        offsets = self._place(segment, views, sizes) if segment is not None and large else None
        if segment is not None and offsets is None:
            self.arena.put_back(segment.number)
            segment = None
        releases = [self._released.popleft() for _ in range(len(self._released))]
        self._write(body, views, sizes, offsets or [], segment, releases)

    def _place(
        self, segment: Segment, views: list[memoryview], sizes: list[int]
    ) -> list[int] | None:
        """Puts every buffer into the segment that is not there yet; returns the offsets, or None
        where there is no room: they then go through the socket."""
        offsets: list[int | None] = []
        end = segment.used
        for view, size in zip(views, sizes, strict=True):
            at = segment.offset_of(_address(view), size) if size else 0
            if at is None:
                end = -(-(end + size) // _ALIGN) * _ALIGN
            offsets.append(at)
        try:
            segment.grow(end)
        except OSError:
            return None
        placed: list[int] = []
        for view, size, at in zip(views, sizes, offsets, strict=True):
            if at is None:
                at = segment.used
                segment.write(view, at)
                segment.used = -(-(at + size) // _ALIGN) * _ALIGN
            placed.append(at)
        self.arena.expect(segment.used)
        return placed

    def _write(
        self,
        body: bytes,
        views: list[memoryview],
        sizes: list[int],
        offsets: list[int],
        segment: Segment | None,
        releases: list[int],
    ) -> None:
        number = 0 if segment is None else segment.number
        announce = segment is not None and segment.announced != segment.size
        size = segment.size if segment is not None and announce else 0
        header = _HEADER.pack(len(body), len(views), number, size, len(releases))
        fds = [segment.fd] if segment is not None and announce else []
        table = np.array([*sizes, *offsets, *releases], dtype=np.uint64).tobytes()
        sent = socket.send_fds(self._socket, [header], fds)
        if segment is not None:
            segment.announced = segment.size
        inline = [] if segment is not None else [v for v in views if v.nbytes]
        parts: tuple[bytes | memoryview, ...] = (header[sent:], table, body, *inline)
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> Any:
        """The next message; raises EOFError when the other side is gone."""
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
            self.arena.put_back(freed)
        body = self._exactly(length)
        if not number:
            return Message(body, [self._exactly(n) for n in sizes])
        if size:
            self._attach(number, size, fds)
        return Message(body, self._views(number, sizes, table[count : 2 * count]))

    def _attach(self, number: int, size: int, fds: list[int]) -> None:
        if not fds:  # the kernel drops a descriptor for which the table has no place
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._mapped[number] = np.frombuffer(mmap.mmap(fds[0], size), dtype=np.uint8)

    def _views(self, number: int, sizes: list[int], offsets: list[int]) -> list[Any]:
        whole = self._mapped[number]
        if len(self._leased) >= self._most_leased:
            copies = [whole[o : o + n].copy() for o, n in zip(offsets, sizes, strict=True)]
            self._released.append(number)
            return copies
        lease = whole[:]  # views of it keep it alive; when it goes, the segment is free again
        self._leased.add(number)
        weakref.finalize(lease, self._release, number).atexit = False
        view = memoryview(lease)  # type: ignore[arg-type]
        return [view[o : o + n] for o, n in zip(offsets, sizes, strict=True)]

    def _release(self, number: int) -> None:
        """Runs on whatever thread drops the last array."""
        self._leased.discard(number)
        self._released.append(number)

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
        self._mapped.clear()


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)


def _dumps(message: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    try:
        return pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        buffers.clear()
        data: bytes = cloudpickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        return data
