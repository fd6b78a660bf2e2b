"""Shared memory that waits for its next use may lose its pages, and is right afterwards."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from silva.run.pools.channel import Channel

Ends = tuple[Channel, Channel]
SIZE = 1 << 20


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A writer and a reader."""
    both = tuple(map(Channel, socket.socketpair()))
    yield both[0], both[1]
    for end in both:
        end.close()


def send(ends: Ends, number: int, size: int = SIZE) -> np.ndarray:
    """What the reader has of an array that is made in shared memory."""
    writer, reader = ends
    shared = writer.shared_buffer()
    assert shared is not None
    array = shared.allocate((size,), np.dtype(np.uint8))
    array[:] = number
    writer.send(array, shared)
    return reader.receive()


def pages(ends: Ends) -> int:
    """Bytes of shared memory that the system counts."""
    return sum(os.fstat(b.fd).st_blocks * 512 for b in ends[0].arena._buffers.values())


def test_an_array_that_is_larger_than_the_last_is_made_in_shared_memory(ends: Ends) -> None:
    first = send(ends, 1)
    second = send(ends, 2, 4 * SIZE)
    assert ends[1].mapped.leased == {1, 2}
    assert first[-1] == 1
    assert (second == 2).all()
    assert pages(ends) == 5 * SIZE


def test_free_buffers_of_the_reader_lose_their_pages_and_are_used_again(ends: Ends) -> None:
    writer, reader = ends
    held = [send(ends, number) for number in range(3)]
    assert reader.mapped.free_bytes() == 0
    reader.mapped.release_free(0)
    assert pages(ends) == 3 * SIZE, "arrays lie in them"
    del held[1:]
    assert reader.mapped.free_bytes() == 2 * SIZE
    reader.mapped.release_free(SIZE)
    assert pages(ends) == 2 * SIZE
    reader.mapped.release_free(0)
    assert pages(ends) == SIZE
    reader.send("next")
    assert writer.receive() == "next"
    again = [send(ends, number) for number in (7, 8)]
    assert len(writer.arena._buffers) == 3, "no new buffer"
    assert [int(array[-1]) for array in (*held, *again)] == [0, 7, 8]
    assert writer.arena.nbytes == pages(ends) == 3 * SIZE


def test_a_message_names_no_more_free_buffers_than_it_should(ends: Ends) -> None:
    writer, reader = ends
    held = [send(ends, number) for number in range(3)]
    held.clear()
    reader.send("task", most_freed=1)
    writer.receive()
    assert writer.arena.free_bytes() == SIZE
    assert reader.mapped.free_bytes() == 2 * SIZE, "within reach of the memory budget"
    writer.arena.release_free(0)
    assert pages(ends) == 2 * SIZE
    assert (send(ends, 9) == 9).all()


def test_a_buffer_shrinks_to_smaller_messages(ends: Ends) -> None:
    writer, reader = ends
    for size in (8 * SIZE, SIZE, SIZE, SIZE):
        array = send(ends, 3, size)
        assert (array == 3).all()
        del array
        reader.send("task")
        writer.receive()
    assert len(writer.arena._buffers) == 1
    assert pages(ends) <= 2 * SIZE
