"""However a loop ends, no process, thread, descriptor or file outlives it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from failure_tools import start_script, until, worker_pids

import silva as sv
from silva.physical.stage.context import Context
from silva.run.pools.task import Task

ROWS = sv.from_columns({"x": range(4000)})


def wide(x):
    return np.full(2000, x)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("silva-")]


def break_out(loader):
    for _ in loader:
        break


def fail_in_the_body(loader):
    with contextlib.suppress(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018


def drop_the_iterator(loader):
    batches = iter(loader)
    next(batches)
    del batches
    gc.collect()


def drop_everything(loader):
    batches = iter(loader)
    next(batches)


def read_to_the_end(loader):
    for _ in loader:
        pass
    loader.close()


ENDINGS = [break_out, fail_in_the_body, drop_the_iterator, drop_everything, read_to_the_end]


@pytest.mark.parametrize(("backend", "repeats"), [("threads", 3), ("processes", 2)])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_loop_that_ends_leaves_no_process_thread_or_descriptor(ending, backend, repeats):
    pipeline = ROWS.take(200).derive(y=wide).batch(8)
    before = None
    for _ in range(repeats):
        loader = pipeline.loader(backend=backend, workers=2)
        ending(loader)
        del loader
        gc.collect()
        until(lambda: not own_threads())
        assert not psutil.Process().children()
        before = before or descriptors()
        assert descriptors() <= before


def test_five_broken_loops_on_one_loader_leak_nothing():
    with ROWS.derive(y=wide).batch(8).loader(backend="processes", workers=1) as loader:
        counts = []
        for i in range(5):
            break_out(loader)
            assert not psutil.Process().children()
            counts.append(descriptors())
            assert loader.epoch == i
        assert counts[-1] <= counts[0]


def test_tasks_that_nobody_wants_any_more_do_not_cost_a_worker():
    pipeline = ROWS.take(40).derive(y=wide).batch(4)
    with pipeline.loader(backend="processes", workers=1) as loader:
        list(loader)
        before = worker_pids()
        pool = loader._executor._pools["processes"]
        (stage, _) = next(iter(pool._stages.values()))
        task = Task(stage, None, Context(0, 0))
        task.cancelled = True
        pool.submit(task)
        list(loader)
        assert worker_pids() == before
        assert [p.pid for p in psutil.Process().children()] == before


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_loop_that_was_dropped_does_not_keep_a_new_one_from_working(backend):
    pipeline = ROWS.take(40).derive(y=lambda x: x).batch(4)
    with pipeline.loader(backend=backend, workers=2) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(sv.LoaderError, match="already being iterated"):
            next(iter(loader))
        next(batches)
        del batches
        gc.collect()
        assert len(list(loader)) == 10


SCRIPT = """
import sys, time
import numpy as np
import psutil
import silva as sv

def slow(x):
    time.sleep(0.01)
    return np.full(50_000, x)

if __name__ == "__main__":
    loader = sv.from_columns({"x": range(10_000)}).derive(y=slow).batch(4).loader(
        backend="processes", workers=2)
    try:
        for i, batch in enumerate(loader):
            if i == 3:
                print("pids", *(p.pid for p in psutil.Process().children()), flush=True)
    except KeyboardInterrupt:
        print("interrupted", *(p.pid for p in psutil.Process().children()), flush=True)
        sys.exit(7)
"""


def started(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    process = start_script(folder, SCRIPT, start_new_session=True)
    assert process.stdout is not None
    word, *pids = process.stdout.readline().split()
    assert word == "pids"
    assert len(pids) == 2
    return process, [int(p) for p in pids]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def shared_files() -> set[str]:
    return {f for f in os.listdir("/dev/shm") if "silva" in f}


@pytest.mark.parametrize("stop_first", [False, True])
def test_workers_of_a_parent_that_is_killed_are_gone_within_seconds(tmp_path: Path, stop_first):
    before = shared_files()
    process, pids = started(tmp_path)
    if stop_first:
        os.kill(pids[0], signal.SIGSTOP)
    process.kill()
    process.communicate()
    until(lambda: all(map(gone, pids)))
    assert shared_files() <= before
    assert os.listdir(tmp_path) == ["script.py"]


def test_ctrl_c_is_a_keyboard_interrupt_in_the_parent_alone(tmp_path: Path):
    process, pids = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7
    assert out == "interrupted\n", "the workers were gone when the loop had ended"
    assert "Traceback" not in err, err
    until(lambda: all(map(gone, pids)))


def test_ctrl_c_while_workers_start_leaves_nothing(tmp_path: Path):
    text = SCRIPT.replace("    try:\n", "    try:\n        print('pids', flush=True)\n", 1)
    process = start_script(tmp_path, text, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    children = until(lambda: psutil.Process(process.pid).children())
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert "Traceback" not in err, err
    until(lambda: all(gone(c.pid) for c in children))


def test_a_script_that_ends_with_a_live_iterator_ends(tmp_path: Path):
    text = SCRIPT.partition("    try:")[0] + (
        "    batches = iter(loader)\n    next(batches)\n"
        "    print(*(p.pid for p in psutil.Process().children()))\n"
    )
    process = start_script(tmp_path, text)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == ""
    until(lambda: all(gone(int(p)) for p in out.split()))
