"""What this process may use, and how long its threads wait for it."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from silva.cost.machine import queued_seconds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say")


def test_threads_that_end_leave_no_open_files():
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    queued_seconds()
    before = open_files()
    for _ in range(20):
        thread = threading.Thread(target=queued_seconds)
        thread.start()
        thread.join()
    assert open_files() <= before


def test_a_forked_process_reads_its_own_wait():
    """The file that the parent had opened would show the parent's."""
    queued_seconds()
    child = os.fork()
    if not child:
        fresh = queued_seconds()
        with open("/proc/thread-self/schedstat", "rb") as file:
            own = int(file.read().split()[1]) / 1e9
        os._exit(0 if fresh <= own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
