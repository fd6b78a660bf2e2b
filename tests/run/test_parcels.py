"""Results in memory that actor and trainer share: never written while somebody reads them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silva.run.pools.channel import Message, seal
from silva.run.ray.buffers import Packer, Parcel, Unpacker, near


def handed_over(packer: Packer, unpacker: Unpacker, array: np.ndarray) -> np.ndarray:
    """What comes of an array on its way from the actor to the trainer."""
    freed = unpacker.freed()
    assert freed is not None
    shared = packer.shared_buffer(freed)
    assert shared is not None
    parcel = packer.pack(seal(array), shared)
    found: np.ndarray = (unpacker.unpack(parcel) if isinstance(parcel, Parcel) else parcel).load()
    return found


@contextmanager
def pair() -> Iterator[tuple[Packer, Unpacker]]:
    with closing(Packer()) as packer:
        assert packer.proof is not None
        yield packer, Unpacker(packer.proof)


@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(0, 3)), max_size=12))
def test_arrays_that_are_kept_stay_as_they_are(steps: list[tuple[int, int]]) -> None:
    kept: list[tuple[int, np.ndarray]] = []
    with pair() as (packer, unpacker):
        for number, (size, dropped) in enumerate(steps):
            array = np.full(size, number, np.uint8)
            kept.append((number, handed_over(packer, unpacker, array)))
            del kept[:dropped]
            assert all((array == expected).all() for expected, array in kept)


def test_memory_that_nobody_reads_is_used_again() -> None:
    places = set()
    with pair() as (packer, unpacker):
        for number in range(5):
            array = handed_over(packer, unpacker, np.full(1 << 20, number, np.uint8))
            places.add(array.ctypes.data)
            del array
    assert len(places) <= 2


def segments_mapped() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:silva")


def test_when_the_actor_is_gone_nothing_is_left_but_what_is_kept() -> None:
    gc.collect()
    before = segments_mapped()
    with pair() as (packer, unpacker):
        arrays = [handed_over(packer, unpacker, np.full(1 << 20, i, np.uint8)) for i in range(3)]
        unpacker.close()
    kept = arrays.pop()
    arrays.clear()
    del packer
    gc.collect()
    assert segments_mapped() == before + 1
    assert (kept == 2).all()


def test_small_results_are_left_to_ray() -> None:
    with pair() as (packer, _):
        shared = packer.shared_buffer([])
        assert shared is not None
        assert isinstance(packer.pack(seal(np.zeros(10)), shared), Message)


def test_an_actor_behind_a_wall_is_far_away() -> None:
    assert near(None) is None
    with closing(Packer()) as packer:
        proof = packer.proof
        assert proof is not None
        assert near(replace(proof, file=(0, 0))) is None, "the process of that number is another"
        assert near(replace(proof, fd=10_000_000)) is None


def test_after_a_segment_that_could_not_be_had_no_more_are_asked_for() -> None:
    with pair() as (packer, unpacker):
        shared = packer.shared_buffer([])
        assert shared is not None
        parcel = packer.pack(seal(np.zeros(1 << 20)), shared)
        assert isinstance(parcel, Parcel)
        assert parcel.memory is not None
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="another process"):
            unpacker.unpack(replace(parcel, memory=replace(parcel.memory, file=(0, 0))))
        assert unpacker.freed() is None
        assert len(os.listdir("/proc/self/fd")) == before
