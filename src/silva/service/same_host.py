"""Shared memory between a service and its readers on one machine.

A service also listens on a Unix socket. A reader that can connect to it runs on the same machine,
and the kernel tells each side the user of the other: it must be its own. Over this socket, large
buffers of a batch are not sent as bytes. The service passes the memfds in which they lie
(SCM_RIGHTS), and the reader copies them once, before it decodes anything. So a file that changes
later cannot change what the reader has checked.

Nothing has a name in the file system: the socket's name is abstract, and the files are anonymous.
The kernel frees both when the process ends, also after `kill -9`. Readers in a container, on
another machine or of another user get batches as bytes over HTTP.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import http.client
import mmap
import os
import re
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from silva.columns.allocation import begin_sharing, end_sharing, never_recycle, shared_place
from silva.lifetime import Thread, join_all
from silva.service.wire import ByteRange

MOST_FILES = 64
"""The most files of one response."""
_LEAST_BYTES = 32 << 10
"""Bytes of a buffer below which it is sent as bytes."""
_MAPPED_BYTES = 256 << 20
"""Bytes of files that a reader keeps mapped. Beyond that, files are read."""
_INT = struct.Struct("i")
_NAME = re.compile(r"[0-9a-f]{32}")
_PREFIX = "\0silva-service-"
"""Of names of sockets: no other program's socket is ever connected to. The first character makes
them abstract."""
_USER = struct.Struct("3i")
"""Process, user and group of a peer, as SO_PEERCRED reports them."""


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this user."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _USER.size)
    return bool(_USER.unpack(found)[1] == os.geteuid())


class NoSharedMemory(http.client.HTTPException):
    """What came over the Unix socket cannot be used; the reader continues over HTTP."""


# The service.


class LocalListener:
    """Accepts readers on this machine, by a Unix socket."""

    def __init__(self, accept: Callable[[socket.socket], None]) -> None:
        """`accept` serves a connection. OSError where there are no such sockets."""
        if not hasattr(socket, "SO_PEERCRED") or not hasattr(os, "memfd_create"):
            raise OSError("not on this system")
        self.name = secrets.token_hex(16)
        self._accept = accept
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(_PREFIX + self.name)
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            raise
        self._lock = threading.Lock()
        self._shares = self._closed = False
        self._thread = Thread(self._work, "service-local")
        self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                if self._closed:
                    return
                continue
            if not is_same_user(connection):
                connection.close()
                continue
            with self._lock:
                if not self._shares and not self._closed:
                    self._shares = True
                    begin_sharing(self)
            self._accept(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            end_sharing(self)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`
        join_all([self._thread])
        self._socket.close()


class Lent:
    """The buffers of a response that its reader copies from shared memory. They are kept until its
    next request; if it disconnects instead, it may still be copying, so that memory is not used
    again."""

    def __init__(self) -> None:
        self.files: list[int] = []
        """Open as long as the buffers are kept."""
        self._arrays: list[Any] = []

    def describe(self, buffer: memoryview) -> ByteRange:
        """Where a reader finds a buffer: in a file of the response, or in its bytes."""
        place, array = None, buffer.obj
        if isinstance(array, np.ndarray) and array.nbytes == buffer.nbytes >= _LEAST_BYTES:
            place = shared_place(array)
        if place is None:
            return ByteRange(buffer.nbytes)
        if place.file not in self.files:
            if len(self.files) == MOST_FILES:
                return ByteRange(buffer.nbytes)
            self.files.append(place.file)
        self._arrays.append(array)
        return ByteRange(buffer.nbytes, self.files.index(place.file), place.offset)

    def send(self, connection: socket.socket, head: bytes) -> None:
        """Sends bytes with the files."""
        if not self.files:
            connection.sendall(head)
            return
        sent = socket.send_fds(connection, [head], self.files)
        connection.sendall(memoryview(head)[sent:])

    def abandon(self) -> None:
        for array in self._arrays:
            never_recycle(array)


# The reader.


def connect_local(name: Any, seconds: float) -> socket.socket | None:
    """A connection to the service's Unix socket of this name; None if there is none that belongs to
    this user."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not hasattr(socket, "SO_PEERCRED"):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(_PREFIX + name)
        if is_same_user(connection):
            return connection
    except OSError:
        pass
    connection.close()
    return None


class ReceivedFiles:
    """The files that came with a response. The service is not trusted: they may be anything."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._maps: dict[tuple[int, ...], mmap.mmap] = {}
        """Files that came before, by their inode: a service uses its memory again."""

    def receive_into(self, connection: socket.socket, buffer: Any) -> int:
        """As `recv_into`; keeps the files that arrive with the bytes."""
        space = socket.CMSG_SPACE(MOST_FILES * _INT.size)
        got, about, flags, _ = connection.recvmsg_into([buffer], space, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in about:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = data[: len(data) // _INT.size * _INT.size]
                self._files += [file for (file,) in _INT.iter_unpack(whole)]
        if flags & socket.MSG_CTRUNC or len(self._files) > MOST_FILES:
            raise NoSharedMemory(f"a response came with more than {MOST_FILES} files")
        return got

    def read(self, file: int, offset: int, into: memoryview) -> None:
        """Copies bytes of a file."""
        if file >= len(self._files):
            raise NoSharedMemory(f"a response came without file {file}")
        found = self._files[file]
        size = _check_memory(found)
        if offset + len(into) > size:
            raise NoSharedMemory(f"a file of {size} bytes does not hold the batch")
        mapped = self._mapped(found, size)
        if mapped is not None:
            data = np.frombuffer(mapped, np.uint8, len(into), offset)
            np.frombuffer(into, np.uint8)[:] = data  # without the GIL
            return
        done = 0
        while done < len(into):
            got = os.preadv(found, [into[done:]], offset + done)
            if not got:
                raise NoSharedMemory("a file has become shorter")
            done += got

    def _mapped(self, file: int, size: int) -> mmap.mmap | None:
        """The memory of a file, which costs a third of reading it once it is mapped; None if enough
        of them are."""
        about = os.fstat(file)
        key = (about.st_dev, about.st_ino, about.st_ctime_ns, size)
        found = self._maps.get(key)
        if found is None and size + sum(map(len, self._maps.values())) <= _MAPPED_BYTES:
            found = self._maps[key] = mmap.mmap(file, size, prot=mmap.PROT_READ)
        return found

    def close_files(self) -> None:
        files, self._files = self._files, []
        for file in files:
            os.close(file)

    def close(self) -> None:
        self.close_files()
        self._maps.clear()


def _check_memory(file: int) -> int:
    """The size of a memfd that cannot shrink: a read from it never waits, and mapping it never ends
    in a bus error. Files of other kinds (pipes, network file systems, huge pages, a memfd that is
    not sealed) are refused."""
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        raise NoSharedMemory("a file is not shared memory") from None
    about = os.fstat(file)
    if about.st_dev != _device_of_memfds() or not seals & fcntl.F_SEAL_SHRINK:
        raise NoSharedMemory("a file is not shared memory of a fixed size")
    return about.st_size


@functools.cache
def _device_of_memfds() -> int:
    file = os.memfd_create("silva", os.MFD_CLOEXEC)
    try:
        return os.fstat(file).st_dev
    finally:
        os.close(file)
