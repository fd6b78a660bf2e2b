"""What comes from disks and object stores is counted, once, whoever reads it."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from object_tools import BUCKET, put

from silva.io.file_source import read_files
from silva.io.incoming import LEDGER, NO_RESPONSES, ByteLedger, Responses, fetched_here

SIZE = 4 << 20


@pytest.fixture
def cold(tmp_path):
    """A file that the system has forgotten."""
    path = tmp_path / "cold"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    before = fetched_here()
    os.pread(descriptor, 1, 0)
    os.close(descriptor)
    if fetched_here() == before:
        pytest.skip("what is read here comes from memory, or nobody counts it")
    return path


def test_what_a_thread_fetches_is_its_own(cold):
    before, seen = fetched_here(), []

    def read():
        at = fetched_here()
        cold.read_bytes()
        seen.append(fetched_here() - at)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert seen[0] > SIZE / 2
    assert fetched_here() == before


def test_what_others_fetch_is_claimed_once(cold):
    ledger = ByteLedger()
    thread = threading.Thread(target=cold.read_bytes)
    thread.start()
    thread.join()
    assert ledger.rest().disk > SIZE / 2
    assert ledger.rest().disk == 0


def test_what_a_thread_has_claimed_is_not_claimed_again(cold):
    ledger, before = ByteLedger(), fetched_here()
    cold.read_bytes()
    ledger.note(fetched_here() - before)
    assert ledger.rest().disk == 0


def test_what_was_read_before_costs_nothing(tmp_path):
    path = tmp_path / "warm"
    path.write_bytes(bytes(SIZE))
    before = fetched_here()
    path.read_bytes()
    assert fetched_here() == before


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:UserWarning")
def test_a_process_that_is_forked_meanwhile_counts_for_itself():
    with LEDGER._lock:
        child = os.fork()
        if not child:
            LEDGER.rest()  # would wait for a thread that is not there
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_objects_are_counted(s3):
    put(s3, {f"o/{i}": bytes(1000) for i in range(5)})
    source = read_files(f"s3://{BUCKET}/o/")
    LEDGER.rest()
    source.read(np.arange(5), ("bytes",))
    assert LEDGER.rest().network.nbytes == 5000


@given(
    latency=st.floats(1e-4, 0.2),
    rate=st.floats(1e6, 1e9),
    at_once=st.integers(3, 256),
    length=st.integers(10_000, 4_000_000),
)
def test_a_line_is_known_by_how_long_answers_wait_for_each_other(latency, rate, at_once, length):
    alone = latency + length / rate
    first = Responses(1, length, alone, (alone, length))
    usual = latency + at_once * length / rate
    later = first.plus(Responses(1000, 1000 * length, 1000 * usual, (usual, length)))
    pace = later.line(first, elapsed=1000 * usual / at_once)
    assert 1 / pace == pytest.approx(rate, rel=0.01)


def test_a_line_that_nobody_fills_is_no_limit():
    first = Responses(1, 1000, 0.02, (0.02, 1000))
    later = first.plus(Responses(1000, 1_000_000, 20.0, (0.02, 1000)))
    assert later.line(first, elapsed=20.0 / 64) == 0
    assert later.line(first, elapsed=20.0) == 0  # one at a time
    assert first.line(NO_RESPONSES, elapsed=1.0) == 0  # too little was seen
