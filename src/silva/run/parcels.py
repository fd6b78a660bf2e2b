"""Results that an actor hands to a trainer on its own node, past Ray's object store.

Ray's store is for everybody on every node: a block of 19 MB costs 8 ms of CPU there, in the actor,
in Ray and in the trainer, and 3 ms in memory that the two share. So the actor writes large results
into segments of its own, and Ray carries what is left: the message and where its buffers lie. The
trainer opens a segment through the actor's process; an actor in whose place it does not find the
file that it was told of is too far away for this, and uses Ray's store.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import numpy as np

from silva.run.channel import Message
from silva.run.segments import SMALL, Arena, Mapped, Place, Segment


@dataclass(frozen=True, eq=False)
class Parcel:
    """A message whose buffers lie in a segment."""

    body: bytes | bytearray
    segment: int
    sizes: list[int]
    offsets: list[int]
    nbytes: int
    """Of the segment."""
    place: Place | None
    """Where it is found, as long as nobody was told."""


class Packer:
    """The actor's side."""

    def __init__(self) -> None:
        self._arena = Arena()
        self._proof = os.memfd_create("silva", os.MFD_CLOEXEC) if sys.platform == "linux" else None

    @property
    def proof(self) -> Place | None:
        """A file to try whether another process can open files of this one."""
        return None if self._proof is None else Place.of(self._proof)

    def segment(self, freed: list[int]) -> Segment | None:
        """A segment for the next message, if there is one; those that are free are named."""
        for number in freed:
            self._arena.put_back(number)
        return self._arena.take()

    def pack(self, message: Message, segment: Segment) -> Message | Parcel:
        """The message in the segment, or as it is, where it is small or there is no room."""
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
        """For who makes one in a process that goes on; that of an actor ends."""
        self._arena.close()
        if self._proof is not None:
            os.close(self._proof)


class Unpacker:
    """The trainer's side of one actor; raises OSError where it is too far away."""

    def __init__(self, proof: Place) -> None:
        os.close(proof.open())
        self._mapped = Mapped()
        self._failed = False

    def unpack(self, parcel: Parcel) -> Message:
        """Raises OSError where the segment cannot be had: the actor may be gone by now."""
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
        """Segments that are free since this was last asked; None once one could not be had: then
        no more are wanted."""
        return None if self._failed else self._mapped.released()

    def close(self) -> None:
        """The actor is gone. Arrays that somebody keeps hold what they lie in themselves."""
        self._mapped.clear()


def near(proof: Place | None) -> Unpacker | None:
    """For an actor whose segments can be opened here, else None."""
    try:
        return None if proof is None else Unpacker(proof)
    except OSError:
        return None
