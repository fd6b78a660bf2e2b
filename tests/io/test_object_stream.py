"""Streams over objects whose answers are there at once: what is read, and what is asked for."""

from __future__ import annotations

import io
from concurrent.futures import Future

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from silva.io.objects.stream import AHEAD, HOLE, BlockCache, ObjectStream, RangeReader

DATA = np.random.default_rng(0).bytes(3_000_000)


class Store:
    def __init__(self):
        self.asked = []

    def __call__(self, start, stop):
        assert 0 <= start < stop <= len(DATA)
        self.asked.append((start, stop))
        future = Future()
        future.set_result([DATA[start:stop]])
        return future

    @property
    def total(self):
        return sum(stop - start for start, stop in self.asked)


def stream_of(store, planned=(), blocks=False):
    def small(start, stop):
        return kept.read(0, len(DATA), store, start, stop)

    kept = BlockCache()
    ranges = RangeReader(len(DATA), store, planned, small if blocks else None)
    return ObjectStream(len(DATA), ranges)


places = st.integers(0, len(DATA) + 10)
lengths = st.one_of(st.integers(0, 5_000), st.integers(0, 1_500_000))
ranges = st.lists(st.tuples(places, places).map(sorted).map(tuple), max_size=4)


@given(
    moves=st.lists(st.tuples(st.none() | places, lengths), max_size=12),
    planned=ranges,
    blocks=st.booleans(),
    buffered=st.booleans(),
)
def test_any_reads_give_the_bytes_of_the_object(moves, planned, blocks, buffered):
    planned = [(start, min(stop, len(DATA))) for start, stop in planned if start < len(DATA)]
    planned = [part for part in planned if part[0] < part[1]]
    real = io.BytesIO(DATA)
    stream = stream_of(Store(), planned, blocks)
    if buffered:
        stream = io.BufferedReader(stream, 4096)
    for place, length in moves:
        if place is not None:
            assert stream.seek(place) == real.seek(place)
        assert stream.read(length) == real.read(length)
        assert stream.tell() == real.tell()
    stream.close()


def test_reading_on_fetches_ahead_and_nothing_twice():
    store = Store()
    stream = stream_of(store)
    assert b"".join(iter(lambda: stream.read(100_000), b"")) == DATA
    assert store.total == len(DATA)
    assert len(store.asked) < 15


def test_a_jump_fetches_just_what_is_read():
    store = Store()
    stream = stream_of(store)
    for place in (2_000_000, 1_000_000, 100_000):
        stream.seek(place)
        stream.read(1000)
    assert store.total == 3000


def test_parts_that_are_planned_are_fetched_together_and_nothing_else():
    store = Store()
    planned = [(0, 10_000), (10_000 + HOLE, 40_000), (2_000_000, 2_100_000)]
    stream = stream_of(store, planned)
    stream.seek(2_000_000)
    stream.read(100_000)
    assert sorted(store.asked) == [(0, 40_000), (2_000_000, 2_100_000)]
    stream.seek(0)
    assert stream.read(40_000) == DATA[:40_000]
    assert len(store.asked) == 2
    assert store.total < AHEAD
