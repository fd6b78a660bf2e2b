"""Brings the buffers of results from actors to the trainer: through Ray's object store, or through
shared memory if the actor runs on the trainer's node.

A block of 19 MB costs 8 ms of CPU in Ray's store (in the actor, in Ray and in the trainer), and 3
ms in shared memory. So the actor writes large results into shared memory of its own, and Ray
carries the message and the offsets of its buffers. The trainer opens the memory through `/proc`; if
it cannot open the actor's test file that way, the two are on different nodes, and results go
through Ray. `docs/cluster.md` has the rates with and without it.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from silva.run.pools.channel import Message
from silva.run.shared.shared_memory import SMALL, Arena, FreeBuffer, Mapped, SharedBuffer


@dataclass(frozen=True)
class OpenFile:
    """The address of an unnamed open file for other processes of this machine."""

    process: int
    fd: int
    file: tuple[int, int]
    """Device and inode, since process ids differ between containers."""

    @staticmethod
    def of(fd: int) -> OpenFile:
        found = os.fstat(fd)
        return OpenFile(os.getpid(), fd, (found.st_dev, found.st_ino))

    def open(self) -> int:
        """A descriptor of the same file; raises OSError where it cannot be had.

        >>> fd = os.memfd_create("example")
        >>> other = OpenFile.of(fd).open()
        >>> os.path.sameopenfile(fd, other)
        True
        >>> os.close(fd), os.close(other)
        (None, None)
        """
        fd = os.open(f"/proc/{self.process}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self.file:
            os.close(fd)
            raise FileNotFoundError(f"process {self.process} is another process in this container")
        return fd


@dataclass(frozen=True, eq=False)
class Parcel:
    """A message whose buffers lie in a shared buffer."""

    body: bytes | bytearray
    number: int
    sizes: list[int]
    offsets: list[int]
    nbytes: int
    """The size of the shared buffer."""
    memory: OpenFile | None
    """The address of the shared buffer; None if the driver knows it."""


class Packer:
    """The actor's side."""

    def __init__(self) -> None:
        self._arena = Arena()
        self._proof = os.memfd_create("silva", os.MFD_CLOEXEC) if sys.platform == "linux" else None

    @property
    def proof(self) -> OpenFile | None:
        """A file by which another process tests whether it can open files of this one."""
        return None if self._proof is None else OpenFile.of(self._proof)

    def shared_buffer(self, freed: list[FreeBuffer]) -> SharedBuffer | None:
        """A shared buffer for the next message, if there is one; `freed` are free again."""
        for buffer in freed:
            self._arena.put_back(*buffer)
        return self._arena.take()

    def pack(self, message: Message, shared: SharedBuffer) -> Message | Parcel:
        """Moves the buffers of a message into the shared buffer, unless it is small or there is no
        room."""
        views = [memoryview(buffer) for buffer in message.buffers]
        sizes = [view.nbytes for view in views]
        offsets = self._arena.place(shared, views, sizes) if sum(sizes) > SMALL else None
        if offsets is None:
            self._arena.put_back(shared.number)
            return message
        told, shared.announced = shared.announced == shared.size, shared.size
        memory = None if told else OpenFile.of(shared.fd)
        return Parcel(message.body, shared.number, sizes, offsets, shared.size, memory)

    def close(self) -> None:
        """Frees the shared buffers; an actor's are freed when its process ends."""
        self._arena.close()
        if self._proof is not None:
            os.close(self._proof)


class Unpacker:
    """The trainer's side of one actor; raises OSError if it cannot open the actor's memory."""

    def __init__(self, proof: OpenFile) -> None:
        os.close(proof.open())
        self._mapped = Mapped()
        self._failed = False

    def unpack(self, parcel: Parcel) -> Message:
        """Raises OSError if the shared buffer cannot be opened: the actor may be gone."""
        try:
            if parcel.memory is not None:
                self._attach(parcel, parcel.memory)
        except OSError:
            self._failed = True
            raise
        views = self._mapped.views(parcel.number, parcel.sizes, parcel.offsets)
        return Message(parcel.body, [np.frombuffer(view, np.uint8) for view in views])

    def _attach(self, parcel: Parcel, memory: OpenFile) -> None:
        fd = memory.open()
        try:
            self._mapped.attach(parcel.number, parcel.nbytes, fd)
        finally:
            os.close(fd)

    def freed(self) -> list[FreeBuffer] | None:
        """The shared buffers that became free since the last call; None after one could not be
        opened, which switches shared memory off."""
        return None if self._failed else self._mapped.name_free()

    def close(self) -> None:
        """The actor is gone. Arrays that are still in use keep their shared buffer alive."""
        self._mapped.clear()


def near(proof: OpenFile | None) -> Unpacker | None:
    """The trainer's side of an actor; None if its memory cannot be opened here."""
    try:
        return None if proof is None else Unpacker(proof)
    except OSError:
        return None


class Leases:
    """Arrays over buffers of Ray's object store, up to a limit in bytes. The store cannot free a
    buffer while a batch uses it. Above the limit, buffers are copied, so that a program may keep
    all batches (`list(loader)`).

    >>> leases = Leases(most=8)
    >>> (kept,) = leases.take([np.arange(8, dtype=np.uint8)])
    >>> kept[0] = 7  # nobody else reads it
    >>> leases.nbytes
    8
    >>> del kept
    >>> leases.nbytes
    0
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._returned: deque[int] = deque()
        """Sizes of returned buffers; appended by the thread that drops the last array, without a
        lock."""

    @property
    def nbytes(self) -> int:
        """Bytes of buffers in use."""
        while self._returned:
            self._taken -= self._returned.popleft()
        return self._taken

    def take(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """The buffers as writable arrays without a copy; copies if too much is in use."""
        wanted = sum(buffer.nbytes for buffer in buffers)
        if self.nbytes + wanted > self._most:
            return [buffer.copy() for buffer in buffers]
        self._taken += wanted
        return [self._lent(buffer) for buffer in buffers]

    def _lent(self, buffer: np.ndarray) -> np.ndarray:
        whole = _Whole(buffer)
        weakref.finalize(whole, self._returned.append, buffer.nbytes).atexit = False
        return np.asarray(whole)


class _Whole:
    """Makes a read-only buffer writable: it has no other reader."""

    def __init__(self, buffer: np.ndarray) -> None:
        self._buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The address for numpy, marked as writable."""
        buffer = self._buffer
        where = {"data": (buffer.ctypes.data, False), "shape": buffer.shape}
        return {**where, "typestr": "|u1", "version": 3}
