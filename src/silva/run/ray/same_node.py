"""Results from an actor to a trainer on the same node, without Ray's object store.

A block of 19 MB costs 8 ms of CPU in Ray's store (in the actor, in Ray and in the trainer), and 3
ms in shared memory. So the actor writes large results into segments of its own, and Ray carries the
message and the offsets of its buffers. The trainer opens a segment through `/proc`; if it cannot
open the actor's test file that way, the two are on different nodes, and results go through Ray.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np

from silva.run.pools.channel import Message
from silva.run.shared.shared_memory import SMALL, Arena, Mapped, Place, Segment


@dataclass(frozen=True, eq=False)
class Parcel:
    """A message whose buffers lie in a segment."""

    body: bytes | bytearray
    segment: int
    sizes: list[int]
    offsets: list[int]
    nbytes: int
    """The size of the segment."""
    place: Place | None
    """The address of the segment; None if the driver knows it."""


class Packer:
    """The actor's side."""

    def __init__(self) -> None:
        self._arena = Arena()
        self._proof = os.memfd_create("silva", os.MFD_CLOEXEC) if sys.platform == "linux" else None

    @property
    def proof(self) -> Place | None:
        """A file by which another process tests whether it can open files of this one."""
        return None if self._proof is None else Place.of(self._proof)

    def segment(self, freed: list[int]) -> Segment | None:
        """A segment for the next message, if there is one; `freed` are free again."""
        for number in freed:
            self._arena.put_back(number)
        return self._arena.take()

    def pack(self, message: Message, segment: Segment) -> Message | Parcel:
        """Moves the buffers of a message into the segment, unless it is small or there is no
        room."""
        views = [memoryview(buffer) for buffer in message.buffers]
        sizes = [view.nbytes for view in views]
        offsets = self._arena.place(segment, views, sizes) if sum(sizes) > SMALL else None
        if offsets is None:
            self._arena.put_back(segment.number)
            return message
        told, segment.announced = segment.announced == segment.size, segment.size
        place = None if told else Place.of(segment.fd)
        return Parcel(message.body, segment.number, sizes, offsets, segment.size, place)

    def close(self) -> None:
        """Frees the segments; an actor's are freed when its process ends."""
        self._arena.close()
        if self._proof is not None:
            os.close(self._proof)


class Unpacker:
    """The trainer's side of one actor; raises OSError if it cannot open the actor's memory."""

    def __init__(self, proof: Place) -> None:
        os.close(proof.open())
        self._mapped = Mapped()
        self._failed = False

    def unpack(self, parcel: Parcel) -> Message:
        """Raises OSError if the segment cannot be opened: the actor may be gone."""
        try:
            if parcel.place is not None:
                self._attach(parcel, parcel.place)
        except OSError:
            self._failed = True
            raise
        views = self._mapped.views(parcel.segment, parcel.sizes, parcel.offsets)
        return Message(parcel.body, [np.frombuffer(view, np.uint8) for view in views])

    def _attach(self, parcel: Parcel, place: Place) -> None:
        fd = place.open()
        try:
            self._mapped.attach(parcel.segment, parcel.nbytes, fd)
        finally:
            os.close(fd)

    def freed(self) -> list[int] | None:
        """The segments that became free since the last call; None after one could not be opened,
        which switches shared memory off."""
        return None if self._failed else self._mapped.released()

    def close(self) -> None:
        """The actor is gone. Arrays that are still in use keep their segment alive."""
        self._mapped.clear()


def near(proof: Place | None) -> Unpacker | None:
    """The trainer's side of an actor; None if its memory cannot be opened here."""
    try:
        return None if proof is None else Unpacker(proof)
    except OSError:
        return None
