"""Recycled memory is never handed out while anybody can still see it."""

from __future__ import annotations

import gc
import pickle
import threading
from pathlib import Path

import numpy as np
import torch

from silva.columns import allocation, empty

SHAPE = (3, 1 << 20)


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_the_memory_of_a_dropped_array_is_used_again():
    allocation._free.clear()
    first = empty(SHAPE, np.uint8)
    where = address(first)
    del first
    assert address(empty(SHAPE, np.uint8)) == where


def test_a_view_keeps_the_memory():
    whole = empty(SHAPE, np.float32)
    whole[:] = 7
    where, part = address(whole), whole[1, 5:9]
    del whole
    gc.collect()
    other = empty(SHAPE, np.float32)
    other[:] = 9
    assert address(other) != where
    assert part.tolist() == [7, 7, 7, 7]


def test_a_tensor_keeps_the_memory():
    whole = empty(SHAPE, np.float32)
    where, tensor = address(whole), torch.from_numpy(whole)[0]
    del whole
    assert address(empty(SHAPE, np.float32)) != where
    del tensor


def test_arrays_are_plain_and_writable():
    array = empty(SHAPE, np.int16)
    assert type(array) is np.ndarray
    assert type(array[1:]) is np.ndarray
    assert array.flags.writeable
    assert array.flags.c_contiguous
    array[:] = 3
    assert np.array_equal(pickle.loads(pickle.dumps(array)), array)  # noqa: S301  our own bytes


def test_empty_and_small_shapes():
    assert empty((0, 5), np.float32).shape == (0, 5)
    assert empty((), np.float64).shape == ()
    assert empty((4,), object).tolist() == [None] * 4


def test_what_waits_is_bounded():
    held = [empty((64 << 20,), np.uint8) for _ in range(8)]
    held.clear()
    assert 0 < allocation.free_bytes() <= allocation.MOST_FREE_BYTES
    allocation._free.clear()


def test_sizes_that_are_no_longer_wanted_are_freed():
    allocation._free.clear()
    old = [empty((4 << 20,), np.uint8) for _ in range(4)]
    old.clear()
    new = [empty((9 << 20,), np.uint8) for _ in range(4)]
    assert allocation.free_bytes() == 0
    del new


def test_batches_of_different_lengths_share_their_memory():
    allocation._free.clear()
    for megabytes in (24, 10, 24, 7, 24, 14):
        array = empty((megabytes << 20,), np.uint8)
        assert allocation.free_bytes() == 0, "it lies in the only buffer there is"
        del array
        assert allocation.free_bytes() == 24 << 20


def resident(array: np.ndarray) -> int:
    """Bytes of memory behind an array and what follows it in its buffer."""
    mapped = Path("/proc/self/smaps").read_text().splitlines()
    begins = [i for i, line in enumerate(mapped) if line.startswith(f"{address(array):x}-")]
    rss = next(line for line in mapped[begins[0] :] if line.startswith("Rss:"))
    return int(rss.split()[1]) << 10


def test_a_buffer_gives_back_what_smaller_arrays_leave():
    allocation._free.clear()
    array = empty((32 << 20,), np.uint8)
    array[:] = 1
    for _ in range(2):
        where = address(array)
        del array
        array = empty((12 << 20,), np.uint8)
        assert address(array) == where, "it lies in the only buffer there is"
        array[:] = 2
    assert resident(array) < 16 << 20


def test_threads_never_share_a_buffer():
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            array = empty((1 << 20,), np.uint8)
            array[::4096] = number
            if not (array[::4096] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
